// The producer warpgroup of a CTA of two. Each of its warps has one task, most of them of one thread: to load Q, with K
// and V; to load dO; to send dS to the other CTA; to add dQ to global memory. In deterministic mode each consumer's dQ
// has a warp, and one thread loads both Q and dO.
#pragma once

#include "hopper/pair/geometry.cuh"
#include "hopper/ptx.cuh"
#include "hopper/tensor_maps.hpp"

namespace flashdma_bwd::hopper::pair {

/// What both loaders do: they walk through the item's steps and load some panels of a tile for both CTAs.
template <KernelConfig kConfig>
class Loader {
 protected:
  using G = Geometry<kConfig>;
  using State = typename G::State;
  using QueryTile = typename G::QueryTile;
  /// Both CTAs load some of each tile, so that neither can be ahead of the other by a tile.
  static_assert(QueryTile::kPanels >= 3);

  __device__ __forceinline__ Loader(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                    std::uint32_t shared, State& shared_state, int cta_rank)
      : p(parameters), maps(tensor_maps), shared_(shared), state(shared_state), rank(cta_rank) {}

  /// Calls visit(index, head, step) for every step.
  template <class Visit>
  __device__ __forceinline__ void walk_steps(HeadWalk& walk, Visit&& visit) {
    int index = 0;
    for (int h = 0; h < p.heads_per_item; ++h) {
      // The first was found with the item.
      if (h > 0) find_head(walk, state.item, p, h, G::kM, G::kN);
      for (int i = 0; i < walk.count; ++i) visit(index++, walk.head, step_of(walk, i));
    }
  }

  /// Where a step's tile lies in its tensor: found before its buffer is waited for, and in registers, for what is read
  /// from shared memory between the wait and the copies keeps the consumers waiting.
  struct TilePlace {
    int row;      ///< of the first query, with as many before the sequence's first as it is shorter than the longest
    int end_row;  ///< of the sequence
    int statistics_row;
    int head;
    int batch;
  };

  __device__ __forceinline__ TilePlace place_of(int first_query, int head) const {
    const SequenceRows& s = state.item.sequence;
    return {.row = p.seqlen_q - s.length_q + first_query,
            .end_row = static_cast<int>(s.row_q) + s.length_q,
            .statistics_row = static_cast<int>(s.scratch_row) + first_query,
            .head = head,
            .batch = p.cu_seqlens_q != nullptr ? 0 : state.item.batch};
  }

  /// The panels [begin, end) of a tile of Q or dO for both CTAs, and this CTA's LSE or D of the tile's queries. The
  /// barrier also counts `more_bytes` that are copied after it.
  __device__ __forceinline__ void load_tile(const CUtensorMap& map, int offset, const CUtensorMap& statistics_map,
                                            int statistics_offset, int stage, std::uint64_t& barrier, int begin,
                                            int end, const TilePlace& place, int more_bytes = 0) {
    constexpr std::uint16_t kBoth = 3;
    const std::uint32_t full = ptx::shared_address(&barrier);
    // Of both CTAs' copies.
    ptx::mbarrier_arrive_expect_tx(full, QueryTile::kBytes + G::kM * 4 + more_bytes);
    const std::uint32_t tile = shared_ + offset + stage * QueryTile::kBytes;
#pragma unroll 1
    for (int panel = begin; panel < end; ++panel)
      ptx::cp_async_bulk_tensor_5d_multicast(
          tile + panel * QueryTile::kPanelBytes, map,
          {panel * QueryTile::kPanelColumns, place.row, place.end_row, place.head, place.batch}, full, kBoth,
          ptx::kEvictLast);
    ptx::cp_async_bulk_tensor_2d(shared_ + statistics_offset + stage * G::kM * 4, statistics_map,
                                 {place.statistics_row, place.head}, full);
  }

  const BackwardParameters& p;
  const TensorMaps& maps;
  std::uint32_t shared_;
  State& state;
  int rank;
};

/// Loads the CTA's K and V and its half of the other's K once, Q and LSE of every step, and says what each step is.
template <KernelConfig kConfig>
class QueryLoader : Loader<kConfig> {
  using Base = Loader<kConfig>;
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

