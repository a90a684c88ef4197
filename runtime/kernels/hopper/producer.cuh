// The producer warpgroup: one thread loads tiles, one warp for each consumer adds its dQ to global memory, or only
// stores dS as a tile bias's gradient, of which another kernel computes dQ (query_gradient.cuh); the fourth finds items
// (item_finder.cuh) or clears dBias (clear_bias_gradient.cuh).
//
// Where a CTA takes several items, steps are numbered through all of them, and so are the buffers' uses: the next item
// is asked for when the last one's steps but for one have been loaded, or all of few, no earlier, for items are of
// unequal length and whoever is free first shall have the next one: finding it takes some microseconds. What makes room
// for it is known from the barriers of the steps:
// - its slot and its K's, two items ago: when the first step of the item in between is done, which has added the last
//   dQ of the one before it and follows the writing of its gradients;
// - V's buffer: when dS of the last item's last step is there, whose dP was the last product to read it.
#pragma once

#include "hopper/bias_gradient_floats.cuh"
#include "hopper/geometry.cuh"
#include "hopper/ptx.cuh"
#include "hopper/tensor_maps.hpp"
#include "hopper/tile_place.cuh"

namespace flashdma_bwd::hopper {

/// Loads each item's K and V once and Q, dO, the statistics and the tile bias of every step, and says what each step
/// is. One thread.
template <KernelConfig kConfig>
class Loader {
  using G = Geometry<kConfig>;
  using State = typename G::State;
  static constexpr bool kTileBias = kConfig.bias == BiasKind::tile;

 public:
  __device__ __forceinline__ Loader(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                    std::uint32_t shared, State& shared_state)
      : p(parameters), maps(tensor_maps), shared_(shared), state(shared_state) {}

  __device__ __forceinline__ void run() {
    int index = 0;  // of the step, through all items
    for (state.item_number = 0; find_item(index); ++state.item_number) {
      load_keys<typename G::KeyTile>(maps.k, G::kKey + slot_ * G::KeyTile::kBytes, state.key_full[slot_]);
      state.first_step = index;
      for (state.item_head = 0; state.item_head < p.heads_per_item; ++state.item_head) {
        // The first was found with the item.
        if (state.item_head > 0) find_head(state.walks[slot_], item(), p, state.item_head, G::kM, G::kN);
        const int count = state.walks[slot_].count;
        for (int i = 0; i < count; ++i, ++index) {
          if constexpr (G::kSeveralItems)
            if (asks_before_last_step(index - state.first_step + 1) &&
                index - state.first_step + 1 == state.step_counts[slot_])
              ptx::mbarrier_arrive(ptx::shared_address(&state.item_wanted));
          load_step(index, i);
        }
      }
    }
  }

 private:
  __device__ __forceinline__ const KeyItem& item() const { return state.items[slot_]; }

  /// Whether there is another item; its first step is the `index`-th.
  __device__ __forceinline__ bool find_item(int index) {
    slot_ = state.item_number % G::kItemSlots;
    if constexpr (G::kSeveralItems) {
      const int steps = index - state.first_step;  // of the last item
      if (state.item_number == 0 || !asks_before_last_step(steps)) {
        // Further back the loads of the last item's steps have waited already.
        if (state.item_number >= G::kItemSlots && steps <= G::kQueryStages) {
          const RingPosition<G::kQueryStages> query(state.first_step);
          ptx::mbarrier_wait_parity(ptx::shared_address(&state.query_empty[query.stage]), query.parity);
        }
        ptx::mbarrier_arrive(ptx::shared_address(&state.item_wanted));
      }
      ptx::mbarrier_wait_parity(ptx::shared_address(&state.item_full[slot_]), state.item_number / G::kItemSlots & 1);
    } else {
      if (state.item_number > 0) return false;
      ptx::mbarrier_arrive(ptx::shared_address(&state.item_full[0]));
    }
    return state.step_counts[slot_] > 0;
  }

  /// Whether the item after one of so many steps is asked for before its last step is loaded: the step before that has
  /// waited for what makes room then.
  static __device__ __forceinline__ bool asks_before_last_step(int steps) { return steps > G::kQueryStages + 1; }

