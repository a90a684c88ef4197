// What the warps have in common that add to global memory what consumers which own a gradient each hand over of dQ.
#pragma once

#include "hopper/geometry.cuh"
#include "hopper/ptx.cuh"

namespace flashdma_bwd::hopper::owners {

/// `Geometry`: of the kernel. A consumer hands a share of its step's dQ over in parts, by way of one buffer.
template <class Geometry>
class DQueryReducer {
 protected:
  using G = Geometry;
  using State = typename G::State;
  static constexpr int kRowBlocks = 4;  ///< of 16 queries in a share; each lies together in the scratch

  __device__ __forceinline__ DQueryReducer(const BackwardParameters& parameters, std::uint32_t shared,
                                           State& shared_state)
      : p(parameters), shared_(shared), state(shared_state) {}

  /// Until the consumer has handed a part over, for the `use`-th time, which copies can read then.
  __device__ __forceinline__ void wait_for_part(int role, int use) const {
    ptx::mbarrier_wait_parity(ptx::shared_address(&state.d_query_full[role]), use & 1);
    ptx::fence_proxy_async();  // instead of by the consumer, see ptx.cuh
  }
  __device__ __forceinline__ void give_back(int role) const {
    ptx::mbarrier_arrive(ptx::shared_address(&state.d_query_empty[role]));
  }
  /// Gives the buffer back when the copies from it have read it. All lanes.
  __device__ __forceinline__ void give_back_when_read(int role, int lane) const {
    if (lane < kRowBlocks) ptx::cp_async_bulk_wait_group_read();
    __syncwarp();
    if (lane == 0) give_back(role);
  }

  struct StepPlace {
    int first_query;
    int head;
  };
  /// Read by the lane that gives the buffers back, after which the loader may write of another step.
  __device__ __forceinline__ StepPlace place_of(int step, int lane) const {
    StepPlace place{};
    if (lane == 0) {
      const auto& info = state.steps[static_cast<unsigned>(step) % kStepSlots];
      place = {info.first_query, info.head};
    }
    return {__shfl_sync(0xffffffffu, place.first_query, 0), __shfl_sync(0xffffffffu, place.head, 0)};
  }
  /// In the scratch.
  __device__ __forceinline__ std::int64_t row_of(const StepPlace& step) const {
    return scratch_row_of(state.item, p, step.head) + step.first_query;
  }

  /// Deterministic mode: how many smaller items add to the step's queries.
  __device__ __forceinline__ int items_before(const StepPlace& step) const {
    const std::int64_t list =
        (static_cast<std::int64_t>(state.item.batch) * p.list_heads + step.head / p.list_heads_per_head) * p.key_tiles +
        state.item.key_tile;
    return p.list_ranks[list * p.query_tiles + step.first_query / G::kM];
  }

  /// Starts the addition of a part that is there to rows `row` on of the scratch and columns `column` on.
  __device__ __forceinline__ void add(std::int64_t row, int column, int role, int lane) const {
    constexpr int kBytes = G::kDQueryPartBytes / kRowBlocks;
    if (lane >= kRowBlocks) return;
    ptx::cp_reduce_async_bulk_add(p.d_q_scratch + (row + lane * 16) * G::kD + column / 8 * kAtomFloats,
                                  shared_ + G::kDQuery + (role * kRowBlocks + lane) * kBytes, kBytes, ptx::kEvictLast);
    ptx::cp_async_bulk_commit_group();
  }
  /// Shared memory must outlive the copies.
  __device__ __forceinline__ void finish(int lane) const {
    if (lane < kRowBlocks) ptx::cp_async_bulk_wait_group();
  }

  const BackwardParameters& p;
  std::uint32_t shared_;
  State& state;
};

}  // namespace flashdma_bwd::hopper::owners
