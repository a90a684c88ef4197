// LSE and D of a query as eight more columns of Q and dO, so that products subtract them: no instruction of a consumer
// does, and none reads them.
//
// The columns, in bf16 whatever the problem's type is, for wgmma's types may change from product to product:
//
//     d0 d1 d2 l0 l1 l2 0 0,  D = d0 + d1 + d2,  LSE / scale = l0 + l1 + l2
//
// Three of them hold a float32's 24 bits. V with more columns [-1 -1 -1 0 ...] makes dP what dS needs, dP - D, and K
// with [0 0 0 -1 -1 -1 0 0] makes S, but for scale and a key's bias, what the exponential needs. All columns are
// finite, for they meet zeros.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"

namespace flashdma_bwd {

/// A query's.
struct alignas(16) StatisticTerms {
  std::uint16_t dot[3];
  std::uint16_t lse[3];
  std::uint16_t unused[2];
};

/// What an LSE of infinity is: the largest bf16. Any score less it, times scale, has the probability 0.
inline constexpr float kLargestTerm = 3.3895313892515355e38f;

}  // namespace flashdma_bwd
