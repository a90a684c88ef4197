// The backward kernel of the Hopper family for head dims above 128: two CTAs of a cluster share an item.
//
// Each has a producer warpgroup (producer.cuh) and two consumer warpgroups with a gradient each (value_owner.cuh,
// key_owner.cuh). They meet at barrier objects in shared memory only; those by which a buffer is given back are of both
// CTAs, which fill each other's buffers.
#pragma once

#include "hopper/clear_bias_gradient.cuh"
#include "hopper/gather_keys.cuh"
#include "hopper/pair/key_owner.cuh"
#include "hopper/pair/producer.cuh"
#include "hopper/pair/value_owner.cuh"
#include "hopper/start_item.cuh"

namespace flashdma_bwd::hopper::pair {

template <KernelConfig kConfig, bool kAddsDQuery = true>
class Backward {
  using G = Geometry<kConfig, kAddsDQuery>;
  using State = typename G::State;
  static constexpr bool kTileBias = kConfig.bias == BiasKind::tile;

 public:
  __device__ __forceinline__ Backward(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                      unsigned char* shared)
      : p(parameters),
        maps(tensor_maps),
        shared_(ptx::shared_address(shared)),
        state(*reinterpret_cast<State*>(shared + G::kState)),
        rank(cta_rank()) {}

  __device__ __forceinline__ void run() {
    if (start_item())
      work();
    else
      work_without_keys();
    __syncwarp();
    // The other CTA may still arrive at this one's barriers or ask for its ticket.
    ptx::barrier_cluster_sync();
  }

 private:
  __device__ __forceinline__ void work() {
    if constexpr (kAddsDQuery)
      if (state.item.active != nullptr) gather_keys();
    // The same for all threads of a warpgroup, and seen to be by the compiler.
    const int warpgroup = ptx::uniform(static_cast<int>(threadIdx.x) / kWarpgroupThreads);
    if (warpgroup == 0) {
      ptx::setmaxnreg_dec<G::kTile.producer_registers>();
      const int warp = ptx::uniform(static_cast<int>(threadIdx.x) / 32);
      const bool in_turns = kAddsDQuery && p.d_q_turns != nullptr;
      if (in_turns && warp % 2 == 1)
        reduce_in_turns(warp / 2);
      else if (warp == 3)
        reduce();
      else if (kTileBias && warp == 2)
        send();
      else if (kTileBias && warp == 0)
        load_and_clear(in_turns);
      else if (threadIdx.x % 32 == 0) {
        if (warp == 0)
          load(in_turns);
        else if (warp == 1)
          DOutLoader<kConfig, kAddsDQuery>(p, maps, shared_, state, rank).run();
        else
          DScoreSender<kConfig, kAddsDQuery>(p, maps, shared_, state, rank).run();
      }
      __syncwarp();
    } else {
      ptx::setmaxnreg_inc<G::kTile.consumer_registers>();
      // Else ptxas may hold it, and compute all descriptors, in each thread (NOTES.md, "What ptxas does").
      const std::uint32_t shared = ptx::uniform(shared_);
      if (warpgroup == 1)
        ValueOwner<kConfig, kAddsDQuery>(p, maps, shared, state).run();
      else
        KeyOwner<kConfig, kAddsDQuery>(p, maps, shared, state).run();
    }
  }

  __device__ __forceinline__ void reduce_in_turns(int role) const {
    if constexpr (kAddsDQuery) DQueryReducer<kConfig>(p, shared_, state, rank).run_in_turns(role);
  }
  __device__ __forceinline__ void reduce() const {
    if constexpr (kAddsDQuery) DQueryReducer<kConfig>(p, shared_, state, rank).run();
  }
  __device__ __forceinline__ void send() const {
    DScoreSender<kConfig, kAddsDQuery> sender(p, maps, shared_, state, rank);
    if constexpr (kAddsDQuery) {
      sender.run();
    } else {
      if (threadIdx.x % 32 == 0) sender.run_without_sending();
    }
  }

  __device__ __forceinline__ void work_without_keys() const {
    if constexpr (kTileBias)
      if (threadIdx.x < 32 && clears_bias_gradient()) clearer().run();
  }

  /// Q, with K and V; and dO where its loader's warp has another task. A tile's buffer is free in this order, too, so
  /// that neither load waits long for the other's. One thread.
  __device__ __forceinline__ void load(bool d_out_too) const {
    QueryLoader<kConfig, kAddsDQuery> queries(p, maps, shared_, state, rank);
    if (!d_out_too) {
      queries.run([](int, int, const TileStep&) {});
      return;
    }
    DOutLoader<kConfig, kAddsDQuery> d_outs(p, maps, shared_, state, rank);
    queries.run([&](int index, int head, const TileStep& step) { load_d_out(d_outs, index, head, step); });
  }
  __device__ __forceinline__ void load_d_out(DOutLoader<kConfig, kAddsDQuery>& d_outs, int index, int head,
                                             const TileStep& step) const {
    if (index == 0) ptx::mbarrier_arrive(ptx::shared_address(&state.first_step_known));
    d_outs.load(index, head, step);
  }

