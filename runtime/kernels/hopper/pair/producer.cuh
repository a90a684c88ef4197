// The producer warpgroup of a CTA of two. Each of its warps has one task, most of them of one thread: to load Q, with K
// and V; to load dO; to send dS to the other CTA; to add dQ to global memory. In deterministic mode each consumer's dQ
// has a warp, and one thread loads both Q and dO. A tile bias comes with Q, its gradient leaves with dS, and the warp
// that loads Q writes the gradient's zeros.
#pragma once

#include "hopper/bias_gradient_floats.cuh"
#include "hopper/owners/d_query_reducer.cuh"
#include "hopper/owners/loader.cuh"
#include "hopper/pair/geometry.cuh"

namespace flashdma_bwd::hopper::pair {

/// What both loaders do: they load some panels of a tile for both CTAs.
template <KernelConfig kConfig, bool kAddsDQuery>
class Loader : protected owners::Loader<Geometry<kConfig, kAddsDQuery>> {
  using Base = owners::Loader<Geometry<kConfig, kAddsDQuery>>;

 protected:
  using typename Base::G;
  using typename Base::QueryTile;
  using typename Base::State;
  /// Both CTAs load some of each tile, so that neither can be ahead of the other by a tile.
  static_assert(QueryTile::kPanels >= 3);

  __device__ __forceinline__ Loader(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                    std::uint32_t shared, State& shared_state, int cta_rank)
      : Base(parameters, tensor_maps, shared, shared_state), rank(cta_rank) {}

  /// The panels [begin, end) of a tile of Q or dO for both CTAs, and this CTA's LSE or D of the tile's queries. The
  /// barrier also counts `more_bytes` that are copied after it.
  __device__ __forceinline__ void load_tile(const CUtensorMap& map, int offset, const CUtensorMap& statistics_map,
                                            int statistics_offset, int stage, std::uint64_t& barrier, int begin,
                                            int end, const TilePlace& place, int more_bytes = 0) {
    constexpr std::uint16_t kBoth = 3;
    const std::uint32_t full = ptx::shared_address(&barrier);
    // Of both CTAs' copies.
    ptx::mbarrier_arrive_expect_tx(full, QueryTile::kBytes + G::kM * 4 + more_bytes);
    const std::uint32_t tile = this->shared_ + offset + stage * QueryTile::kBytes;
#pragma unroll 1
    for (int panel = begin; panel < end; ++panel)
      ptx::cp_async_bulk_tensor_5d_multicast(
          tile + panel * QueryTile::kPanelBytes, map,
          {panel * QueryTile::kPanelColumns, place.row, place.end_row, place.head, place.batch}, full, kBoth,
          ptx::kEvictLast);
    this->load_statistics(statistics_map, statistics_offset, stage, full, place);
  }

  int rank;
};

/// Loads the CTA's K and V and its half of the other's K once, Q, LSE and the tile of a tile bias of every step, and
/// says what each step is.
template <KernelConfig kConfig, bool kAddsDQuery>
class QueryLoader : Loader<kConfig, kAddsDQuery> {
  static constexpr bool kTileBias = kConfig.bias == BiasKind::tile;
  using Base = Loader<kConfig, kAddsDQuery>;
  using Base::maps;
  using Base::p;
  using Base::rank;
  using Base::shared_;
  using Base::state;
  using typename Base::G;
  using typename Base::State;

 public:
  __device__ __forceinline__ QueryLoader(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                         std::uint32_t shared, State& shared_state, int cta_rank)
      : Base(parameters, tensor_maps, shared, shared_state, cta_rank) {}

  /// Calls also(index, head, step) when it has seen to a step's Q. One thread.
  template <class Also>
  __device__ __forceinline__ void run(Also&& also) {
    const bool load_keys = start_keys();
    this->walk_steps(state.query_walk,
                     [&](int index, int head, const TileStep& step) { load(index, head, step, load_keys, also); });
  }
  /// The same of the first lane; all of the warp's call beside(index) behind each step.
  template <class Also, class Beside>
  __device__ __forceinline__ void run_as_warp(Also&& also, Beside&& beside) {
    const int lane = ptx::fresh_thread_index() % 32;
    const bool load_keys = lane == 0 && start_keys();
    this->walk_steps_as_warp(
        state.query_walk, lane,
        [&](int index, int head, const TileStep& step) { load(index, head, step, load_keys, also); }, beside);
  }

