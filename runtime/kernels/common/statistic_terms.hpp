// LSE and D of a query as eight more columns of Q and dO, so that products subtract them: no instruction of a consumer
// does, and none reads them.
//
// The columns, in bf16 whatever the problem's type is, for wgmma's types may change from product to product:
//
//     d0 d1 d2 0 l0 l1 l2 0,  D = d0 + d1 + d2,  LSE / scale = l0 + l1 + l2
//
// Three of them hold a float32's 24 bits. V with more columns [-1 -1 -1 0 ...] makes dP what dS needs, dP - D, and K
// with [0 0 0 0 -1 -1 -1 0] makes S, but for scale and a key's bias, what the exponential needs. All columns are
// finite, for they meet zeros.
//
// With a softcap the LSE is subtracted behind tanh, which no product does: then l0 l1 are the bits of a float32, the
// LSE in log2, which consumers read.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"

namespace flashdma_bwd {

/// A query's.
struct alignas(16) StatisticTerms {
  std::uint16_t dot[4];
  std::uint16_t lse[4];
};

/// What an LSE of infinity is: the largest bf16. Any score less it, times scale, has the probability 0.
inline constexpr float kLargestTerm = 3.3895313892515355e38f;

/// The nearest bits of a float32 both of whose halves are finite as bf16: one value in 256 has a lower half that is
/// not, and is changed by 64 units in its last place at most, 2^-17 of it. `bits`: of a float32 up to kLargestTerm.
FLASHDMA_HOST_DEVICE constexpr std::uint32_t with_finite_halves(std::uint32_t bits) {
  constexpr std::uint32_t kExponent = 0x7f80;
  constexpr std::uint32_t kFraction = 0x7f;
  if ((bits & kExponent) != kExponent) return bits;
  return (bits & kFraction) > kFraction / 2 ? (bits | kFraction) + 1 : (bits & ~kFraction) - 1;
}

}  // namespace flashdma_bwd
