// What one thread of a CTA does before the warpgroups part: it asks for the tensor maps and finds the item and its
// steps.
#pragma once

#include "common/item.cuh"
#include "hopper/ptx.cuh"
#include "hopper/tensor_maps.hpp"

namespace flashdma_bwd::hopper {

__device__ __forceinline__ void prefetch_maps(const TensorMaps& maps, bool terms = false) {
  ptx::prefetch_tensormap(maps.q);
  ptx::prefetch_tensormap(maps.d_out);
  ptx::prefetch_tensormap(maps.k);
  ptx::prefetch_tensormap(maps.v);
  ptx::prefetch_tensormap(maps.d_k);
  ptx::prefetch_tensormap(maps.d_v);
  ptx::prefetch_tensormap(terms ? maps.terms : maps.lse);
  if (!terms) ptx::prefetch_tensormap(maps.row_dot);
}

/// Finds the item or piece of the index-th CTA, of `kN` keys, and how many tiles of `kM` queries all its heads take.
/// `item.keys` is 0 if there are no such keys. `walk` is left at the first head. `kWalksHeads`: by walking all heads,
/// as the finder of a CTA's next items does, of whose kernels ptxas makes spills else (d 64 with a key bias).
template <int kM, int kN, bool kWalksHeads = false>
__device__ __forceinline__ void find_item_and_steps(KeyItem& item, HeadWalk& walk, int& step_count,
                                                    const BackwardParameters& p, int index) {
  if (!find_item(item, p, index, kN)) item.keys = 0;
  step_count = 0;
  ptx::reread_memory();
  if (item.keys <= 0) return;
  if constexpr (kWalksHeads) {
    for (int h = 0; h < p.heads_per_item; ++h) {
      find_head(walk, item, p, h, kM, kN);
      step_count += walk.count;
    }
    if (p.heads_per_item > 1) find_head(walk, item, p, 0, kM, kN);
  } else {
    find_head(walk, item, p, 0, kM, kN);
    ptx::reread_memory();
    step_count = steps_of_heads(item, p, walk);
  }
}

}  // namespace flashdma_bwd::hopper
