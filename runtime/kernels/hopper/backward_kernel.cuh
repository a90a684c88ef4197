// The backward kernel of the Hopper family (wgmma, TMA, setmaxnreg): compute capability 9.0.
//
// A CTA owns a tile of keys of one (batch, group of query heads) at a time and has a producer warpgroup, whose warps
// load tiles, add dQ to global memory (producer.cuh) and find items (item_finder.cuh) or clear dBias
// (clear_bias_gradient.cuh), and consumer warpgroups, which compute (consumer.cuh). They meet at barrier objects in
// shared memory only.
//
// With `several_items` as many CTAs as run at once take one item after the other, so that an item's keys and first
// queries are loaded under the last steps of the one before; else each CTA takes one item. Short items gain, and long
// ones lose (NOTES.md).
#pragma once

#include "hopper/clear_bias_gradient.cuh"
#include "hopper/consumer/consumer.cuh"
#include "hopper/gather_keys.cuh"
#include "hopper/item_finder.cuh"
#include "hopper/producer.cuh"
#include "hopper/start_item.cuh"

namespace flashdma_bwd::hopper {

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
    if (threadIdx.x == 64) {
      prefetch_maps(maps, G::kStatisticTerms);
      if constexpr (kTileBias) ptx::prefetch_tensormap(maps.bias);
    }
    if (threadIdx.x == 32) {
      initialise_barriers();
      state.wanted_slot = 0;
    }
    if constexpr (!G::kSeveralItems) {
      if (threadIdx.x == 0) find_only_item();
      if (threadIdx.x / 32 == 3 && stages_keys<kConfig>(p)) stage_keys<kConfig>(p, state, static_cast<int>(blockIdx.x));
    }
    __syncthreads();
    // The same for all threads of a warpgroup, and seen to be by the compiler.
    const int warpgroup = ptx::uniform(static_cast<int>(threadIdx.x) / kWarpgroupThreads);
    if (warpgroup == 0) {
      ptx::setmaxnreg_dec<G::kTile.producer_registers>();
      const int warp = ptx::uniform(static_cast<int>(threadIdx.x) / 32);
      if (warp == 0) {
        if (threadIdx.x == 0) Loader<kConfig>(p, maps, shared_, state).run();
      } else if (warp <= G::kConsumers) {
        reduce(warp - 1);
      } else if constexpr (G::kSeveralItems) {
        ItemFinder<kConfig>(p, state).run();
      } else {
        clear();
      }
    } else {
      ptx::setmaxnreg_inc<G::kTile.consumer_registers>();
      consume(warpgroup - 1);
    }
  }

 private:
  static constexpr bool kTileBias = kConfig.bias == BiasKind::tile;

  __device__ __forceinline__ bool stores_bias_gradient() const {
    return kTileBias && p.bias_gradient != BiasGradient::none;
  }

  /// Warps that have to be done with a step's dS, for they store it as dBias.
  __device__ __forceinline__ int bias_gradient_warps() const {
    if (!stores_bias_gradient()) return 0;
    return G::kConsumers + (p.bias_gradient == BiasGradient::store_16bit ? 0 : 1);
  }

  /// Whether dQ is added up here, not computed of dBias by another kernel.
  __device__ __forceinline__ bool adds_d_query() const {
    return !kMultipliesBiasGradient<kConfig> || p.d_q_scratch != nullptr;
  }

  __device__ __forceinline__ void consume(int consumer) {
    if constexpr (kMultipliesBiasGradient<kConfig>)
      if (!adds_d_query()) return Consumer<kConfig, false>(p, maps, shared_, state, consumer).run();
    Consumer<kConfig>(p, maps, shared_, state, consumer).run();
  }
  __device__ __forceinline__ void reduce(int consumer) {
    DQueryReducer<kConfig> reducer(p, maps, shared_, state, consumer);
    if constexpr (kMultipliesBiasGradient<kConfig>)
      if (!adds_d_query()) return reducer.run_without_d_query();
    reducer.run();
  }

  /// Finds the item of a CTA that takes one only.
  __device__ __forceinline__ void find_only_item() {
    // In deterministic mode a CTA waits for those with earlier items, so items must start in order (work_table.cuh).
    const int index = p.ticket != nullptr ? atomicAdd(p.ticket, 1) : static_cast<int>(blockIdx.x);
    // In registers, of which there are enough here: what is found is used at once.
    KeyItem item{};
    HeadWalk walk{};
    find_item_and_steps<G::kM, G::kN>(item, walk, state.step_counts[0], p, index);
    state.items[0] = item;
    state.walks[0] = walk;
  }

  /// Writes the zeros that the only item leaves, and what else is left of a tile bias's gradient. One warp.
  __device__ __forceinline__ void clear() {
    if (state.items[0].keys > 0 && state.step_counts[0] == 0) clear_key_gradients<G::kD>(p, state.items[0]);
    // Where there are no keys dBias has columns all the same. A work table leaves out items without keys, and has
    // others several times: then it has been cleared before, as has one of float32.
    if constexpr (kTileBias) {
      const BiasGradientFloats<kConfig> floats(p, shared_, state);
      if (floats.wanted())
        floats.run_rest();
      else if (stores_bias_gradient() && p.work == nullptr)
        BiasGradientClearer<G::kM, G::kN>(p, state.items[0], state.cleared).run();
    }
  }

  __device__ __forceinline__ void initialise_barriers() const {
    const auto initialise = [](std::uint64_t& barrier, int arrivals) {
      ptx::mbarrier_init(ptx::shared_address(&barrier), arrivals);
    };
    // One arrival a warp, but for the loads, whose one arrival announces their bytes.
    initialise(state.item_wanted, 1);
    for (int i = 0; i < G::kItemSlots; ++i) {
      initialise(state.item_full[i], 1);
      initialise(state.key_full[i], 1);
    }
    initialise(state.value_full, 1);
    for (int i = 0; i < G::kQueryStages; ++i) {
      initialise(state.query_full[i], 1);
      initialise(state.query_empty[i], G::kConsumerWarps);
    }
    for (int i = 0; i < G::kDOutStages; ++i) {
      initialise(state.d_out_full[i], 1);
      initialise(state.d_out_empty[i], G::kConsumerWarps);
    }
    for (int i = 0; i < G::kDScoreStages; ++i) {
      for (int consumer = 0; consumer < G::kConsumers; ++consumer) initialise(state.d_score_stored[consumer][i], 4);
      initialise(state.d_score_full[i], G::kConsumers);
      initialise(state.d_score_empty[i],
                 (adds_d_query() ? G::kConsumerWarps : 0) + (G::kOwnBiasRing ? 0 : bias_gradient_warps()));
    }
    if constexpr (kTileBias)
      for (int i = 0; i < G::kBiasStages; ++i) {
        for (int consumer = 0; consumer < G::kConsumers; ++consumer) initialise(state.bias_full[i][consumer], 1);
        if constexpr (G::kOwnBiasRing)
          initialise(state.bias_empty[i], stores_bias_gradient() ? bias_gradient_warps() : G::kConsumers);
      }
    for (int i = 0; i < G::kConsumers; ++i) {
      initialise(state.d_query_full[i], 4);
      initialise(state.d_query_empty[i], 1);
    }
    ptx::fence_mbarrier_init();
  }

  const BackwardParameters& p;
  const TensorMaps& maps;
  std::uint32_t shared_;
  State& state;
};

}  // namespace flashdma_bwd::hopper
