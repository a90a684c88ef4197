// A tile bias, of a row per query and a column per key: reading it in pairs, and where its gradient, dS, goes.
#pragma once

#include "common/numeric.cuh"
#include "common/parameters.hpp"

namespace flashdma_bwd {

/// Whether two keys can be one 32-bit word of a row that starts at one. In a plan's order they need not be neighbours,
/// and one past the end need not be the second.
__device__ __forceinline__ bool is_aligned_pair(int2 key) {
  return key.x % 2 == 0 && key.y == key.x + 1;
}

/// A tile bias of one (batch, head). A pair is what two neighbouring accumulators of a lane need.
template <DataType Type>
struct TileBias {
  const std::uint16_t* data;
  std::int64_t stride_row;
  int stride_column;  ///< 0 or 1
  int queries;
  int keys;

  /// The biases of a query with two keys, packed; 0 outside. `aligned`: two neighbouring keys can be read as one 32-bit
  /// word.
  __device__ __forceinline__ std::uint32_t load(int query, int2 key, bool aligned) const {
    if (query >= queries) return 0;
    const std::uint16_t* row = data + query * stride_row;
    if (aligned && is_aligned_pair(key) && key.y < keys)
      return __ldg(reinterpret_cast<const std::uint32_t*>(row + key.x));
    const std::uint32_t low = key.x < keys ? __ldg(row + key.x * stride_column) : 0u;
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

  /// Adds those of a query with two keys. `aligned`: two neighbouring keys can be stored as one 32-bit word.
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

}  // namespace flashdma_bwd
