// The zeros of a tile bias's gradient, where no step goes.
#pragma once

#include "hopper/geometry.cuh"
#include "hopper/ptx.cuh"

namespace flashdma_bwd::hopper {

/// Writes zeros for the keys of an item with the query tiles that take no step with them. One warp, beside those that
/// work at the CTA's own item.
///
/// The keys are those of the item at the other end of the keys: with causality the first keys have the most steps and
/// the fewest zeros, and the last ones the fewest steps and the most zeros.
template <KernelConfig kConfig>
class BiasGradientClearer {
  using G = Geometry<kConfig>;
  using State = typename G::State;

 public:
  __device__ __forceinline__ BiasGradientClearer(const BackwardParameters& parameters, State& shared_state)
      : p(parameters), state(shared_state) {}

  __device__ __forceinline__ void run() {
    const KeyItem& own = state.items[0];
    const int key_tile = p.key_tiles - 1 - own.key_tile;
    const int lane = ptx::fresh_thread_index() % 32;
    if (lane == 0) {
      KeyItem& cleared = state.cleared_item;
      cleared.key_tile = key_tile;
      cleared.head_item = own.batch * p.head_items + own.head_item;
      take_whole(cleared);
      if (!find_placed_item(cleared, p, G::kN)) cleared.keys = 0;
    }
    __syncwarp();
    for (int h = 0; h < p.heads_per_item; ++h) {
      HeadWalk& walk = state.cleared_walk;
      if (lane == 0) {
        walk.count = 0;
        if (state.cleared_item.keys > 0) find_head(walk, state.cleared_item, p, h, G::kM, G::kN);
      }
      __syncwarp();
      clear_gaps(walk, key_tile, own.head_item * p.heads_per_item + h);
      __syncwarp();
    }
  }

 private:
  /// Between the tiles of the walk, which ascend.
  __device__ __forceinline__ void clear_gaps(const HeadWalk& walk, int key_tile, int head) {
    const int lane = ptx::fresh_thread_index() % 32;
    const int column = key_tile * G::kN + lane % kLanesOfRow * 8;
    std::uint16_t* data = static_cast<std::uint16_t*>(p.d_bias.data) + state.items[0].batch * p.d_bias.stride_batch +
                          head * p.d_bias.stride_head + column;
    const int count = walk.count;
    int next = 0;
    for (int slot = 0; slot <= count; ++slot) {
      const int tile = slot == count             ? p.query_tiles
                       : walk.entries == nullptr ? walk.begin + slot
                                                 : query_tile_of(__ldg(walk.entries + slot));
      clear_rows(data, next * G::kM, min(tile * G::kM, p.seqlen_q), p.seqlen_k - column);
      next = tile + 1;
    }
  }

  /// `columns`: from the lane's first to the tensor's end.
  __device__ __forceinline__ void clear_rows(std::uint16_t* data, int first, int end, int columns) {
    constexpr int kRowsAtOnce = 32 / kLanesOfRow;
    int row = first + ptx::fresh_thread_index() % 32 / kLanesOfRow;
    std::uint16_t* at = data + row * p.d_bias.stride_row;
    const std::int64_t step = kRowsAtOnce * p.d_bias.stride_row;
    if (columns >= 8) {
      // One warp has to keep up with eight, so few instructions a store; four addresses computed ahead would spill.
#pragma unroll 4
      for (; row < end; row += kRowsAtOnce, at = ptx::opaque(at + step))
        __stcs(reinterpret_cast<uint4*>(at), uint4{0, 0, 0, 0});
    } else {
      for (; row < end; row += kRowsAtOnce, at += step)
        for (int c = 0; c < columns; ++c) at[c] = 0;
    }
  }

  static constexpr int kLanesOfRow = G::kN / 8;  ///< each clears 16 bytes of a row

  const BackwardParameters& p;
  State& state;
};

}  // namespace flashdma_bwd::hopper
