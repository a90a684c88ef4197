// The zeros of a tile bias's gradient, where no step goes.
#pragma once

#include "hopper/geometry.cuh"
#include "hopper/ptx.cuh"

namespace flashdma_bwd::hopper {

/// Writes zeros for the keys of an item with the query tiles that take no step with them. One warp, beside those that
/// work at the CTA's own item; of `kCtas` CTAs that share an item each takes its part of the rows.
///
/// The keys are those of the item at the other end of the keys: with causality the first keys have the most steps and
/// the fewest zeros, and the last ones the fewest steps and the most zeros.
template <int kM, int kN, int kCtas = 1>
class BiasGradientClearer {
 public:
  /// `own`: the CTA's item, which may have no keys.
  __device__ __forceinline__ BiasGradientClearer(const BackwardParameters& parameters, const KeyItem& own_item,
                                                 ClearedItem& cleared_item, int cta_rank = 0)
      : p(parameters), own(own_item), cleared(cleared_item), rank(cta_rank) {}

  /// Comes before the first tile.
  __device__ __forceinline__ void start() {
    if (ptx::fresh_thread_index() % 32 == 0) {
      KeyItem& item = cleared.item;
      item.key_tile = p.key_tiles - 1 - own.key_tile;
      item.head_item = own.batch * p.head_items + own.head_item;
      take_whole(item);
      if (!find_placed_item(item, p, kN)) item.keys = 0;
    }
    __syncwarp();
    start_head(0);
  }

  /// Clears a tile of queries at most, in little time. False: there is none any more.
  __device__ __forceinline__ bool clear_some() {
    const HeadWalk& walk = cleared.walk;
    if (tile_ < gap_end_) {
      clear_rows(tile_++ * kM);
    } else if (slot_ < walk.count) {
      const int steps = walk.entries == nullptr ? walk.count : 1;  // whose tiles come without a gap
      tile_ += steps;
      slot_ += steps;
      find_gap_end();
    } else {
      const int next = walk.head - first_head() + 1;
      if (next == p.heads_per_item) return false;
      __syncwarp();
      start_head(next);
    }
    return true;
  }

  __device__ __forceinline__ void run() {
    start();
    while (clear_some()) {
    }
  }

 private:
  __device__ __forceinline__ int first_head() const { return own.head_item * p.heads_per_item; }

  __device__ __forceinline__ void start_head(int h) {
    HeadWalk& walk = cleared.walk;
    if (ptx::fresh_thread_index() % 32 == 0) {
      walk.head = first_head() + h;
      walk.count = 0;
      if (cleared.item.keys > 0) find_head(walk, cleared.item, p, h, kM, kN);
    }
    __syncwarp();
    tile_ = 0;
    slot_ = 0;
    find_gap_end();
  }

  /// The slots' tiles ascend; behind the last one the queries end.
  __device__ __forceinline__ void find_gap_end() {
    const HeadWalk& walk = cleared.walk;
    gap_end_ = slot_ == walk.count       ? p.query_tiles
               : walk.entries == nullptr ? walk.begin + slot_
                                         : query_tile_of(__ldg(walk.entries + slot_));
  }

  /// A tile of queries.
  __device__ __forceinline__ void clear_rows(int first) const {
    constexpr int kLanesOfRow = kN / 8;  // each clears 16 bytes of a row
    constexpr int kRowsAtOnce = 32 / kLanesOfRow;
    static_assert(kM % (kRowsAtOnce * kCtas) == 0);
    const int lane = ptx::fresh_thread_index() % 32;
    const int column = (p.key_tiles - 1 - own.key_tile) * kN + lane % kLanesOfRow * 8;
    const int columns = p.seqlen_k - column;  // to the tensor's end
    const int end = min(first + kM, p.seqlen_q);
    int row = first + rank * kRowsAtOnce + lane / kLanesOfRow;
    std::uint16_t* at = static_cast<std::uint16_t*>(p.d_bias.data) + own.batch * p.d_bias.stride_batch +
                        cleared.walk.head * p.d_bias.stride_head + row * p.d_bias.stride_row + column;
    constexpr int kStep = kRowsAtOnce * kCtas;
    const std::int64_t step = kStep * p.d_bias.stride_row;
    if (columns >= 8) {
      // One warp has to keep up with eight, so few instructions a store; four addresses computed ahead would spill.
#pragma unroll 4
      for (; row < end; row += kStep, at = ptx::opaque(at + step))
        __stcs(reinterpret_cast<uint4*>(at), uint4{0, 0, 0, 0});
    } else {
      for (; row < end; row += kStep, at += step)
        for (int c = 0; c < columns; ++c) at[c] = 0;
    }
  }

  const BackwardParameters& p;
  const KeyItem& own;
  ClearedItem& cleared;
  int rank;
  int slot_ = 0;     ///< of the walk: the step behind the gap
  int tile_ = 0;     ///< the next in the gap
  int gap_end_ = 0;  ///< behind its last tile
};

}  // namespace flashdma_bwd::hopper