 private:
  /// Returns whether the keys are loaded: those of a compacted mask have been gathered. Without steps nobody would wait
  /// for a copy, which must not outlive the CTA.
  __device__ __forceinline__ bool start_keys() {
    const bool load_keys = state.item.active == nullptr && state.step_count > 0;
    if (load_keys) load_keys_of_item();
    return load_keys;
  }

  template <class Also>
  __device__ __forceinline__ void load(int index, int head, const TileStep& step, bool load_keys, Also&& also) {
    // An odd panel is this loader's in the first CTA and the dO loader's in the second.
    constexpr int kMiddle = (G::QueryTile::kPanels + 1) / 2;
    const int begin = rank == 0 ? 0 : kMiddle;
    const int end = rank == 0 ? kMiddle : G::QueryTile::kPanels;
    const RingPosition<G::kQueryStages> ring(index);
    const int first_query = step.tile * G::kM;
    const std::uint64_t* const words = step.is_partial() ? mask_words(head, first_query) : nullptr;
    const bool masked = G::kMaskBytes > 0 && words != nullptr;
    const auto place = this->place_of(first_query, head);
    ptx::mbarrier_wait_parity(ptx::shared_address(&state.query_empty[ring.stage]), ring.parity ^ 1);
    state.steps[index % kStepSlots] = {first_query, head, step.is_partial(), step.facts, words};
    this->load_tile(maps.q, G::kQuery, maps.lse, G::kLse, ring.stage, state.query_full[ring.stage], begin, end, place,
                    masked ? G::kMaskBytes : 0);
    if (masked) load_mask(ring.stage, head, first_query);
    if (load_keys && index == 0) load_values_of_item();
    also(index, head, step);
    if constexpr (kTileBias) load_bias_tile(index, head, first_query);
  }

  /// Of the CTA's own keys.
  __device__ __forceinline__ const std::uint64_t* mask_words(int head, int first_query) const {
    if (p.mask_words == nullptr) return nullptr;
    const std::int64_t first_atom = state.item.batch * p.mask_batch_stride +
                                    head / p.mask_heads_per_head * p.mask_head_stride +
                                    (std::int64_t{state.item.key_tile} * kCtas + rank) * p.query_atoms;
    return p.mask_words + first_atom * kMaskAtom + first_query;
  }

  /// The biases of a step, of the CTA's own keys. The last step's have been read when this one's are asked for, which
  /// the step's S comes after; with a softcap their gradient has left their place.
  __device__ __forceinline__ void load_bias_tile(int index, int head, int first_query) const {
    using Tile = typename G::PairTile;
    static_assert(Tile::kPanels == 1);
    const KeyItem& item = state.item;
    const int length = item.sequence.length_q;
    const std::uint32_t full = ptx::shared_address(&state.bias_full);
    ptx::mbarrier_wait_parity(ptx::shared_address(&state.bias_empty), (index & 1) ^ 1);
    ptx::mbarrier_arrive_expect_tx(full, Tile::kBytes);
    ptx::cp_async_bulk_tensor_5d(shared_ + G::kTileBias, maps.bias,
                                 {start_inside(item.first_position + rank * G::kKeys, p.seqlen_k, item.first_position),
                                  p.seqlen_q - length + first_query, length, head / p.bias.heads_per_head,
                                  p.bias.stride_batch == 0 ? 0 : item.batch},
                                 full, ptx::kEvictFirst);
  }

  /// The mask's words of a step, of the CTA's own keys. A mask has words of whole items.
  __device__ __forceinline__ void load_mask(int stage, int head, int first_query) const {
    const int mask = state.item.batch * p.compact_batch_stride + head / p.mask_heads_per_head;
    ptx::cp_async_bulk_tensor_3d(shared_ + G::kMask + stage * G::kMaskBytes, maps.mask,
                                 {first_query, state.item.key_tile * kCtas + rank, mask},
                                 ptx::shared_address(&state.query_full[stage]));
  }