  /// Loads what the index-th step of all needs, the i-th of the walk.
  __device__ __forceinline__ void load_step(int index, int i) {
    // Places in Q's ring are computed for each step: what of them would be kept through the loop takes more registers.
    const auto query_index = static_cast<int>(G::kStatisticTerms ? ptx::opaque(static_cast<unsigned>(index)) : index);
    const RingPosition<G::kQueryStages> query(query_index);
    const RingPosition<G::kDOutStages> d_out(index);
    ItemStep& info = state.steps[index % kStepSlots];
    describe_step(info, state.walks[slot_], i);
    // Before Q: where Q has two buffers, the bias's is free first.
    if constexpr (kTileBias) load_bias_tile(index, info);

    const TilePlace place = place_of_queries(p, item(), info.first_query, info.head);
    ptx::mbarrier_wait_parity(ptx::shared_address(&state.query_empty[query.stage]), query.parity ^ 1);
    constexpr int kBytes = G::QueryTile::kBytes + (G::kStatisticTerms ? 0 : G::kM * 4);
    constexpr int kTermBytes = G::kStatisticTerms ? G::kTermBytes : 0;
    const std::uint32_t query_full = ptx::shared_address(&state.query_full[query.stage]);
    const bool masked = G::kMaskBytes > 0 && info.mask_words != nullptr;
    ptx::mbarrier_arrive_expect_tx(
        query_full, (G::kLoadedTogether ? 2 * kBytes : kBytes) + kTermBytes + (masked ? G::kMaskBytes : 0));
    if (masked) load_mask(query.stage, query_full, info);
    if constexpr (G::kStatisticTerms)
      ptx::cp_async_bulk_tensor_3d(shared_ + G::kTerms + query.stage * G::kTermBytes, maps.terms,
                                   {0, place.statistics_row, place.head}, query_full);
    load_query_tile(maps.q, G::kQuery, query.stage, query_full, place, maps.lse, G::kLse);

    std::uint32_t d_out_full = query_full;
    if constexpr (!G::kLoadedTogether) {
      d_out_full = ptx::shared_address(&state.d_out_full[d_out.stage]);
      ptx::mbarrier_wait_parity(ptx::shared_address(&state.d_out_empty[d_out.stage]), d_out.parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(d_out_full, kBytes);
    }
    load_query_tile(maps.d_out, G::kDOut, d_out.stage, d_out_full, place, maps.row_dot, G::kRowDot);
    if (i == 0 && index == state.first_step) load_values();
  }

  /// Says what the i-th step of the walk is. Who needs the step that `info` was about before keeps the loads from
  /// coming this far, even before they wait for the step's buffers.
  __device__ __forceinline__ void describe_step(ItemStep& info, const HeadWalk& walk, int i) const {
    const TileStep step = [&] {
      if constexpr (G::kSkipsEmptyHalves)
        return step_of_halves(walk, item(), i, G::kM);
      else
        return step_of(walk, i);
    }();
    const int first_query = step.tile * G::kM;
    const int head = walk.head;
    info.first_query = first_query;
    info.head = head;
    if constexpr (G::kSkipsEmptyHalves)
      info.facts = step.facts;
    else
      info.partial = step.is_partial();
    info.rank = walk.ranks == nullptr ? nullptr : walk.ranks + step.tile;
    ptx::reread_memory();
    info.scratch_row = scratch_row_of(item(), p, head) + first_query;
    ptx::reread_memory();
    info.mask_words = step.is_partial() ? mask_words(item(), head, first_query) : nullptr;
    ptx::reread_memory();
  }

  __device__ __forceinline__ const std::uint64_t* mask_words(const KeyItem& item, int head, int first_query) const {
    if (p.mask_words == nullptr) return nullptr;
    const std::int64_t first_atom = item.batch * p.mask_batch_stride +
                                    head / p.mask_heads_per_head * p.mask_head_stride +
                                    std::int64_t{item.key_tile} * (G::kN / kMaskAtom) * p.query_atoms;
    return p.mask_words + first_atom * kMaskAtom + first_query;
  }

  /// The mask's words of a step: latency that no consumer sees.
  __device__ __forceinline__ void load_mask(int stage, std::uint32_t full, const ItemStep& info) const {
    const int mask = item().batch * p.compact_batch_stride + info.head / p.mask_heads_per_head;
    ptx::cp_async_bulk_tensor_3d(shared_ + G::kMask + stage * G::kMaskBytes, maps.mask,
                                 {info.first_query, item().key_tile * (G::kN / kMaskAtom), mask}, full);
  }

  /// The biases of the index-th step, into the buffer of its dS, or of its dBias: those of each consumer's keys are a
  /// panel.
  __device__ __forceinline__ void load_bias_tile(int index, const ItemStep& info) {
    using Tile = typename G::PairTile;
    static_assert(Tile::kPanels == G::kConsumers);
    const RingPosition<G::kBiasStages> ring(index);
    const KeyItem& item = state.items[0];
    const int length = item.sequence.length_q;
    const int head = info.head / p.bias.heads_per_head;
    const int batch = p.bias.stride_batch == 0 ? 0 : item.batch;
    ptx::mbarrier_wait_parity(ptx::shared_address(&G::bias_empty(state, ring.stage)), ring.parity ^ 1);
#pragma unroll
    for (int panel = 0; panel < Tile::kPanels; ++panel) {
      const std::uint32_t full = ptx::shared_address(&state.bias_full[ring.stage][panel]);
      ptx::mbarrier_arrive_expect_tx(full, Tile::kPanelBytes);
      ptx::cp_async_bulk_tensor_5d(
          shared_ + G::kBias + ring.stage * Tile::kBytes + panel * Tile::kPanelBytes, maps.bias,
          {start_inside(item.first_position + panel * Tile::kPanelColumns, p.seqlen_k, item.first_position),
           p.seqlen_q - length + info.first_query, length, head, batch},
          full, ptx::kEvictFirst);
    }
  }

  /// V of the item whose first step this is, as soon as that of the item before is not needed any more.
  __device__ __forceinline__ void load_values() const {
    if (G::kSeveralItems && state.first_step > 0) {
      const RingPosition<G::kDScoreStages> d_score(state.first_step - 1);
      ptx::mbarrier_wait_parity(ptx::shared_address(&state.d_score_full[d_score.stage]), d_score.parity);
    }
    load_keys<typename G::ValueTile>(maps.v, G::kValue, state.value_full);
  }

  /// The keys of a compacted mask are gathered by the consumers.
  template <class Tile>
  __device__ __forceinline__ void load_keys(const CUtensorMap& map, int offset, std::uint64_t& barrier) const {
    const KeyItem& keys = item();
    const std::uint32_t full = ptx::shared_address(&barrier);
    if (keys.active != nullptr) {
      ptx::mbarrier_arrive(full);
      return;
    }
    ptx::mbarrier_arrive_expect_tx(full, Tile::kBytes);
    const SequenceRows& s = keys.sequence;
    const int batch = p.cu_seqlens_k != nullptr ? 0 : keys.batch;
#pragma unroll
    for (int panel = 0; panel < Tile::kPanels; ++panel)
      ptx::cp_async_bulk_tensor_5d(
          shared_ + offset + panel * Tile::kPanelBytes, map,
          {start_inside(panel * Tile::kPanelColumns, p.head_dim, 0), p.seqlen_k - s.length_k + keys.first_position,
           static_cast<int>(s.row_k) + s.length_k, keys.head_kv, batch},
          full, ptx::kEvictFirst);
  }

  __device__ __forceinline__ void load_query_tile(const CUtensorMap& map, int offset, int stage, std::uint32_t full,
                                                  const TilePlace& place, const CUtensorMap& statistics_map,
                                                  int statistics_offset) const {
    using Tile = typename G::QueryTile;
#pragma unroll
    for (int panel = 0; panel < Tile::kPanels; ++panel)
      ptx::cp_async_bulk_tensor_5d(shared_ + offset + stage * Tile::kBytes + panel * Tile::kPanelBytes, map,
                                   {panel * Tile::kPanelColumns, place.row, place.end_row, place.head, place.batch},
                                   full, ptx::kEvictLast);
    if constexpr (!G::kStatisticTerms)
      ptx::cp_async_bulk_tensor_2d(shared_ + statistics_offset + stage * G::kM * 4, statistics_map,
                                   {place.statistics_row, place.head}, full);
  }

  const BackwardParameters& p;
  const TensorMaps& maps;
  std::uint32_t shared_;
  State& state;
  int slot_ = 0;  ///< of the item that is loaded
};

/// Adds a consumer's share of every step's dQ to its scratch in global memory, says that its dS can be read, which
/// spares the consumer two fences a step, and stores it as the gradient of a tile bias, or adds it to that. One warp.
template <KernelConfig kConfig>
class DQueryReducer {
  using G = Geometry<kConfig>;
  using State = typename G::State;
  static constexpr bool kTileBias = kConfig.bias == BiasKind::tile;
  static constexpr int kRowBlocks = 4;          ///< of 16 queries in a share; each lies together in the scratch
  static constexpr int kBiasLane = kRowBlocks;  ///< stores dBias: it waits for its own copies alone

