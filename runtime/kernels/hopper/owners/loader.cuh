// What the loading threads of a CTA have in common whose consumer warpgroups own a gradient each: they walk through the
// item's steps, one for Q and one for dO.
#pragma once

#include "hopper/ptx.cuh"
#include "hopper/tensor_maps.hpp"
#include "hopper/tile_place.cuh"

namespace flashdma_bwd::hopper::owners {

/// `Geometry`: of the kernel.
template <class Geometry>
class Loader {
 protected:
  using G = Geometry;
  using State = typename G::State;
  using QueryTile = typename G::QueryTile;

  __device__ __forceinline__ Loader(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                    std::uint32_t shared, State& shared_state)
      : p(parameters), maps(tensor_maps), shared_(shared), state(shared_state) {}

  /// Calls visit(index, head, step) for every step.
  template <class Visit>
  __device__ __forceinline__ void walk_steps(HeadWalk& walk, Visit&& visit) {
    int index = 0;
    for (int h = 0; h < p.heads_per_item; ++h) {
      // The first was found with the item.
      if (h > 0) find_head(walk, state.item, p, h, G::kM, G::kN);
      for (int i = 0; i < walk.count; ++i) visit(index++, walk.head, step_of(walk, i));
    }
  }

  /// The same of a warp's first lane; all lanes call beside(index) behind each step.
  template <class Visit, class Beside>
  __device__ __forceinline__ void walk_steps_as_warp(HeadWalk& walk, int lane, Visit&& visit, Beside&& beside) {
    int index = 0;
    for (int h = 0; h < p.heads_per_item; ++h) {
      if (h > 0 && lane == 0) find_head(walk, state.item, p, h, G::kM, G::kN);
      __syncwarp();
      const int count = walk.count;
      for (int i = 0; i < count; ++i, ++index) {
        if (lane == 0) visit(index, walk.head, step_of(walk, i));
        __syncwarp();
        beside(index);
      }
      __syncwarp();
    }
  }

  __device__ __forceinline__ TilePlace place_of(int first_query, int head) const {
    return place_of_queries(p, state.item, first_query, head);
  }

  /// The LSE or D of a tile's queries into a stage of their buffers at `offset`.
  __device__ __forceinline__ void load_statistics(const CUtensorMap& map, int offset, int stage, std::uint32_t full,
                                                  const TilePlace& place) const {
    ptx::cp_async_bulk_tensor_2d(shared_ + offset + stage * G::kM * 4, map, {place.statistics_row, place.head}, full);
  }

  /// Starts to load a tile of a KV head's K or V from `position` on and a column on.
  template <class Tile>
  __device__ __forceinline__ void load_key_tile(const CUtensorMap& map, int offset, std::uint32_t full, int head,
                                                int position, int first_column = 0) const {
    const KeyItem& item = state.item;
    const SequenceRows& s = item.sequence;
    const int batch = p.cu_seqlens_k != nullptr ? 0 : item.batch;
#pragma unroll 1
    for (int panel = 0; panel < Tile::kPanels; ++panel)
      ptx::cp_async_bulk_tensor_5d(
          shared_ + offset + panel * Tile::kPanelBytes, map,
          {start_inside(first_column + panel * Tile::kPanelColumns, p.head_dim, 0), p.seqlen_k - s.length_k + position,
           static_cast<int>(s.row_k) + s.length_k, head, batch},
          full, ptx::kEvictFirst);
  }

  const BackwardParameters& p;
  const TensorMaps& maps;
  std::uint32_t shared_;
  State& state;
};

}  // namespace flashdma_bwd::hopper::owners
