// The arithmetic on S where queries are the rows: 64 queries x 96 keys in a warpgroup's accumulators.
//
// Element i of a lane is query row `lane / 4 + 8 (i / 2 % 2)` of its warp's 16 and key `8 (i / 4) + 2 (lane % 4) + i %
// 2` of the tile: a lane has two queries, and of every 8 keys two.
#pragma once

#include "hopper/consumer_warp.cuh"
#include "hopper/score_tile.cuh"
#include "hopper/transposed/geometry.cuh"

namespace flashdma_bwd::hopper::transposed {

/// Scores to probabilities: softcap, bias, exponential. `lse`: of the lane's two queries. `key_bias`: shared address of
/// the biases of the lane's first two keys, in units of log2, or Absent. Softcap: `packed` becomes P, in the order of
/// wgmma's A operand, and the scores weights, P (1 - tanh^2); else it is Absent. All lanes of the warp.
template <KernelConfig kConfig, int Count, class KeyBias, class Packed>
__device__ __forceinline__ void exponentiate_rows(const BackwardParameters& p, float (&s)[Count], const float (&lse)[2],
                                                  KeyBias&& key_bias, Packed&& packed) {
  constexpr bool kSoftcap = kConfig.softcap;
  static_assert(kPresent<Packed> == kSoftcap && (!kSoftcap || kScoresTakeSlope<kConfig>)&&!kScaledWeights<kConfig>);
  const float to_log2 = p.score_log2;
  const auto run = [&](auto&& tanh) {
#pragma unroll
    for (int j = 0; j < Count / 4; ++j) {
      [[maybe_unused]] float2 bias;
      if constexpr (kPresent<KeyBias>) bias = ptx::ld_shared_v2(key_bias + j * 32);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float2 offset = {-lse[half], -lse[half]};
        if constexpr (kPresent<KeyBias>) offset = {bias.x - lse[half], bias.y - lse[half]};
        float& x = s[j * 4 + half * 2];
        float& y = s[j * 4 + half * 2 + 1];
        [[maybe_unused]] float2 slope;
        if constexpr (kSoftcap) {
          x = tanh(x);
          y = tanh(y);
          slope = {1.0f - x * x, 1.0f - y * y};
        }
        x = ptx::ex2(fmaf(x, to_log2, offset.x));
        y = ptx::ex2(fmaf(y, to_log2, offset.y));
        if constexpr (kSoftcap) {
          packed[j / 2][j % 2 * 2 + half] = pack<kConfig.data_type>(x, y);
          x *= slope.x;
          y *= slope.y;
        }
      }
    }
  };
  if constexpr (!kSoftcap) {
    run(nullptr);
  } else {
    with_tanh<kConfig>(p, s, run);
  }
}

/// Which of the 96 keys one of a lane's queries sees: a bit for each, of which the lane's own are bits 0, 1, 8, 9 ...
/// of each word after own_keys().
struct VisibleKeys {
  std::uint32_t words[3] = {0xffffffffu, 0xffffffffu, 0xffffffffu};

  __device__ __forceinline__ void keep(int word, std::uint32_t bits) { words[word] &= bits; }

  /// Those of a mask: `atom` is the shared address of the query's word of the tile's first key atom, of those `atoms`
  /// are set that are to be read, and the next atom's is `atom_bytes` further.
  __device__ __forceinline__ void keep_mask(std::uint32_t atom, int atoms, bool second_half, int atom_bytes) {
#pragma unroll
    for (int w = 0; w < 3; ++w) {
      const int part = w + (second_half ? 1 : 0);  // of 32 keys, from the first atom's first on
      const std::uint32_t address = atom + part / 2 * atom_bytes + part % 2 * 4;
      keep(w, (atoms >> (part / 2) & 1) != 0 ? __float_as_uint(ptx::ld_shared_f32(address)) : 0u);
    }
  }
  /// Of the keys [low, high).
  __device__ __forceinline__ void keep_range(int low, int high) {
#pragma unroll
    for (int w = 0; w < 3; ++w) keep(w, bits_from(low - 32 * w) & bits_below(high - 32 * w));
  }

  __device__ __forceinline__ void own_keys(int lane) {
#pragma unroll
    for (int w = 0; w < 3; ++w) words[w] >>= lane % 4 * 2;
  }

  /// After own_keys(): those at positions [low, high]. `positions`: shared address of those of the lane's first two.
  __device__ __forceinline__ void keep_positions(std::uint32_t positions, int low, int high) {
#pragma unroll
    for (int j = 0; j < 12; ++j) {
      const float2 two = ptx::ld_shared_v2(positions + j * 32);
      const int x = static_cast<int>(__float_as_uint(two.x));
      const int y = static_cast<int>(__float_as_uint(two.y));
      const std::uint32_t hidden = (x < low || x > high ? 1u : 0u) | (y < low || y > high ? 2u : 0u);
      keep(j / 4, ~(hidden << (j % 4 * 8)));
    }
  }

  /// After own_keys(): calls clear(i) for the elements of the lane's query `half` with the keys that it does not see.
  template <int kKeys, class Clear>
  __device__ __forceinline__ void hide(Clear&& clear, int half) const {
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if ((words[j / 4] >> (j % 4 * 8 + e) & 1u) == 0) clear(j * 4 + half * 2 + e);
  }
};

/// Stores a warp's 16 rows of P or dS as rows of a tile of pairs. `words(k)`: of the k-th 16 keys, in the order of
/// wgmma's A operand.
template <class PairTile, int kKeys, class Words>
__device__ __forceinline__ void store_rows(std::uint32_t tile, Words&& words) {
  static_assert(PairTile::kPanelColumns == 32);
  const Coordinate at = ldmatrix_coordinate(MatrixOrder::rows_first, lane());
  const std::uint32_t address = tile + PairTile::chunk_offset(warp() * 16 + at.row, at.column);
#pragma unroll
  for (int k = 0; k < kKeys / 16; ++k) {
    std::uint32_t four[4];
    words(k, four);
    // Two chunks further the swizzle's upper bit changes sides.
    ptx::stmatrix_x4((address ^ (k % 2 * 32)) + k / 2 * PairTile::kPanelBytes, four);
  }
}

}  // namespace flashdma_bwd::hopper::transposed
