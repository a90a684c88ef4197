// The backward kernel of the Hopper family with transposed gradients: a CTA takes an item of 96 keys with a head dim
// of 192.
//
// It has a producer warpgroup (producer.cuh) and two consumer warpgroups with a gradient each (value_owner.cuh,
// key_owner.cuh), which meet at barrier objects in shared memory.
#pragma once

#include "hopper/gather_keys.cuh"
#include "hopper/start_item.cuh"
#include "hopper/transposed/key_owner.cuh"
#include "hopper/transposed/producer.cuh"
#include "hopper/transposed/value_owner.cuh"

namespace flashdma_bwd::hopper::transposed {

template <KernelConfig kConfig>
class Backward {
  using G = Geometry<kConfig>;
  using State = typename G::State;

 public:
  __device__ __forceinline__ Backward(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                      unsigned char* shared)
      : p(parameters),
        maps(tensor_maps),
        shared_(ptx::shared_address(shared)),
        state(*reinterpret_cast<State*>(shared + G::kState)) {}

  __device__ __forceinline__ void run() {
    // Several warps at once: until all is there nothing can be loaded.
    if (threadIdx.x == 64) prefetch_maps(maps);
    if (threadIdx.x == 32) initialise_barriers();
    if (threadIdx.x == 0) {
      // In deterministic mode a CTA waits for those with smaller items, so items must start in order.
      const int index = p.ticket != nullptr ? atomicAdd(p.ticket, 1) : static_cast<int>(blockIdx.x);
      find_item_and_steps<G::kM, G::kN>(state.item, state.query_walk, state.step_count, p, index);
      state.d_out_walk = state.query_walk;
    }
    __syncthreads();
    if (state.item.keys <= 0) return;
    if (state.item.active != nullptr) gather_keys();
    // The same for all threads of a warpgroup, and seen to be by the compiler.
    const int warpgroup = ptx::uniform(static_cast<int>(threadIdx.x) / kWarpgroupThreads);
    if (warpgroup == 0) {
      ptx::setmaxnreg_dec<G::kTile.producer_registers>();
      const int warp = ptx::uniform(static_cast<int>(threadIdx.x) / 32);
      if (warp >= 2)
        DQueryReducer<kConfig>(p, shared_, state, warp - 2).run();
      else if (threadIdx.x % 32 == 0) {
        if (warp == 0)
          QueryLoader<kConfig>(p, maps, shared_, state).run();
        else
          DOutLoader<kConfig>(p, maps, shared_, state).run();
      }
    } else {
      ptx::setmaxnreg_inc<G::kTile.consumer_registers>();
      // A sequence's last keys are often few.
      if (ptx::uniform(state.item.keys) <= kFewKeys)
        consume<kFewKeys>(warpgroup);
      else
        consume<G::kN>(warpgroup);
    }
  }

 private:
  static constexpr int kFewKeys = 32;

  template <int kKeys>
  __device__ __forceinline__ void consume(int warpgroup) const {
    if (warpgroup == 1)
      ValueOwner<kConfig, kKeys>(p, maps, shared_, state).run();
    else
      KeyOwner<kConfig, kKeys>(p, maps, shared_, state).run();
  }

  /// Loads the K and V rows that a compacted mask scatters: the copy engine cannot.
  __device__ __forceinline__ void gather_keys() const {
    gather_key_rows<typename G::KeyTile, G::kThreads>(p, state.item, p.k, 0, 0, shared_ + G::kKey);
    gather_key_rows<typename G::ValueTile, G::kThreads>(p, state.item, p.v, 0, 0, shared_ + G::kValue);
    if (threadIdx.x < G::kN) state.positions[threadIdx.x] = position_of_row(state.item, static_cast<int>(threadIdx.x));
    finish_gathering();
    __syncthreads();
    if (threadIdx.x == 0) {
      ptx::mbarrier_arrive(ptx::shared_address(&state.key_full));
      ptx::mbarrier_arrive(ptx::shared_address(&state.value_full));
    }
  }

  __device__ __forceinline__ void initialise_barriers() const {
    const auto initialise = [](std::uint64_t& barrier, int arrivals) {
      ptx::mbarrier_init(ptx::shared_address(&barrier), arrivals);
    };
    constexpr int kWarps = 4;  // of a consumer warpgroup, each of which arrives
    // Loads: one arrival, which announces their bytes.
    initialise(state.key_full, 1);
    initialise(state.value_full, 1);
    for (int i = 0; i < G::kQueryStages; ++i) {
      initialise(state.query_full[i], 1);
      initialise(state.query_empty[i], 2 * kWarps);
    }
    for (int i = 0; i < G::kDOutStages; ++i) {
      initialise(state.d_out_full[i], 1);
      initialise(state.d_out_empty[i], 2 * kWarps);
    }
    initialise(state.operand_full, kWarps);
    initialise(state.operand_empty, kWarps);
    // Every lane: P goes from lane to lane.
    initialise(state.probability_full, kWarpgroupThreads);
    initialise(state.probability_empty, kWarpgroupThreads);
    for (int i = 0; i < G::kDScoreStages; ++i) {
      initialise(state.d_score_full[i], kWarps);
      initialise(state.d_score_empty[i], 2 * kWarps);
    }
    for (int role = 0; role < 2; ++role) {
      initialise(state.d_query_full[role], kWarps);
      initialise(state.d_query_empty[role], 1);
    }
    ptx::fence_mbarrier_init();
  }

  const BackwardParameters& p;
  const TensorMaps& maps;
  std::uint32_t shared_;
  State& state;
};

}  // namespace flashdma_bwd::hopper::transposed