  /// Calls also(index, head, step) when it has seen to a step.
  template <class Also>
  __device__ __forceinline__ void run(Also&& also) {
    // The keys of a compacted mask have been gathered. Without steps nobody would wait for a copy, which must not
    // outlive the CTA.
    const bool load_keys = state.item.active == nullptr && state.step_count > 0;
    if (load_keys) load_keys_of_item();
    // An odd panel is this loader's in the first CTA and the dO loader's in the second.
    constexpr int kMiddle = (G::QueryTile::kPanels + 1) / 2;
    const int begin = rank == 0 ? 0 : kMiddle;
    const int end = rank == 0 ? kMiddle : G::QueryTile::kPanels;
    this->walk_steps(state.query_walk, [&](int index, int head, const TileStep& step) {
      const RingPosition<G::kQueryStages> ring(index);
      const int first_query = step.tile * G::kM;
      const std::uint64_t* const words = step.partial ? mask_words(head, first_query) : nullptr;
      const bool masked = G::kMaskBytes > 0 && words != nullptr;
      const auto place = this->place_of(first_query, head);
      ptx::mbarrier_wait_parity(ptx::shared_address(&state.query_empty[ring.stage]), ring.parity ^ 1);
      state.steps[index % kStepSlots] = {first_query, head, step.partial, words};
      this->load_tile(maps.q, G::kQuery, maps.lse, G::kLse, ring.stage, state.query_full[ring.stage], begin, end, place,
                      masked ? G::kMaskBytes : 0);
      if (masked) load_mask(ring.stage, head, first_query);
      if (load_keys && index == 0) load_values_of_item();
      also(index, head, step);
    });
  }

 private:
  /// Of the CTA's own keys.
  __device__ __forceinline__ const std::uint64_t* mask_words(int head, int first_query) const {
    if (p.mask_words == nullptr) return nullptr;
    const std::int64_t first_atom = state.item.batch * p.mask_batch_stride +
                                    head / p.mask_heads_per_head * p.mask_head_stride +
                                    (std::int64_t{state.item.key_tile} * kCtas + rank) * p.query_atoms;
    return p.mask_words + first_atom * kMaskAtom + first_query;
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
    load_panels<typename G::KeyTile>(maps.k, G::kKey, full, rank, 0);
  }
  __device__ __forceinline__ void load_values_of_item() {
    const std::uint32_t full = ptx::shared_address(&state.value_full);
    ptx::mbarrier_arrive_expect_tx(full, G::ValueTile::kBytes + G::OtherKeyTile::kBytes);
    load_panels<typename G::ValueTile>(maps.v, G::kValue, full, rank, 0);
    load_panels<typename G::OtherKeyTile>(maps.k, G::kOtherKey, full, rank ^ 1, rank * G::kDQueryHalf);
  }

  /// Keys of the CTA `key_rank`, from a column on.
  template <class Tile>
  __device__ __forceinline__ void load_panels(const CUtensorMap& map, int offset, std::uint32_t full, int key_rank,
                                              int first_column) {
    const KeyItem& item = state.item;
    const SequenceRows& s = item.sequence;
    const int head = item.head_item * p.heads_per_item / (p.heads / p.heads_kv);
    const int batch = p.cu_seqlens_k != nullptr ? 0 : item.batch;
    const int row = start_inside(item.first_position + key_rank * G::kKeys, s.length_k, item.first_position);
#pragma unroll 1
    for (int panel = 0; panel < Tile::kPanels; ++panel)
      ptx::cp_async_bulk_tensor_5d(shared_ + offset + panel * Tile::kPanelBytes, map,
                                   {start_inside(first_column + panel * Tile::kPanelColumns, p.head_dim, 0),
                                    p.seqlen_k - s.length_k + row, static_cast<int>(s.row_k) + s.length_k, head, batch},
                                   full, ptx::kEvictFirst);
  }
};

/// Loads dO and D of every step.
template <KernelConfig kConfig>
class DOutLoader : Loader<kConfig> {
  using Base = Loader<kConfig>;
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

/// Sends the CTA's dS of every step to the other CTA.
template <KernelConfig kConfig>
class DScoreSender {
  using G = Geometry<kConfig>;
  using State = typename G::State;

 public:
  __device__ __forceinline__ DScoreSender(std::uint32_t shared, State& shared_state, int cta_rank)
      : shared_(shared), state(shared_state), other(cta_rank ^ 1) {}

  __device__ __forceinline__ void run() {
    const int steps = state.step_count;
    for (int i = 0; i < steps; ++i) {
      const RingPosition<G::kDScoreStages> ring(i);
      const RingPosition<G::kOtherDScoreStages> other_ring(i);
      // What was sent to this buffer before has been used, so that it has also been read here.
      ptx::mbarrier_wait_parity(ptx::shared_address(&state.other_d_score_taken[other_ring.stage]),
                                other_ring.parity ^ 1);
      if (const int sent = i - G::kOtherDScoreStages; sent >= 0)
        ptx::mbarrier_arrive(ptx::shared_address(&state.d_score_empty[RingPosition<G::kDScoreStages>(sent).stage]));
      ptx::mbarrier_wait_parity(ptx::shared_address(&state.d_score_full[ring.stage]), ring.parity);
      constexpr int kBytes = G::PairTile::kBytes;
      ptx::cp_async_bulk_shared_cluster(
          ptx::mapa(shared_ + G::kOtherDScore + other_ring.stage * kBytes, other),
          shared_ + G::kDScore + ring.stage * kBytes, kBytes,
          ptx::mapa(ptx::shared_address(&state.other_d_score_full[other_ring.stage]), other));
    }
  }
  static_assert(G::kOtherDScoreStages <= G::kDScoreStages);

