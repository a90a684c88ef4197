// The producer's fourth warp where a CTA takes several items: it finds them, and writes the zeros of dK and dV of those
// that have keys, but no steps.
#pragma once

#include "common/item.cuh"
#include "hopper/geometry.cuh"
#include "hopper/ptx.cuh"
#include "hopper/start_item.cuh"

namespace flashdma_bwd::hopper {

/// Writes zeros for an item's keys. One warp.
template <int kD>
__device__ __forceinline__ void clear_key_gradients(const BackwardParameters& p, const KeyItem& item) {
  constexpr int kLanesOfRow = kD <= 32 ? 4 : kD <= 64 ? 8 : 16;  // each clears eight columns
  const int lane = ptx::fresh_thread_index() % 32;
  const int column = lane % kLanesOfRow * 8;
  if (column >= p.head_dim) return;
  const auto clear_partial = [&](float* partial, int key) {
    auto* chunk = reinterpret_cast<float4*>(
        partial + (item.head_item * p.key_rows + item.sequence.key_row + key) * p.head_dim + column);
    chunk[0] = chunk[1] = {0.0f, 0.0f, 0.0f, 0.0f};
  };
  const auto clear = [&](const TensorView& tensor, int key) {
    *reinterpret_cast<uint4*>(key_row_address(p, item, tensor, key) + column) = uint4{0, 0, 0, 0};
  };
#pragma unroll 1
  for (int row = lane / kLanesOfRow; row < item.keys; row += 32 / kLanesOfRow) {
    const int key = position_of_row(item, row);
    if (key == kPastEnd) continue;
    if (p.d_k_partial != nullptr) {
      clear_partial(p.d_k_partial, key);
      clear_partial(p.d_v_partial, key);
    } else {
      clear(p.d_k, key);
      clear(p.d_v, key);
    }
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
          find_item_and_steps<G::kM, G::kN>(state.items[slot], state.walks[slot], state.step_counts[slot], p,
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