  __device__ __forceinline__ void load_keys_of_item() {
    const std::uint32_t full = ptx::shared_address(&state.key_full);
    ptx::mbarrier_arrive_expect_tx(full, G::KeyTile::kBytes);
    load_keys_of<typename G::KeyTile>(rank, maps.k, G::kKey, full, 0);
  }
  __device__ __forceinline__ void load_values_of_item() {
    const std::uint32_t full = ptx::shared_address(&state.value_full);
    ptx::mbarrier_arrive_expect_tx(full, G::ValueTile::kBytes + (kAddsDQuery ? G::OtherKeyTile::kBytes : 0));
    load_keys_of<typename G::ValueTile>(rank, maps.v, G::kValue, full, 0);
    if constexpr (kAddsDQuery)
      load_keys_of<typename G::OtherKeyTile>(rank ^ 1, maps.k, G::kOtherKey, full, rank * G::kDQueryHalf);
  }

  /// Keys of one of the CTAs, from a column on.
  template <class Tile>
  __device__ __forceinline__ void load_keys_of(int cta, const CUtensorMap& map, int offset, std::uint32_t full,
                                               int first_column) {
    const KeyItem& item = state.item;
    const int position =
        start_inside(item.first_position + cta * G::kKeys, item.sequence.length_k, item.first_position);
    // The item's KV head, found anew: where it is read, ptxas orders the consumers' loops otherwise, which nobody
    // timed.
    const int head = item.head_item * p.heads_per_item / (p.heads / p.heads_kv);
    this->template load_key_tile<Tile>(map, offset, full, head, position, first_column);
  }
};

/// Loads dO and D of every step.
template <KernelConfig kConfig, bool kAddsDQuery>
class DOutLoader : Loader<kConfig, kAddsDQuery> {
  using Base = Loader<kConfig, kAddsDQuery>;
  using Base::maps;
  using Base::rank;
  using Base::state;
  using typename Base::G;
  using typename Base::State;

 public:
  __device__ __forceinline__ DOutLoader(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                        std::uint32_t shared, State& shared_state, int cta_rank)
      : Base(parameters, tensor_maps, shared, shared_state, cta_rank) {}

  __device__ __forceinline__ void run() {
    this->walk_steps(state.d_out_walk, [&](int index, int head, const TileStep& step) { load(index, head, step); });
  }
  __device__ __forceinline__ void load(int index, int head, const TileStep& step) {
    constexpr int kMiddle = G::QueryTile::kPanels / 2;
    const int begin = rank == 0 ? 0 : kMiddle;
    const int end = rank == 0 ? kMiddle : G::QueryTile::kPanels;
    const RingPosition<G::kDOutStages> ring(index);
    const auto place = this->place_of(step.tile * G::kM, head);
    ptx::mbarrier_wait_parity(ptx::shared_address(&state.d_out_empty[ring.stage]), ring.parity ^ 1);
    this->load_tile(maps.d_out, G::kDOut, maps.row_dot, G::kRowDot, ring.stage, state.d_out_full[ring.stage], begin,
                    end, place);
  }
};

/// Sends the CTA's dS of every step to the other CTA, and stores it as the gradient of a tile bias, or adds it to that.
/// One thread, or with a tile bias a warp.
template <KernelConfig kConfig, bool kAddsDQuery>
class DScoreSender {
  using G = Geometry<kConfig, kAddsDQuery>;
  using State = typename G::State;
  static constexpr bool kTileBias = kConfig.bias == BiasKind::tile;

 public:
  __device__ __forceinline__ DScoreSender(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                          std::uint32_t shared, State& shared_state, int cta_rank)
      : p(parameters), maps(tensor_maps), shared_(shared), state(shared_state), rank(cta_rank) {}

  __device__ __forceinline__ void run() {
    const int lane = ptx::fresh_thread_index() % 32;
    const int steps = state.step_count;
    for (int i = 0; i < steps; ++i) {
      if (lane == 0) send(i);
      if constexpr (kTileBias) {
        // Of all lanes, for some of which the dS is there because the first one knows that it is.
        __syncwarp();
        if (p.bias_gradient != BiasGradient::none) write_bias_gradient(i, lane);
        if constexpr (G::kSlopesReplaceBiases)
          if (lane == 0) give_back_biases();
      }
    }
    // Shared memory must outlive the copies.
    if constexpr (kTileBias)
      if (lane == 0) ptx::cp_async_bulk_wait_group_read();
  }

