// The arithmetic on a warpgroup's share of S^T and dP^T: 64 keys x block_m queries in wgmma's accumulators.
//
// Element i of a lane is key row `lane / 4 + 8 (i / 2 % 2)` of its warp's 16 and query `8 (i / 4) + 2 (lane % 4) + i %
// 2` of the tile: a lane has two keys, and of every 8 queries two.
#pragma once

#include "common/item.cuh"
#include "common/numeric.cuh"
#include "hopper/ptx.cuh"

namespace flashdma_bwd::hopper {

/// The bits from `low` on, and those below `high`, of 32.
__device__ __forceinline__ std::uint32_t bits_from(int low) {
  return low <= 0 ? 0xffffffffu : low >= 32 ? 0u : 0xffffffffu << low;
}
__device__ __forceinline__ std::uint32_t bits_below(int high) {
  return ~bits_from(high);
}

/// The queries that see a key, as causality, a window and the end of the keys leave them: [low, high) relative to the
/// tile's first. Keys past the end lie at kPastEnd.
struct VisibleQueries {
  int low;
  int high;
  __device__ __forceinline__ VisibleQueries(const Limits& limits, int position, int first_query)
      : low(position == kPastEnd ? 0 : position - limits.high - first_query),
        high(position == kPastEnd ? 0 : position - limits.low + 1 - first_query) {}
};

/// Mask bits of a warp's 16 keys: a word holds them for query 32 w + lane.
template <int M>
struct MaskColumns {
  std::uint32_t keys[M / 32];

  /// `words`: of the key atom, the tile's first query's and those behind it; a bit is a key.
  __device__ __forceinline__ void read(const std::uint64_t* words, int warp, int lane) {
    const auto* sixteen_keys = reinterpret_cast<const std::uint16_t*>(words + lane) + warp;
#pragma unroll
    for (int w = 0; w < M / 32; ++w) keys[w] = __ldg(sixteen_keys + 4 * 32 * w);
  }

  /// The queries 32 w ... 32 w + 31 that see a lane's key `half`. A ballot turns the bits of a key into a word.
  __device__ __forceinline__ std::uint32_t queries_of_key(int w, int half, int lane) const {
    std::uint32_t mine = 0;
#pragma unroll
    for (int key = 0; key < 8; ++key) {
      const std::uint32_t word = __ballot_sync(0xffffffffu, (keys[w] >> (half * 8 + key) & 1u) != 0);
      if (lane / 4 == key) mine = word;
    }
    return mine;
  }
};

/// Clears the probabilities of a lane's key `half` with those of the queries 32 w ... 32 w + 31 whose bit is 0.
template <int Count>
__device__ __forceinline__ void keep_visible(float (&p)[Count], std::uint32_t queries, int w, int half, int lane) {
  const std::uint32_t word = queries >> (lane % 4 * 2);
#pragma unroll
  for (int block = 0; block < 4; ++block)
#pragma unroll
    for (int e = 0; e < 2; ++e)
      if ((word >> (block * 8 + e) & 1u) == 0) p[(w * 4 + block) * 4 + half * 2 + e] = 0.0f;
}

/// Clears the probabilities of a lane's key `half` with the queries that do not see it, by selection: their scores may
/// have overflowed. `mask` counts where `masked`, and is of the queries from 32 `first_word` on. All lanes of the warp.
template <int Count, int M>
__device__ __forceinline__ void hide_pairs(float (&p)[Count], const MaskColumns<M>& mask, bool masked,
                                           const VisibleQueries& visible, int half, int lane, int first_word = 0) {
#pragma unroll
  for (int w = 0; w < M / 32; ++w) {
    const int first = 32 * (first_word + w);
    std::uint32_t queries = bits_from(visible.low - first) & bits_below(visible.high - first);
    if (masked) queries &= mask.queries_of_key(w, half, lane);
    keep_visible(p, queries, first_word + w, half, lane);
  }
}

/// Reads a warp's share of a tile of biases, [queries][keys] in panels of 64 keys: stmatrix's way back.
template <DataType Type>
struct BiasFragments {
  std::uint32_t rows;  ///< shared address of the lane's row of 8 keys
  int row_bytes;
  std::uint32_t lowest = 0;  ///< of the biases that were read, packed

