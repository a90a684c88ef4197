// S^T = K Q^T and dP^T = V dO^T of a warpgroup: the rows of its products are keys.
#pragma once

#include "hopper/ptx.cuh"
#include "hopper/wgmma.cuh"

namespace flashdma_bwd::hopper {

/// Issues `scores` = 64 rows of `keys`, of a tile of K or V, times the transpose of `queries`, of one of Q or dO, as a
/// group of its own, or adds it to them. It takes as many rows of `queries` as `scores` have columns. Both are lower
/// halves of descriptors, and may change places.
template <class KeyTile, class QueryTile, bool kBf16, bool kAdd = false, int kCount>
__device__ __forceinline__ void start_transposed_product(float (&scores)[kCount], std::uint32_t keys,
                                                         std::uint32_t queries) {
  static_assert(kCount <= QueryTile::kRows / 2 && KeyTile::kColumns == QueryTile::kColumns);
  using Product = ptx::Wgmma<kCount * 2, kBf16>;
#pragma unroll
  for (int k = 0; k < KeyTile::kColumns / 16; ++k) {
    const std::uint64_t a = KeyTile::descriptor_of(keys + KeyTile::column_step(k));
    const std::uint64_t b = QueryTile::descriptor_of(queries + QueryTile::column_step(k));
    if (k == 0)
      Product::template ss<false, false, kAdd>(scores, a, b);
    else
      Product::template ss<false, false, true>(scores, a, b);
  }
  ptx::wgmma_commit_group();
}

/// The same with the 64 rows of keys in registers: the A operands of the steps of the reduction.
template <class QueryTile, bool kBf16, bool kAdd = false, int kCount, int kSteps>
__device__ __forceinline__ void start_transposed_product(float (&scores)[kCount],
                                                         const std::uint32_t (&keys)[kSteps][4],
                                                         std::uint32_t queries) {
  static_assert(kCount == QueryTile::kRows / 2 && kSteps == QueryTile::kColumns / 16);
  using Product = ptx::Wgmma<QueryTile::kRows, kBf16>;
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    const std::uint64_t b = QueryTile::descriptor_of(queries + QueryTile::column_step(k));
    if (k == 0)
      Product::template rs<false, kAdd>(scores, keys[k], b);
    else
      Product::template rs<false, true>(scores, keys[k], b);
  }
  ptx::wgmma_commit_group();
}

}  // namespace flashdma_bwd::hopper
