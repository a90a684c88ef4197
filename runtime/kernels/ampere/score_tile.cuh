// The arithmetic on a warp's share of a score tile: scores to probabilities, dP to dS, and both to shared memory.
#pragma once

#include "ampere/cta.cuh"
#include "ampere/schedule.cuh"
#include "ampere/tile_bias.cuh"
#include "common/numeric.cuh"

namespace flashdma_bwd::ampere {

/// A statistic of the warp's rows.
template <KernelConfig kConfig>
using RowValues = float[Geometry<kConfig>::kScoreM][2];

/// With a softcap 1 - tanh^2 of elements (m, n, 2 half) and (m, n, 2 half + 1). It is kept packed: it multiplies what
/// is rounded to 16 bits right after.
template <KernelConfig kConfig>
using Slopes = std::uint32_t[kConfig.softcap ? Geometry<kConfig>::kScoreM : 1]
                            [kConfig.softcap ? Geometry<kConfig>::kScoreN : 1][2];

/// Reads a statistic of the warp's rows.
template <int MBlocks>
__device__ __forceinline__ void read_rows(float (&values)[MBlocks][2], const float* shared, const WarpShare& share) {
#pragma unroll
  for (int m = 0; m < MBlocks; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) values[m][half] = shared[share.row(m, half)];
}

/// What dP's products start from: -D of their row, or 0.
template <KernelConfig kConfig>
__device__ __forceinline__ RowStart<Geometry<kConfig>::kScoreM> start_of_d_probability(const RowValues<kConfig>& dot) {
  RowStart<Geometry<kConfig>::kScoreM> start;
#pragma unroll
  for (int m = 0; m < Geometry<kConfig>::kScoreM; ++m)
#pragma unroll
    for (int e = 0; e < 4; ++e) start.values[m][e] = Schedule<kConfig>::kStartFromMinusDot ? -dot[m][e / 2] : 0.0f;
  return start;
}

/// Scores to probabilities, for one column block: softcap, bias, exponential.
template <KernelConfig kConfig>
__device__ __forceinline__ void exponentiate(const Cta<kConfig>& cta, ScoreAccumulator<kConfig>& s,
                                             Slopes<kConfig>& slope, const BiasPairs<kConfig>& bias_pairs,
                                             const RowValues<kConfig>& row_lse, int n, const WarpShare& share) {
  using G = Geometry<kConfig>;
  constexpr DataType kType = kConfig.data_type;
  constexpr bool kKeyBias = kConfig.bias == BiasKind::key_vector;
  constexpr bool kTileBias = kConfig.bias == BiasKind::tile;
  const BackwardParameters& p = cta.p;
  const float to_log2 = (kConfig.softcap ? p.softcap : p.scale) * kLog2E;
  const float to_cap = kConfig.softcap ? p.scale / p.softcap : 0.0f;
  float2 column_bias = {0.0f, 0.0f};
  if constexpr (kKeyBias) column_bias = *reinterpret_cast<const float2*>(cta.key_bias() + share.column(n));
#pragma unroll
  for (int m = 0; m < G::kScoreM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float2 offset = {-row_lse[m][half], -row_lse[m][half]};
      if constexpr (kKeyBias) offset = {column_bias.x + offset.x, column_bias.y + offset.y};
      if constexpr (kTileBias) {
        const float2 bias = unpack<kType>(bias_pairs[m][n][half]);
        offset = {fmaf(bias.x, kLog2E, offset.x), fmaf(bias.y, kLog2E, offset.y)};
      }
      float& x = s[m][n][half * 2];
      float& y = s[m][n][half * 2 + 1];
      if constexpr (kConfig.softcap) {
        x = tanh_accurate(x * to_cap);
        y = tanh_accurate(y * to_cap);
        slope[m][n][half] = pack<kSlopeType>(1.0f - x * x, 1.0f - y * y);
      }
      x = ptx::ex2(fmaf(x, to_log2, offset.x));
      y = ptx::ex2(fmaf(y, to_log2, offset.y));
      if constexpr (kTileBias) {
        // By selection: the score of a masked key may have overflowed.
        const float2 bias = unpack<kType>(bias_pairs[m][n][half]);
        if (bias.x == -INFINITY) x = 0.0f;
        if (bias.y == -INFINITY) y = 0.0f;
      }
    }
}

/// Makes what multiplies a P of 0 finite: a masked key may hold values whose products overflow, and 0 times that is
/// not 0.
template <KernelConfig kConfig>
__device__ __forceinline__ void silence(ScoreAccumulator<kConfig>& d_score, Slopes<kConfig>& slope,
                                        const ScoreAccumulator<kConfig>& probability) {
  using G = Geometry<kConfig>;
#pragma unroll
  for (int m = 0; m < G::kScoreM; ++m)
#pragma unroll
    for (int n = 0; n < G::kScoreN; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (probability[m][n][e] == 0.0f) {
          d_score[m][n][e] = 0.0f;
          if constexpr (kConfig.softcap) slope[m][n][e / 2] &= e % 2 == 0 ? 0xffff0000u : 0x0000ffffu;
        }
}

/// Stores the packed elements (m, n, 2 half) and (m, n, 2 half + 1) into a tile.
template <class Tile>
__device__ __forceinline__ void store_pair(std::uint32_t tile, int m, int half, int n, std::uint32_t packed,
                                           const WarpShare& share) {
  const std::uint32_t address =
      tile + static_cast<std::uint32_t>(Tile::chunk_offset(share.first_row + share.lane / 4, share.first_column / 8) +
                                        share.lane % 4 * 4);
  ptx::st_shared_32(Tile::advance(address, m * 16 + half * 8, n), packed);
}

/// Stores P for dV's product.
template <KernelConfig kConfig>
__device__ __forceinline__ void store_probabilities(const Cta<kConfig>& cta, const ScoreAccumulator<kConfig>& values,
                                                    const WarpShare& share) {
  using G = Geometry<kConfig>;
#pragma unroll
  for (int m = 0; m < G::kScoreM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < G::kScoreN; ++n)
        store_pair<typename G::PairTile>(cta.shared_base + G::kProbability, m, half, n,
                                         pack<kConfig.data_type>(values[m][n][half * 2], values[m][n][half * 2 + 1]),
                                         share);
}

/// dP to dS, for one column block: dS stays in the accumulators, and what dQ and dK need of it goes to shared
/// memory.
template <KernelConfig kConfig>
__device__ __forceinline__ void differentiate(const Cta<kConfig>& cta, ScoreAccumulator<kConfig>& d_score,
                                              const ScoreAccumulator<kConfig>& probability,
                                              const RowValues<kConfig>& dot, const Slopes<kConfig>& slope, int n,
                                              const WarpShare& share) {
  using G = Geometry<kConfig>;
  constexpr bool kStartFromMinusDot = Schedule<kConfig>::kStartFromMinusDot;
#pragma unroll
  for (int m = 0; m < G::kScoreM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& x = d_score[m][n][half * 2];
      float& y = d_score[m][n][half * 2 + 1];
      x = probability[m][n][half * 2] * (kStartFromMinusDot ? x : x - dot[m][half]);
      y = probability[m][n][half * 2 + 1] * (kStartFromMinusDot ? y : y - dot[m][half]);
      float2 factor = {1.0f, 1.0f};
      if constexpr (kConfig.softcap) factor = unpack<kSlopeType>(slope[m][n][half]);
      store_pair<typename G::PairTile>(cta.shared_base + G::kDScore, m, half, n,
                                       pack<kConfig.data_type>(x * factor.x, y * factor.y), share);
    }
}

}  // namespace flashdma_bwd::ampere
