// The problems of the mask tests: every mask structure at a common size.
#pragma once

#include "support/problem.hpp"

namespace flashdma_bwd::testing {

inline const MaskSpec kMasks[] = {
    {.structure = MaskStructure::keep_all},
    {.structure = MaskStructure::keep_nothing},
    {.structure = MaskStructure::single_pair},
    {.structure = MaskStructure::alternating_tiles, .width = 32},
    {.structure = MaskStructure::alternating_tiles, .width = 64},
    {.structure = MaskStructure::alternating_tiles, .width = 128},
    {.structure = MaskStructure::empty_rows, .probability = 0.5},
    {.structure = MaskStructure::empty_columns, .probability = 0.5},
    {.structure = MaskStructure::one_key_per_row},
    {.structure = MaskStructure::one_tile, .probability = 0.5},
    {.structure = MaskStructure::bernoulli, .probability = 0.5},
    {.structure = MaskStructure::bernoulli, .probability = 0.01},
    {.structure = MaskStructure::bernoulli, .probability = 0.0001},
    {.structure = MaskStructure::causal_top_w, .width = 16},
    {.structure = MaskStructure::causal_top_w, .width = 100},
    {.structure = MaskStructure::window_with_sinks, .width = 50},
    {.structure = MaskStructure::documents, .width = 60},
    {.structure = MaskStructure::block_sparse, .probability = 0.3, .width = 64},
    {.structure = MaskStructure::block_sparse, .probability = 0.3, .width = 128},
};

inline ProblemSpec masked(const MaskSpec& mask, int head_dim = 64) {
  ProblemSpec spec;
  spec.head_dim = head_dim;
  spec.heads = 4;
  spec.heads_kv = 2;
  spec.seqlen_q = 300;
  spec.seqlen_k = 450;
  spec.mask = mask;
  // A gradient of one pair is rounded as dS and as itself, together up to more than the bar; those of many average.
  if (mask.structure == MaskStructure::single_pair) {
    spec.heads = 32;
    spec.heads_kv = 16;
  }
  return spec;
}

/// dS of rows with one key cancels unless O is not of this forward.
inline bool has_single_keys(const MaskSpec& mask) {
  return mask.structure == MaskStructure::one_key_per_row || mask.structure == MaskStructure::single_pair;
}

}  // namespace flashdma_bwd::testing