  /// Biases of the k-th 16 queries, packed in pairs of queries: [query 8-block][key half].
  __device__ __forceinline__ void read(int k, std::uint32_t (&words)[4]) {
    ptx::ldmatrix_x4_trans(words, rows + k * 16 * row_bytes);
#pragma unroll
    for (int i = 0; i < 4; ++i) lowest = packed_min<Type>(lowest, words[i]);
  }
  /// Whether one of the lane's is minus infinity.
  __device__ __forceinline__ bool masks() const {
    const float2 both = unpack<Type>(lowest);
    return both.x == -INFINITY || both.y == -INFINITY;
  }
  /// Clears the probabilities of the pairs whose bias is minus infinity, by selection: their scores may have
  /// overflowed.
  template <int Count>
  __device__ __forceinline__ void hide(float (&p)[Count]) {
#pragma unroll
    for (int k = 0; k < Count / 8; ++k) {
      std::uint32_t words[4];
      read(k, words);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 bias = unpack<Type>(words[i]);
        if (bias.x == -INFINITY) p[k * 8 + i * 2] = 0.0f;
        if (bias.y == -INFINITY) p[k * 8 + i * 2 + 1] = 0.0f;
      }
    }
  }
};

/// Scores to probabilities: softcap, bias, exponential. `lse`: shared address of the LSE of the lane's first query.
/// `key_bias`: of the lane's two keys, in units of log2. `tile_bias`: a BiasFragments, or anything without one.
/// Softcap: `slopes` become 1 - tanh^2 of pairs of queries, packed.
template <KernelConfig kConfig, int Count, class TileBias, class Slopes>
__device__ __forceinline__ void exponentiate(const BackwardParameters& p, float (&s)[Count], std::uint32_t lse,
                                             const float (&key_bias)[2], TileBias&& tile_bias, Slopes& slopes) {
  constexpr DataType kType = kConfig.data_type;
  constexpr bool kSoftcap = kConfig.softcap;
  const float to_log2 = p.score_log2;
  const float to_cap = p.scale_by_softcap;
  std::uint32_t bias_words[4];
#pragma unroll
  for (int j = 0; j < Count / 4; ++j) {
    const float2 column = ptx::ld_shared_v2(lse + j * 32);
    if constexpr (kConfig.bias == BiasKind::tile)
      if (j % 2 == 0) tile_bias.read(j / 2, bias_words);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float2 offset = {-column.x, -column.y};
      if constexpr (kConfig.bias == BiasKind::key_vector)
        offset = {key_bias[half] - column.x, key_bias[half] - column.y};
      if constexpr (kConfig.bias == BiasKind::tile) {
        const float2 bias = unpack<kType>(bias_words[j % 2 * 2 + half]);
        offset = {fmaf(bias.x, kLog2E, offset.x), fmaf(bias.y, kLog2E, offset.y)};
      }
      float& x = s[j * 4 + half * 2];
      float& y = s[j * 4 + half * 2 + 1];
      if constexpr (kSoftcap) {
        x = tanh_accurate(x * to_cap);
        y = tanh_accurate(y * to_cap);
        slopes[j][half] = pack<kType>(1.0f - x * x, 1.0f - y * y);
      }
      x = ptx::ex2(fmaf(x, to_log2, offset.x));
      y = ptx::ex2(fmaf(y, to_log2, offset.y));
    }
  }
}

/// Elements from the bias's first to that of an item's head.
__device__ __forceinline__ std::int64_t bias_head_offset(const BackwardParameters& p, const KeyItem& item, int head) {
  return item.batch * p.bias.stride_batch + (head / p.bias.heads_per_head) * p.bias.stride_head;
}

/// A key bias; 0 past the end of the keys.
template <DataType Type>
__device__ __forceinline__ float key_bias_of(const BackwardParameters& p, const KeyItem& item, int head, int key) {
  if (key == kPastEnd) return 0.0f;
  const std::int64_t element = bias_head_offset(p, item, head) + key * p.bias.stride_column;
  return p.bias_is_float ? static_cast<const float*>(p.bias.data)[element]
                         : to_float<Type>(static_cast<const std::uint16_t*>(p.bias.data)[element]);
}

}  // namespace flashdma_bwd::hopper
