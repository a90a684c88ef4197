// The arithmetic on a warp's share of a score tile: scores to probabilities, masking, dS, and the bias's gradient.
//
// Element (m, n, i) of the accumulators is query row `first_row + 16 m + 8 (i / 2) + lane / 4` and key column
// `first_column + 8 n + 2 (lane % 4) + i % 2` of the tile.
#pragma once

#include "ampere/geometry.cuh"
#include "common/numeric.cuh"
#include "common/parameters.hpp"
#include "common/visibility.hpp"

namespace flashdma_bwd::ampere {

/// Whose share of which tile.
struct WarpShare {
  int lane;
  int first_row;     ///< of the warp, in the tile
  int first_column;  ///< of the warp, in the tile
  __device__ __forceinline__ int row(int m, int half) const { return first_row + m * 16 + half * 8 + lane / 4; }
  __device__ __forceinline__ int column(int n) const { return first_column + n * 8 + lane % 4 * 2; }
};

/// Statistics of the warp's rows.
template <int MBlocks>
__device__ __forceinline__ void read_rows(float (&values)[MBlocks][2], const float* shared, const WarpShare& share) {
#pragma unroll
  for (int m = 0; m < MBlocks; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) values[m][half] = shared[share.row(m, half)];
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

/// Whether two keys can be one 32-bit word of a row that starts at one. In the compacted layout they need not be
/// neighbours.
__device__ __forceinline__ bool is_aligned_pair(int2 key) {
  return key.x % 2 == 0 && key.y == key.x + 1;
}

/// A tile bias of one (batch, head).
template <DataType Type>
struct TileBias {
  const std::uint16_t* data;
  std::int64_t stride_row;
  int stride_column;  ///< 0 or 1
  bool pairs_aligned;
  int queries;
  int keys;

  /// The biases of two keys, packed; 0 outside.
  __device__ __forceinline__ std::uint32_t load(int query, int2 key) const {
    if (query >= queries || key.x >= keys) return 0;
    const std::uint16_t* row = data + query * stride_row;
    const std::uint16_t* address = row + key.x * stride_column;
    if (pairs_aligned && is_aligned_pair(key) && key.y < keys)
      return __ldg(reinterpret_cast<const std::uint32_t*>(address));
    const std::uint32_t low = __ldg(address);
    return key.y < keys ? low | static_cast<std::uint32_t>(__ldg(row + key.y * stride_column)) << 16 : low;
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

  __device__ __forceinline__ void add_pair(int query, int2 key, float low, float high, bool aligned) const {
    if (kind == BiasGradient::store_16bit && aligned && is_aligned_pair(key) && query < queries && key.y < keys) {
      *reinterpret_cast<std::uint32_t*>(static_cast<std::uint16_t*>(data) + query * stride_row + key.x) =
          pack<Type>(low, high);
      return;
    }
    add(query, key.x, low);
    add(query, key.y, high);
  }
};

/// Sums over the queries of the tile, one key a lane, kept in registers through the loop: the gradient of a key-vector
/// bias. Each tile costs a butterfly that halves the values a lane carries at every step, so that no lane carries all
/// columns.
template <int NBlocks>
struct ColumnSums {
  static constexpr int kValues = NBlocks * 2;                   ///< columns of a lane before the butterfly
  static constexpr int kKept = kValues >= 8 ? kValues / 8 : 1;  ///< after it
  float sum[kKept];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kKept; ++i) sum[i] = 0.0f;
  }

  /// Adds the column sums of a tile; destroys `v`, whose value 2 n + e is the lane's sum over its rows of column (n,
  /// e).
  __device__ __forceinline__ void add(float (&v)[kValues], int lane) {
    int count = kValues;
#pragma unroll
    for (int mask = 16; mask >= 4; mask /= 2) {
      if (count > 1) {
        count /= 2;
        const bool upper = (lane & mask) != 0;
#pragma unroll
        for (int i = 0; i < kValues / 2; ++i)
          if (i < count) {
            const float mine = upper ? v[i + count] : v[i];
            const float other = upper ? v[i] : v[i + count];
            v[i] = mine + __shfl_xor_sync(0xffffffffu, other, mask);
          }
      } else {
        v[0] += __shfl_xor_sync(0xffffffffu, v[0], mask);
      }
    }
#pragma unroll
    for (int i = 0; i < kKept; ++i) sum[i] += v[i];
  }

  /// The column, relative to the warp's first, of `sum[i]`.
  static __device__ __forceinline__ int column(int lane, int i) {
    int value = i;
    int count = kValues;
#pragma unroll
    for (int mask = 16; mask >= 4; mask /= 2)
      if (count > 1) {
        count /= 2;
        if ((lane & mask) != 0) value += count;
      }
    return value / 2 * 8 + lane % 4 * 2 + value % 2;
  }
  /// Whether this lane is the one that owns its columns: with few columns several lanes hold the same sum.
  static __device__ __forceinline__ bool owns(int lane) {
    return kValues >= 8 || (lane & (kValues == 4 ? 4 : 12)) == 0;
  }
};

}  // namespace flashdma_bwd::ampere
