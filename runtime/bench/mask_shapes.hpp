// Masks on the host: bool bytes, 0 masks.
#pragma once

#include <cstdint>
#include <vector>

#include "problem.hpp"

namespace flashdma_bwd::bench {

/// A mask [b, h_kv, rows, sk] and the scores [b, h_kv, sk] that a top-w mask was chosen by.
struct HostMask {
  std::int64_t rows = 0;  ///< sq, or 1: the same for all queries
  std::vector<std::uint8_t> keep;
  double active_fraction = 1;  ///< pairs that mask and causality leave, over all b * h * sq * sk
};

/// Random scores [b, h_kv, sk], what a key bias holds.
std::vector<float> random_scores(const Problem& problem, std::uint64_t seed);

/// The mask of a problem; no bytes if it has none. `scores` decides top-w masks.
HostMask make_mask(const Problem& problem, const std::vector<float>& scores, std::uint64_t seed);

}  // namespace flashdma_bwd::bench