  /// The same by the first lane of a warp, and behind every step's loads zeros of dBias by all lanes: who sends dS has
  /// no time for them.
  __device__ __forceinline__ void load_and_clear(bool d_out_too) const {
    if constexpr (kTileBias) {
      QueryLoader<kConfig, kAddsDQuery> queries(p, maps, shared_, state, rank);
      DOutLoader<kConfig, kAddsDQuery> d_outs(p, maps, shared_, state, rank);
      auto zeros = clearer();
      bool left = clears_bias_gradient();
      if (left && state.step_count == 0) zeros.start();
      queries.run_as_warp(
          [&](int index, int head, const TileStep& step) {
            if (d_out_too) load_d_out(d_outs, index, head, step);
          },
          [&](int index) {
            if (left && index == 0) zeros.start();
            left = left && zeros.clear_some();
          });
      while (left) left = zeros.clear_some();
    }
  }

  /// Of copies only, and without a work table: it leaves out items without keys, and has others several times. Else
  /// zeros have been written before.
  __device__ __forceinline__ bool clears_bias_gradient() const {
    return p.bias_gradient == BiasGradient::store_16bit && p.work == nullptr;
  }
  __device__ __forceinline__ auto clearer() const {
    return BiasGradientClearer<G::kM, G::kN, kCtas>(p, state.item, state.cleared, rank);
  }

  __device__ __forceinline__ bool start_item() {
    if (threadIdx.x == 64) prefetch_maps(maps);
    if (threadIdx.x == 32) initialise_barriers();
    const auto find = [&](int index) {
      find_item_and_steps<G::kM, G::kN>(state.item, state.query_walk, state.step_count, p, index);
      state.d_out_walk = state.query_walk;
    };
    if (threadIdx.x == 0) {
      if (p.ticket == nullptr)
        find(static_cast<int>(blockIdx.x) / kCtas);
      else if (rank == 0)
        state.ticket = atomicAdd(p.ticket, 1);
    }
    __syncwarp();
    // No CTA may fill the other's buffers before its barriers are there.
    ptx::barrier_cluster_sync();
    // In deterministic mode a cluster waits for those with smaller items, so items must start in order.
    if (p.ticket != nullptr) {
      if (threadIdx.x == 0) find(ptx::ld_shared_cluster_s32(ptx::mapa(ptx::shared_address(&state.ticket), 0)));
      __syncthreads();
    }
    return state.item.keys > 0;
  }

  /// Loads the K and V rows of the CTA's keys, and the columns of the other's K, which a compacted mask scatters: the
  /// copy engine cannot.
  __device__ __forceinline__ void gather_keys() const {
    const int own = rank * G::kKeys;
    gather_key_rows<typename G::KeyTile, G::kThreads>(p, state.item, p.k, own, 0, shared_ + G::kKey);
    gather_key_rows<typename G::ValueTile, G::kThreads>(p, state.item, p.v, own, 0, shared_ + G::kValue);
    gather_key_rows<typename G::OtherKeyTile, G::kThreads>(p, state.item, p.k, G::kKeys - own, rank * G::kDQueryHalf,
                                                           shared_ + G::kOtherKey);
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
    // Loads: one arrival, which announces their bytes. Buffers that both CTAs fill: both warpgroups of both CTAs.
    constexpr int kAll = kWarps * 2 * kCtas;
    initialise(state.key_full, 1);
    initialise(state.value_full, 1);
    for (int i = 0; i < G::kQueryStages; ++i) {
      initialise(state.query_full[i], 1);
      initialise(state.query_empty[i], kAll);
    }
    for (int i = 0; i < G::kDOutStages; ++i) {
      initialise(state.d_out_full[i], 1);
      initialise(state.d_out_empty[i], kAll);
    }
    for (int i = 0; i < G::kDScoreStages; ++i) {
      initialise(state.d_score_full[i], kWarps);
      initialise(state.d_score_empty[i], (kAddsDQuery ? 2 * kWarps : 0) + 1);  // and the sender
    }
    for (int i = 0; i < G::kOtherDScoreStages; ++i) {
      initialise(state.other_d_score_full[i], 1);  // announces the other CTA's bytes
      initialise(state.other_d_score_taken[i], 2 * kWarps);
    }
    for (int role = 0; role < 2; ++role) {
      initialise(state.d_query_full[role], kWarps);
      initialise(state.d_query_empty[role], 1);
      initialise(state.d_query_turn[role], 1);
      initialise(state.d_query_added[role], kWarps);
    }
    initialise(state.first_step_known, 1);
    // Every lane: P goes from lane to lane.
    initialise(state.probability_full, kWarpgroupThreads);
    initialise(state.probability_empty, kWarpgroupThreads);
    if constexpr (kTileBias) {
      initialise(state.bias_full, 1);
      initialise(state.bias_empty, G::kSlopesReplaceBiases ? 1 : kWarps);
    }
    ptx::fence_mbarrier_init();
    for (std::uint64_t& full : state.other_d_score_full)
      ptx::mbarrier_arrive_expect_tx(ptx::shared_address(&full), G::PairTile::kBytes);
  }

  const BackwardParameters& p;
  const TensorMaps& maps;
  std::uint32_t shared_;
  State& state;
  int rank;
};

}  // namespace flashdma_bwd::hopper::pair
