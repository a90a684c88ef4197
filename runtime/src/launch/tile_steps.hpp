// The steps of items that causality and a window alone decide: they are the same for all batches and heads.
#pragma once

#include <algorithm>

#include "common/visibility.hpp"

namespace flashdma_bwd {

class TileSteps {
 public:
  explicit TileSteps(const BackwardParameters& parameters)
      : p(parameters), sequence_(sequence_of(parameters, 0)), limits_(limits_of(parameters, sequence_)) {}

  /// Of an item with this key tile, with all its heads.
  int operator()(int tile) const {
    const int first = tile * p.block_n;
    const int last = std::min(first + p.block_n, sequence_.length_k) - 1;
    const TileRange seen = visible_query_tiles(limits_, sequence_.length_q, first, last, p.block_m);
    return (seen.end - seen.begin) * p.heads_per_item;
  }

 private:
  const BackwardParameters& p;
  SequenceRows sequence_;
  Limits limits_;
};

}  // namespace flashdma_bwd