 public:
  __device__ __forceinline__ DQueryReducer(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                           std::uint32_t shared, State& shared_state, int consumer)
      : p(parameters),
        maps(tensor_maps),
        shared_(shared),
        state(shared_state),
        consumer_(consumer),
        bias_floats_(parameters, shared, shared_state) {}

  /// Where another kernel computes dQ of dBias: stores that only.
  __device__ __forceinline__ void run_without_d_query() const {
    const int lane = ptx::fresh_thread_index() % 32;
    const int steps = steps_of_item(0);
    for (int i = 0; i < steps; ++i) {
      acknowledge_d_scores(i, lane);
      if (lane == kBiasLane && i > 0) give_back_bias<1>(i - 1);
    }
    // Shared memory must outlive the copies.
    if (lane == kBiasLane) ptx::cp_async_bulk_wait_group();
  }

  __device__ __forceinline__ void run() {
    const int lane = ptx::fresh_thread_index() % 32;
    const std::uint32_t full = ptx::shared_address(&state.d_query_full[consumer_]);
    const std::uint32_t empty = ptx::shared_address(&state.d_query_empty[consumer_]);
    constexpr bool kRows = G::kDQueryShare == DQueryShare::rows;
    const int first_row = kRows ? consumer_ * 64 : 0;
    const int first_column = kRows ? 0 : consumer_ * G::kDQueryColumns;
    constexpr int kBytes = G::kDQueryBytes / kRowBlocks;
    int item = 0;
    int left = steps_of_item(item);  // of the item whose dQ comes next
    // The buffer is the consumer's from here on, so that the items' slots hold what has not been read: the loader is
    // never further ahead than the second item after the one whose last dQ was given back.
    if (lane == kLastLane) ptx::mbarrier_arrive(empty);
    if (left > 0) acknowledge_d_scores(0, lane);
    for (int i = 0; left > 0; ++i) {
      // A consumer hands dQ of a step over when it has stored dS of the next. The next item is found, or that there is
      // none, without the last dQ of the one before; and until that is given back the next item's slot holds what it
      // is.
      if (--left == 0 && G::kSeveralItems) left = steps_of_item(++item);
      if constexpr (kTileBias)
        if (bias_floats_.wanted()) bias_floats_.write_most(i, consumer_, lane);
      if (left > 0) acknowledge_d_scores(i + 1, lane);
      if constexpr (kTileBias && !G::kOwnBiasRing)
        if (lane == kBiasLane && copies_bias_gradient()) left > 0 ? give_back_bias<1>(i) : give_back_bias<0>(i);
      ptx::mbarrier_wait_parity(full, i & 1);
      const ItemStep& info = state.steps[i % kStepSlots];
      const std::int64_t row = info.scratch_row;
      std::int32_t* turn = p.d_q_turns == nullptr ? nullptr : p.d_q_turns + row / kTurnRows + consumer_;
      int rank = 0;
      if (turn != nullptr) {
        rank = *info.rank;
        while (ptx::ld_acquire(turn) != rank) {
        }
        ptx::fence_proxy_async_global();
      }
      ptx::fence_proxy_async();  // instead of by the consumer, see ptx.cuh
      if (lane < kRowBlocks) {
        float* destination =
            p.d_q_scratch + ((row + first_row) / 16 + lane) * (16 * G::kD) + first_column / 8 * kAtomFloats;
        ptx::cp_reduce_async_bulk_add(destination, shared_ + G::kDQuery + consumer_ * G::kDQueryBytes + lane * kBytes,
                                      kBytes, ptx::kEvictLast);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read();
      }
      __syncwarp();
      if (lane == kLastLane) ptx::mbarrier_arrive(empty);
      if (turn != nullptr) {
        if (lane < kRowBlocks) {
          ptx::cp_async_bulk_wait_group();
          ptx::fence_proxy_async_global();
          __threadfence();
        }
        __syncwarp();
        if (lane == 0) ptx::st_release(turn, rank + 1);
      }
    }
    // Shared memory must outlive the copies.
    if (lane < kRowBlocks || (kTileBias && lane == kBiasLane)) ptx::cp_async_bulk_wait_group();
  }

