// The arithmetic on a warpgroup's share of S^T and dP^T: 64 keys x block_m queries in wgmma's accumulators.
//
// Element i of a lane is key row `lane / 4 + 8 (i / 2 % 2)` of its warp's 16 and query `8 (i / 4) + 2 (lane % 4) + i %
// 2` of the tile: a lane has two keys, and of every 8 queries two.
#pragma once

#include "common/numeric.cuh"
#include "common/parameters.hpp"
#include "common/visibility.hpp"
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

/// A tile bias of one (batch, head).
template <DataType Type>
struct TileBias {
  const std::uint16_t* data;
  std::int64_t stride_row;
  int stride_column;  ///< 0 or 1
  int queries;
  int keys;

  /// The biases of two neighbouring queries with a key, packed; 0 outside.
  __device__ __forceinline__ std::uint32_t load(int query, int key) const {
    if (key >= keys || query >= queries) return 0;
    const std::uint16_t* first = data + query * stride_row + key * stride_column;
    const std::uint32_t low = __ldg(first);
    return query + 1 < queries ? low | static_cast<std::uint32_t>(__ldg(first + stride_row)) << 16 : low;
  }
};

/// Where the dS of a tile bias goes, for one (batch, head).
template <DataType Type>
struct TileBiasGradient {
  void* data;  ///< at the head's first element
  std::int64_t stride_row;
  std::int64_t stride_column;
  BiasGradient kind;
  int queries;
  int keys;

  __device__ __forceinline__ void add(int query, int key, float value) const {
    if (query >= queries || key >= keys) return;
    const std::int64_t offset = query * stride_row + key * stride_column;
    if (kind == BiasGradient::store_16bit)
      static_cast<std::uint16_t*>(data)[offset] = from_float<Type>(value);
    else if (kind == BiasGradient::store_float)
      static_cast<float*>(data)[offset] = value;
    else if (value != 0.0f)
      ptx::red_add(static_cast<float*>(data) + offset, value);
  }
};

}  // namespace flashdma_bwd::hopper
