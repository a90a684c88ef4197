// A benchmark's mask in the encoding that its problem asks for.
#pragma once

#include <flashdma_bwd/flashdma_bwd.h>

#include <cstdint>
#include <vector>

#include "mask_shapes.hpp"
#include "problem.hpp"

namespace flashdma_bwd::bench {

/// Its elements, contiguous, and their sizes and strides; data is not set.
struct EncodedMask {
  flashdma_bwd_pair_tensor tensor{};
  std::uint16_t block_q = 0, block_k = 0;
  std::vector<std::uint8_t> bytes;
};

/// `mask` has the structure of the problem's, whose encoding can express it.
EncodedMask encode(const Problem& problem, const HostMask& mask);

}  // namespace flashdma_bwd::bench
