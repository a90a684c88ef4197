// A tile bias on a warp's share of a score tile: reading its values, and writing dS, its gradient.
#pragma once

#include "ampere/cta.cuh"
#include "common/tile_bias.cuh"

namespace flashdma_bwd::ampere {

/// The biases of elements (m, n, 2 half) and (m, n, 2 half + 1), packed.
template <KernelConfig kConfig>
using BiasPairs = std::uint32_t[kConfig.bias == BiasKind::tile ? Geometry<kConfig>::kScoreM : 1]
                               [kConfig.bias == BiasKind::tile ? Geometry<kConfig>::kScoreN : 1][2];

template <KernelConfig kConfig>
__device__ __forceinline__ void load_bias_pairs(const Cta<kConfig>& cta, BiasPairs<kConfig>& pairs, int first_query,
                                                const WarpShare& share) {
  using G = Geometry<kConfig>;
  const BackwardParameters& p = cta.p;
  const Item& item = cta.item();
  const std::int64_t offset =
      item.batch * p.bias.stride_batch + (item.head / p.bias.heads_per_head) * p.bias.stride_head;
  const TileBias<kConfig.data_type> bias{static_cast<const std::uint16_t*>(p.bias.data) + offset, p.bias.stride_row,
                                         static_cast<int>(p.bias.stride_column), item.sequence.length_q,
                                         item.sequence.length_k};
#pragma unroll
  for (int m = 0; m < G::kScoreM; ++m)
#pragma unroll
    for (int n = 0; n < G::kScoreN; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        pairs[m][n][half] =
            bias.load(first_query + share.row(m, half), cta.key_pair(share.column(n)), p.bias_pairs_aligned);
}

template <KernelConfig kConfig>
__device__ __forceinline__ void store_bias_gradient(const Cta<kConfig>& cta, const ScoreAccumulator<kConfig>& d_score,
                                                    int first_query, const WarpShare& share) {
  using G = Geometry<kConfig>;
  const BackwardParameters& p = cta.p;
  if (p.bias_gradient == BiasGradient::none) return;
  const Item& item = cta.item();
  const std::int64_t offset =
      item.batch * p.d_bias.stride_batch + (item.head / p.d_bias.heads_per_head) * p.d_bias.stride_head;
  void* data = p.bias_gradient == BiasGradient::store_16bit
                   ? static_cast<void*>(static_cast<std::uint16_t*>(p.d_bias.data) + offset)
                   : static_cast<void*>(static_cast<float*>(p.d_bias.data) + offset);
  const TileBiasGradient<kConfig.data_type> gradient{data,
                                                     p.d_bias.stride_row,
                                                     p.d_bias.stride_column,
                                                     p.bias_gradient,
                                                     item.sequence.length_q,
                                                     item.sequence.length_k};
  const bool aligned =
      p.d_bias.stride_column == 1 && p.d_bias.stride_row % 2 == 0 && reinterpret_cast<std::uintptr_t>(data) % 4 == 0;
#pragma unroll
  for (int m = 0; m < G::kScoreM; ++m)
#pragma unroll
    for (int n = 0; n < G::kScoreN; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        gradient.add_pair(first_query + share.row(m, half), cta.key_pair(share.column(n)), d_score[m][n][half * 2],
                          d_score[m][n][half * 2 + 1], aligned);
}

}  // namespace flashdma_bwd::ampere