  /// Where another kernel computes dQ of dBias: stores that only. One thread.
  __device__ __forceinline__ void run_without_sending() const {
    const int steps = state.step_count;
    for (int i = 0; i < steps; ++i) {
      const RingPosition<G::kDScoreStages> ring(i);
      ptx::mbarrier_wait_parity(ptx::shared_address(&state.d_score_full[ring.stage]), ring.parity);
      write_bias_gradient(i, 0);
      ptx::cp_async_bulk_wait_group_read<1>();
      if (i > 0)
        ptx::mbarrier_arrive(ptx::shared_address(&state.d_score_empty[RingPosition<G::kDScoreStages>(i - 1).stage]));
    }
    ptx::cp_async_bulk_wait_group_read();
  }
  static_assert(G::kOtherDScoreStages <= G::kDScoreStages);

 private:
  __device__ __forceinline__ void send(int i) const {
    const RingPosition<G::kDScoreStages> ring(i);
    const RingPosition<G::kOtherDScoreStages> other_ring(i);
    const int other = rank ^ 1;
    // What was sent to this buffer before has been used, so that it has also been read here.
    ptx::mbarrier_wait_parity(ptx::shared_address(&state.other_d_score_taken[other_ring.stage]), other_ring.parity ^ 1);
    if (const int sent = i - G::kOtherDScoreStages; sent >= 0) {
      if constexpr (kTileBias) ptx::cp_async_bulk_wait_group_read<G::kOtherDScoreStages - 1>();
      ptx::mbarrier_arrive(ptx::shared_address(&state.d_score_empty[RingPosition<G::kDScoreStages>(sent).stage]));
    }
    ptx::mbarrier_wait_parity(ptx::shared_address(&state.d_score_full[ring.stage]), ring.parity);
    constexpr int kBytes = G::PairTile::kBytes;
    ptx::cp_async_bulk_shared_cluster(
        ptx::mapa(shared_ + G::kOtherDScore + other_ring.stage * kBytes, other),
        shared_ + G::kDScore + ring.stage * kBytes, kBytes,
        ptx::mapa(ptx::shared_address(&state.other_d_score_full[other_ring.stage]), other));
  }

  /// The place of a step's biases, in which their gradient is: behind dS, whose writers' fences are behind all that
  /// they wrote there, and when copies have read it.
  __device__ __forceinline__ void give_back_biases() const {
    ptx::cp_async_bulk_wait_group_read();
    ptx::mbarrier_arrive(ptx::shared_address(&state.bias_empty));
  }

  /// Where masks hide pairs, and past the ends of a sequence, dS is 0.
  __device__ __forceinline__ void write_bias_gradient(int i, int lane) const {
    using Tile = typename G::PairTile;
    const StepInfo& info = state.steps[static_cast<unsigned>(i) % kStepSlots];
    const int first_key = state.item.first_position + rank * G::kKeys;
    const std::uint32_t tile = G::kSlopesReplaceBiases
                                   ? shared_ + G::kTileBias
                                   : shared_ + G::kDScore + RingPosition<G::kDScoreStages>(i).stage * Tile::kBytes;
    if (p.bias_gradient != BiasGradient::store_16bit) {
      write_bias_floats<Tile, 0, G::kM, kConfig.data_type>(p, tile, state.item.batch, info, first_key, lane);
      __syncwarp();
    } else if (lane == 0) {
      if (first_key < p.seqlen_k)
        ptx::cp_async_bulk_tensor_4d_store(maps.d_bias, {first_key, info.first_query, info.head, state.item.batch},
                                           tile, ptx::kEvictFirst);
      ptx::cp_async_bulk_commit_group();
    }
  }

