// A mask atom as the main kernels read it: a word for each query, and the class of what the pairs have in common.
#pragma once

#include "plan/mask_atoms.cuh"
#include "plan/mask_plan.hpp"

namespace flashdma_bwd {

/// Writes the words and the class of an atom from its rows of queries. `keys_inside` of its keys are some, the first
/// ones. All lanes of the warp.
__device__ __forceinline__ void write_atom(const BitRows& rows, int first_query, int queries, int keys_inside,
                                           std::uint64_t* words, std::uint8_t* mask_class, int lane) {
  const std::uint64_t inside = first_bits(keys_inside);
  bool any = false;
  bool all = true;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = BitRows::row(lane, half);
    const std::uint64_t word = rows.word(half);
    words[row] = word;
    any |= word != 0;
    all &= first_query + row >= queries || word == inside;
  }
  any = __any_sync(0xffffffffu, any);
  all = __all_sync(0xffffffffu, all);
  const MaskClass kind = !any ? MaskClass::empty : all ? MaskClass::full : MaskClass::partial;
  if (lane == 0) *mask_class = static_cast<std::uint8_t>(kind);
}

}  // namespace flashdma_bwd
