// Masked pairs of a warp's share of a score tile: the mask's bits and the limits on positions, and what they clear.
//
// P is cleared by selection: the score of a masked pair may have overflowed.
#pragma once

#include "ampere/cta.cuh"
#include "common/visibility.hpp"

namespace flashdma_bwd::ampere {

/// The mask words of the head at work.
template <KernelConfig kConfig>
__device__ __forceinline__ const std::uint64_t* mask_head(const Cta<kConfig>& cta) {
  const BackwardParameters& p = cta.p;
  const Item& item = cta.item();
  return p.mask_words +
         (item.batch * p.mask_batch_stride + item.head / p.mask_heads_per_head * p.mask_head_stride) * kMaskAtom;
}

/// Mask words of the warp's rows, shifted so that bit 8 n + i % 2 belongs to element (m, n, i).
template <int MBlocks>
__device__ __forceinline__ void read_mask_words(std::uint64_t (&words)[MBlocks][2], const std::uint64_t* head_words,
                                                int query_atoms, int first_query, int first_key,
                                                const WarpShare& share) {
  const int key = first_key + share.first_column;
  const int shift = key % kMaskAtom + share.lane % 4 * 2;
  const std::uint64_t* atom_row = head_words + static_cast<std::int64_t>(key / kMaskAtom) * query_atoms * kMaskAtom;
#pragma unroll
  for (int m = 0; m < MBlocks; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) words[m][half] = __ldg(atom_row + first_query + share.row(m, half)) >> shift;
}

/// Clears the probabilities that the mask words mask.
template <int MBlocks, int NBlocks>
__device__ __forceinline__ void apply_mask_words(float (&p)[MBlocks][NBlocks][4],
                                                 const std::uint64_t (&words)[MBlocks][2]) {
#pragma unroll
  for (int m = 0; m < MBlocks; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t parts[2] = {static_cast<std::uint32_t>(words[m][half]),
                                      static_cast<std::uint32_t>(words[m][half] >> 32)};
#pragma unroll
      for (int n = 0; n < NBlocks; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if ((parts[n / 4] >> (n % 4 * 8 + e) & 1u) == 0) p[m][n][half * 2 + e] = 0.0f;
    }
}

/// Clears the probabilities of keys outside the queries' limits; keys past the end lie at kPastEnd.
template <int MBlocks, int NBlocks>
__device__ __forceinline__ void apply_limits(float (&p)[MBlocks][NBlocks][4], const Limits& limits,
                                             const int* positions, int first_query, const WarpShare& share) {
#pragma unroll
  for (int n = 0; n < NBlocks; ++n) {
    const int2 position = *reinterpret_cast<const int2*>(positions + share.column(n));
#pragma unroll
    for (int m = 0; m < MBlocks; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int query = first_query + share.row(m, half);
        const int low = query + limits.low;
        const int high = query + limits.high;
        if (position.x < low || position.x > high) p[m][n][half * 2] = 0.0f;
        if (position.y < low || position.y > high) p[m][n][half * 2 + 1] = 0.0f;
      }
  }
}

}  // namespace flashdma_bwd::ampere