  const BackwardParameters& p;
  const TensorMaps& maps;
  std::uint32_t shared_;
  State& state;
  int rank;
};

/// Adds the first part of the consumers' shares of every step's dQ to their scratch in global memory: one warp for both
/// consumers, or in deterministic mode one for each, which also says when it is the consumer's turn.
template <KernelConfig kConfig>
class DQueryReducer : owners::DQueryReducer<Geometry<kConfig>> {
  using Base = owners::DQueryReducer<Geometry<kConfig>>;
  using Base::give_back;
  using Base::kRowBlocks;
  using Base::p;
  using Base::row_of;
  using Base::state;
  using Base::wait_for_part;
  using typename Base::G;
  using typename Base::State;
  using typename Base::StepPlace;

 public:
  __device__ __forceinline__ DQueryReducer(const BackwardParameters& parameters, std::uint32_t shared,
                                           State& shared_state, int cta_rank)
      : Base(parameters, shared, shared_state), rank(cta_rank) {}

  /// Both consumers' shares, as they come.
  __device__ __forceinline__ void run() {
    const int lane = ptx::fresh_thread_index() % 32;
    const int shares = state.step_count * 2;  // the value owner's and the key owner's of every step
    for (int n = 0; n < shares; ++n) {
      const int step = n / 2;
      const int role = n % 2;
      wait_for_part(role, step);
      add_part(row_of(this->place_of(step, lane)), role, lane);
      // A buffer is given back when the next one has been seen to.
      if (lane < kRowBlocks) ptx::cp_async_bulk_wait_group_read<1>();
      __syncwarp();
      if (lane == 0 && n > 0) give_back(role ^ 1);
    }
    this->finish(lane);
  }

  /// Deterministic mode: one consumer's shares, each when all smaller items have added theirs.
  ///
  /// A share has a turn of its own. Whether it has come is asked while the share is being computed, and so is the way
  /// to global memory of one step's share hidden under the products of the next. The consumer adds its part when it has
  /// been told of the turn, and arrives without waiting for its additions: the release by which the turn is passed is
  /// behind that arrival, and so behind them. An item waits for smaller ones only, and its turn is passed before the
  /// next one is waited for, so that nobody is blocked for ever.
  __device__ __forceinline__ void run_in_turns(int role) {
    const int lane = ptx::fresh_thread_index() % 32;
    const int steps = state.step_count;
    if (steps == 0) return;
    ptx::mbarrier_wait_parity(ptx::shared_address(&state.first_step_known), 0);
    Turn next = turn_of(0, role, lane);
    for (int i = 0; i < steps; ++i) {
      const Turn turn = next;
      while (ptx::ld_acquire(turn.counter) != turn.place) {
      }
      ptx::fence_proxy_async_global();
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(ptx::shared_address(&state.d_query_turn[role]));
      wait_for_part(role, i);
      add_part(turn.row, role, lane);
      // Who has handed this share over has begun the next step, whose description does not change before its turn.
      if (i + 1 < steps) next = turn_of(i + 1, role, lane);
      this->give_back_when_read(role, lane);
      ptx::mbarrier_wait_parity(ptx::shared_address(&state.d_query_added[role]), i & 1);
      if (lane < kRowBlocks) {
        ptx::cp_async_bulk_wait_group();
        ptx::fence_proxy_async_global();
      }
      __syncwarp();
      if (lane == 0) ptx::st_release(turn.counter, turn.place + 1);
    }
  }

 private:
  struct Turn {
    std::int64_t row;       ///< the step's first in the scratch
    std::int32_t* counter;  ///< of the items that have added this share to the step's queries
    int place;              ///< how many of them are smaller than this one
  };
  __device__ __forceinline__ Turn turn_of(int i, int role, int lane) const {
    const StepPlace step = this->place_of(i, lane);
    const std::int64_t row = row_of(step);
    static_assert(G::kM == kPairTurnRows * kCtas * 2);  // a counter for each share
    return {row, p.d_q_turns + row / kPairTurnRows + rank * 2 + role, this->items_before(step)};
  }

  /// Starts the addition of the first part of a step's share, which is there.
  __device__ __forceinline__ void add_part(std::int64_t row, int role, int lane) const {
    this->add(row, rank * G::kDQueryHalf + role * G::kDQueryColumns, role, lane);
  }

  int rank;
};

}  // namespace flashdma_bwd::hopper::pair