 private:
  /// Whether dS goes into dBias as it is, by copies.
  __device__ __forceinline__ bool copies_bias_gradient() const { return p.bias_gradient == BiasGradient::store_16bit; }

  /// Waits for the consumer's dS of step i and says that products and copies can read it. A tile bias's gradient is
  /// copied at once, so that the buffer of dS is free when dQ's products are done; one of the biases' own ring is given
  /// back at once, too, for the biases of the step after the next, also where nobody wants the gradient: behind the
  /// fence, for the consumer has written it.
  __device__ __forceinline__ void acknowledge_d_scores(int i, int lane) const {
    const RingPosition<G::kDScoreStages> ring(i);
    ptx::mbarrier_wait_parity(ptx::shared_address(&state.d_score_stored[consumer_][ring.stage]), ring.parity);
    ptx::fence_proxy_async();  // instead of by the consumer, see ptx.cuh
    if (lane == kLastLane) ptx::mbarrier_arrive(ptx::shared_address(&state.d_score_full[ring.stage]));
    if constexpr (kTileBias)
      if (lane == kBiasLane && copies_bias_gradient()) start_bias_gradient(i);
    if constexpr (G::kOwnBiasRing)
      if (lane == kBiasLane && !bias_floats_.wanted()) give_back_bias<0>(i);
  }

