// The producer's fourth warp where a CTA takes several items: it finds them, and writes the zeros of dK and dV of those
// that have keys, but no steps.
#pragma once

#include "common/item.cuh"
#include "hopper/geometry.cuh"
#include "hopper/ptx.cuh"
#include "hopper/start_item.cuh"

namespace flashdma_bwd::hopper {

/// Zeros for an item's keys in rows of `kChunks` 16-byte chunks a lane, `stride` elements apart; `rows`: the lane's
/// first chunk of the sequence's first key. One warp, whose stores follow each other at once: what comes next waits for
/// them, and a warp beside others issues an instruction in some 16 clocks. Where the keys are neighbours a store takes
/// three.
template <int kChunks, int kLanesOfRow, class Element>
__device__ __forceinline__ void clear_rows(const KeyItem& item, Element* rows, std::int64_t stride) {
  const std::int32_t* const active = item.active;
  const int first_position = item.first_position;
  const int keys = item.keys;
  constexpr int kRowsAtOnce = 32 / kLanesOfRow;
  const int first_row = ptx::fresh_thread_index() % 32 / kLanesOfRow;
  const auto clear = [](Element* row) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) reinterpret_cast<uint4*>(row)[chunk] = uint4{0, 0, 0, 0};
  };
  if (active == nullptr) {
    Element* at = rows + (first_position + first_row) * stride;
    const std::int64_t step = kRowsAtOnce * stride;
#pragma unroll 8
    for (int left = (keys - first_row + kRowsAtOnce - 1) / kRowsAtOnce; left > 0; --left, at += step) clear(at);
    return;
  }
#pragma unroll 2
  for (int row = first_row; row < keys; row += kRowsAtOnce)
    if (const int key = active[row]; key != kPastEnd) clear(rows + key * stride);
}

/// Writes zeros for an item's keys. One warp.
template <int kD>
__device__ __forceinline__ void clear_key_gradients(const BackwardParameters& p, const KeyItem& item) {
  constexpr int kLanesOfRow = kD <= 32 ? 4 : kD <= 64 ? 8 : 16;  // each clears eight columns
  const int column = ptx::fresh_thread_index() % kLanesOfRow * 8;
  if (column >= p.head_dim) return;
  if (p.d_k_partial != nullptr) {
    clear_rows<2, kLanesOfRow>(item, partial_rows(p, item, false) + column, p.head_dim);
    clear_rows<2, kLanesOfRow>(item, partial_rows(p, item, true) + column, p.head_dim);
  } else {
    clear_rows<1, kLanesOfRow>(item, key_row_address(p, item, p.d_k, 0) + column, p.d_k.stride_row);
    clear_rows<1, kLanesOfRow>(item, key_row_address(p, item, p.d_v, 0) + column, p.d_v.stride_row);
  }
}

/// Finds the next item when the loader asks for it. One warp.
template <KernelConfig kConfig>
class ItemFinder {
  using G = Geometry<kConfig>;
  using State = typename G::State;

 public:
  __device__ __forceinline__ ItemFinder(const BackwardParameters& parameters, State& shared_state)
      : p(parameters), state(shared_state) {}

  __device__ __forceinline__ void run() {
    static_assert(G::kItemSlots == 2);
    while (true) {
      ptx::mbarrier_wait_parity_long(ptx::shared_address(&state.item_wanted), state.wanted_slot);
      const bool found = find();
      __syncwarp();
      if (ptx::fresh_thread_index() % 32 == 0) {
        ptx::mbarrier_arrive(ptx::shared_address(&state.item_full[state.wanted_slot]));
        state.wanted_slot ^= 1;
      }
      __syncwarp();
      if (!found) return;
    }
  }

 private:
  /// The next item with steps. False: there is none any more.
  __device__ __forceinline__ bool find() {
    while (true) {
      if (ptx::fresh_thread_index() % 32 == 0) {
        const int slot = state.wanted_slot;
        state.ticket = ptx::atom_add_relaxed(p.ticket, 1);
        bool found = state.ticket < p.ctas;
        if (found) {
          find_item_and_steps<G::kM, G::kN, true>(state.items[slot], state.walks[slot], state.step_counts[slot], p,
                                                  state.ticket);
          // A work table leaves out items without keys, and what is idle lies at its end.
          ptx::reread_memory();
          found = state.ticket < p.whole_items || state.items[slot].keys > 0;
        }
        if (!found) state.step_counts[slot] = kNoItem;
      }
      __syncwarp();
      const int steps = state.step_counts[state.wanted_slot];
      if (steps != 0) return steps != kNoItem;
      clear_key_gradients<G::kD>(p, state.items[state.wanted_slot]);
      __syncwarp();
    }
  }

  const BackwardParameters& p;
  State& state;
};

}  // namespace flashdma_bwd::hopper