 private:
  std::uint32_t shared_;
  State& state;
  int other;
};

/// Adds the first part of the consumers' shares of every step's dQ to their scratch in global memory: one warp for both
/// consumers, or in deterministic mode one for each, which also says when it is the consumer's turn.
template <KernelConfig kConfig>
class DQueryReducer {
  using G = Geometry<kConfig>;
  using State = typename G::State;
  static constexpr int kRowBlocks = 4;  ///< of 16 queries in a share; each lies together in the scratch

 public:
  __device__ __forceinline__ DQueryReducer(const BackwardParameters& parameters, std::uint32_t shared,
                                           State& shared_state, int cta_rank)
      : p(parameters), shared_(shared), state(shared_state), rank(cta_rank) {}

  /// Both consumers' shares, as they come.
  __device__ __forceinline__ void run() {
    const int lane = ptx::fresh_thread_index() % 32;
    const int shares = state.step_count * 2;  // the value owner's and the key owner's of every step
    for (int n = 0; n < shares; ++n) {
      const int step = n / 2;
      const int role = n % 2;
      wait_for_part(role, step);
      add(row_of(place_of(step, lane)), role, lane);
      // A buffer is given back when the next one has been seen to.
      if (lane < kRowBlocks) ptx::cp_async_bulk_wait_group_read<1>();
      __syncwarp();
      if (lane == 0 && n > 0) give_back(role ^ 1);
    }
    // Shared memory must outlive the copies.
    if (lane < kRowBlocks) ptx::cp_async_bulk_wait_group();
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
      add(turn.row, role, lane);
      // Who has handed this share over has begun the next step, whose description does not change before its turn.
      if (i + 1 < steps) next = turn_of(i + 1, role, lane);
      if (lane < kRowBlocks) ptx::cp_async_bulk_wait_group_read();
      __syncwarp();
      if (lane == 0) give_back(role);
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
  __device__ __forceinline__ void wait_for_part(int role, int step) const {
    ptx::mbarrier_wait_parity(ptx::shared_address(&state.d_query_full[role]), step & 1);
  }
  __device__ __forceinline__ void give_back(int role) const {
    ptx::mbarrier_arrive(ptx::shared_address(&state.d_query_empty[role]));
  }

  struct StepPlace {
    int first_query;
    int head;
  };
  /// Read by the lane that gives the buffers back, after which the loader may write of another step.
  __device__ __forceinline__ StepPlace place_of(int step, int lane) const {
    StepPlace place{};
    if (lane == 0) {
      const StepInfo& info = state.steps[step % kStepSlots];
      place = {info.first_query, info.head};
    }
    return {__shfl_sync(0xffffffffu, place.first_query, 0), __shfl_sync(0xffffffffu, place.head, 0)};
  }
  /// In the scratch.
  __device__ __forceinline__ std::int64_t row_of(const StepPlace& step) const {
    return scratch_row_of(state.item, p, step.head) + step.first_query;
  }

  struct Turn {
    std::int64_t row;       ///< the step's first in the scratch
    std::int32_t* counter;  ///< of the items that have added this share to the step's queries
    int place;              ///< how many of them are smaller than this one
  };
  __device__ __forceinline__ Turn turn_of(int i, int role, int lane) const {
    const StepPlace step = place_of(i, lane);
    const std::int64_t row = row_of(step);
    const std::int64_t list =
        (static_cast<std::int64_t>(state.item.batch) * p.list_heads + step.head / p.list_heads_per_head) * p.key_tiles +
        state.item.key_tile;
    static_assert(G::kM == kPairTurnRows * kCtas * 2);  // a counter for each share
    return {row, p.d_q_turns + row / kPairTurnRows + rank * 2 + role,
            p.list_ranks[list * p.query_tiles + step.first_query / G::kM]};
  }

  /// Starts the addition of the first part of a step's share, which is there.
  __device__ __forceinline__ void add(std::int64_t row, int role, int lane) const {
    constexpr int kBytes = G::kDQueryPartBytes / kRowBlocks;
    const int column = rank * G::kDQueryHalf + role * G::kDQueryColumns;
    if (lane >= kRowBlocks) return;
    ptx::cp_reduce_async_bulk_add(p.d_q_scratch + (row + lane * 16) * G::kD + column / 8 * kAtomFloats,
                                  shared_ + G::kDQuery + (role * kRowBlocks + lane) * kBytes, kBytes, ptx::kEvictLast);
    ptx::cp_async_bulk_commit_group();
  }

  const BackwardParameters& p;
  std::uint32_t shared_;
  State& state;
  int rank;
};

}  // namespace flashdma_bwd::hopper::pair