  /// Gives the buffer of step i back when dBias's store has read it, which `kLater` others were begun behind.
  template <int kLater>
  __device__ __forceinline__ void give_back_bias(int i) const {
    ptx::cp_async_bulk_wait_group_read<kLater>();
    ptx::mbarrier_arrive(ptx::shared_address(&G::bias_empty(state, RingPosition<G::kBiasStages>(i).stage)));
  }

  /// Not positive where there is nothing to do, or no item any more.
  __device__ __forceinline__ int steps_of_item(int item) const {
    const int slot = item % G::kItemSlots;
    ptx::mbarrier_wait_parity(ptx::shared_address(&state.item_full[slot]), item / G::kItemSlots & 1);
    return state.step_counts[slot];
  }

  /// Stores dBias of step i with the consumer's keys, a bulk group of its own. Where masks hide pairs, and past the
  /// ends of a sequence, dS is 0.
  __device__ __forceinline__ void start_bias_gradient(int i) const {
    using Tile = typename G::PairTile;
    const ItemStep& info = state.steps[i % kStepSlots];
    const KeyItem& item = state.items[0];
    const int first_key = item.first_position + consumer_ * Tile::kPanelColumns;
    if (first_key < p.seqlen_k)
      ptx::cp_async_bulk_tensor_4d_store(
          maps.d_bias, {first_key, info.first_query, info.head, item.batch},
          shared_ + G::kBias + RingPosition<G::kBiasStages>(i).stage * Tile::kBytes + consumer_ * Tile::kPanelBytes,
          ptx::kEvictFirst);
    ptx::cp_async_bulk_commit_group();
  }

  const BackwardParameters& p;
  const TensorMaps& maps;
  std::uint32_t shared_;
  State& state;
  int consumer_;
  BiasGradientFloats<kConfig> bias_floats_;
};

}  // namespace flashdma_bwd::hopper
