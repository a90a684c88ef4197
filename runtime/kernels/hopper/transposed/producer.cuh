// The producer warpgroup of a CTA with transposed gradients. Each of its warps has one task: a thread loads Q, with K
// and V, a thread loads dO, and two warps add what the consumers hand over of dQ to global memory.
#pragma once

#include "hopper/ptx.cuh"
#include "hopper/tensor_maps.hpp"
#include "hopper/transposed/geometry.cuh"

namespace flashdma_bwd::hopper::transposed {

/// What both loaders do: they walk through the item's steps and load a tile for each.
template <KernelConfig kConfig>
class Loader {
 protected:
  using G = Geometry<kConfig>;
  using State = typename G::State;
  using QueryTile = typename G::QueryTile;

  __device__ __forceinline__ Loader(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                    std::uint32_t shared, State& shared_state)
      : p(parameters), maps(tensor_maps), shared_(shared), state(shared_state) {}

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

  /// A tile of Q or dO, and LSE or D of its queries. The barrier also counts `more_bytes` that are copied after it.
  __device__ __forceinline__ void load_tile(const CUtensorMap& map, int offset, const CUtensorMap& statistics_map,
                                            int statistics_offset, int stage, std::uint64_t& barrier,
                                            const TilePlace& place, int more_bytes = 0) {
    const std::uint32_t full = ptx::shared_address(&barrier);
    ptx::mbarrier_arrive_expect_tx(full, QueryTile::kBytes + G::kM * 4 + more_bytes);
    const std::uint32_t tile = shared_ + offset + stage * QueryTile::kBytes;
#pragma unroll 1
    for (int panel = 0; panel < QueryTile::kPanels; ++panel)
      ptx::cp_async_bulk_tensor_5d(
          tile + panel * QueryTile::kPanelBytes, map,
          {panel * QueryTile::kPanelColumns, place.row, place.end_row, place.head, place.batch}, full, ptx::kEvictLast);
    ptx::cp_async_bulk_tensor_2d(shared_ + statistics_offset + stage * G::kM * 4, statistics_map,
                                 {place.statistics_row, place.head}, full);
  }

  const BackwardParameters& p;
  const TensorMaps& maps;
  std::uint32_t shared_;
  State& state;
};

/// Loads K and V once, Q and LSE of every step, and says what each step is.
template <KernelConfig kConfig>
class QueryLoader : Loader<kConfig> {
  using Base = Loader<kConfig>;
  using Base::maps;
  using Base::p;
  using Base::shared_;
  using Base::state;
  using typename Base::G;
  using typename Base::State;

 public:
  __device__ __forceinline__ QueryLoader(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                         std::uint32_t shared, State& shared_state)
      : Base(parameters, tensor_maps, shared, shared_state) {}

  __device__ __forceinline__ void run() {
    // The keys of a compacted mask have been gathered. Without steps nobody would wait for a copy, which must not
    // outlive the CTA.
    if (state.item.active == nullptr && state.step_count > 0)
      load_keys<typename G::KeyTile>(maps.k, G::kKey, state.key_full);
    this->walk_steps(state.query_walk, [&](int index, int head, const TileStep& step) {
      const RingPosition<G::kQueryStages> ring(index);
      const int first_query = step.tile * G::kM;
      const bool has_words = step.partial && p.mask_words != nullptr;
      const int atoms = has_words ? atoms_with_pairs(head, step.tile) : 0;
      const auto place = this->place_of(first_query, head);
      ptx::mbarrier_wait_parity(ptx::shared_address(&state.query_empty[ring.stage]), ring.parity ^ 1);
      Step& info = state.steps[static_cast<unsigned>(index) % kStepSlots];
      info.first_query = first_query;
      info.head = head;
      info.partial = step.partial;
      info.has_words = has_words;
      if (has_words) info.atoms = atoms;
      this->load_tile(maps.q, G::kQuery, maps.lse, G::kLse, ring.stage, state.query_full[ring.stage], place,
                      has_words ? G::kMaskBytes : 0);
      if (has_words) load_mask(ring.stage, head, first_query);
      if (index == 0 && state.item.active == nullptr)
        load_keys<typename G::ValueTile>(maps.v, G::kValue, state.value_full);
    });
  }

 private:
  /// The first key atom that the tile lies in.
  __device__ __forceinline__ int first_atom() const { return state.item.key_tile * G::kN / kMaskAtom; }

  __device__ __forceinline__ int atoms_with_pairs(int head, int query_atom) const {
    static_assert(G::kM == kMaskAtom);
    const std::uint8_t* const classes = p.mask_classes + state.item.batch * p.mask_batch_stride +
                                        head / p.mask_heads_per_head * p.mask_head_stride + query_atom;
    const int end = state.item.key_tile * G::kN + state.item.keys;
    int atoms = 0;
#pragma unroll 1
    for (int i = 0; i < G::kMaskAtoms; ++i) {
      const int atom = first_atom() + i;
      if (atom * kMaskAtom < end && classes[static_cast<std::int64_t>(atom) * p.query_atoms] != 0) atoms |= 1 << i;
    }
    return atoms;
  }

  /// The mask's words of a step; zeros past the last key atom.
  __device__ __forceinline__ void load_mask(int stage, int head, int first_query) const {
    const int mask = state.item.batch * p.compact_batch_stride + head / p.mask_heads_per_head;
    ptx::cp_async_bulk_tensor_3d(shared_ + G::kMask + stage * G::kMaskBytes, maps.mask,
                                 {first_query, first_atom(), mask}, ptx::shared_address(&state.query_full[stage]));
  }

  template <class Tile>
  __device__ __forceinline__ void load_keys(const CUtensorMap& map, int offset, std::uint64_t& barrier) {
    const KeyItem& item = state.item;
    const SequenceRows& s = item.sequence;
    const std::uint32_t full = ptx::shared_address(&barrier);
    ptx::mbarrier_arrive_expect_tx(full, Tile::kBytes);
    const int batch = p.cu_seqlens_k != nullptr ? 0 : item.batch;
#pragma unroll 1
    for (int panel = 0; panel < Tile::kPanels; ++panel)
      ptx::cp_async_bulk_tensor_5d(
          shared_ + offset + panel * Tile::kPanelBytes, map,
          {start_inside(panel * Tile::kPanelColumns, p.head_dim, 0), p.seqlen_k - s.length_k + item.first_position,
           static_cast<int>(s.row_k) + s.length_k, item.head_kv, batch},
          full, ptx::kEvictFirst);
  }
};

/// Loads dO and D of every step.
template <KernelConfig kConfig>
class DOutLoader : Loader<kConfig> {
  using Base = Loader<kConfig>;
  using Base::maps;
  using Base::state;
  using typename Base::G;
  using typename Base::State;

 public:
  __device__ __forceinline__ DOutLoader(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                        std::uint32_t shared, State& shared_state)
      : Base(parameters, tensor_maps, shared, shared_state) {}

  __device__ __forceinline__ void run() {
    this->walk_steps(state.d_out_walk, [&](int index, int head, const TileStep& step) {
      const RingPosition<G::kDOutStages> ring(index);
      const auto place = this->place_of(step.tile * G::kM, head);
      ptx::mbarrier_wait_parity(ptx::shared_address(&state.d_out_empty[ring.stage]), ring.parity ^ 1);
      this->load_tile(maps.d_out, G::kDOut, maps.row_dot, G::kRowDot, ring.stage, state.d_out_full[ring.stage], place);
    });
  }
};

/// Adds the first part of a consumer's share of every step's dQ to its scratch in global memory; in deterministic mode
/// all parts, in the order of the items. One warp.
template <KernelConfig kConfig>
class DQueryReducer {
  using G = Geometry<kConfig>;
  using State = typename G::State;
  static constexpr int kRowBlocks = 4;  ///< of 16 queries in a share; each lies together in the scratch

 public:
  __device__ __forceinline__ DQueryReducer(const BackwardParameters& parameters, std::uint32_t shared,
                                           State& shared_state, int consumer_role)
      : p(parameters), shared_(shared), state(shared_state), role(consumer_role) {}

  __device__ __forceinline__ void run() {
    const int lane = ptx::fresh_thread_index() % 32;
    const int steps = state.step_count;
    for (int step = 0; step < steps; ++step) {
      if (p.d_q_turns != nullptr) {
        add_in_turn(step, lane);
      } else {
        wait_for_part(step);
        add(place_of(step, lane), 0, lane);
        give_back_when_read(lane);
      }
    }
    // Shared memory must outlive the copies.
    if (lane < kRowBlocks) ptx::cp_async_bulk_wait_group();
  }

 private:
  /// `use` counts the uses of the buffer.
  __device__ __forceinline__ void wait_for_part(int use) const {
    ptx::mbarrier_wait_parity(ptx::shared_address(&state.d_query_full[role]), use & 1);
  }
  __device__ __forceinline__ void give_back_when_read(int lane) const {
    if (lane < kRowBlocks) ptx::cp_async_bulk_wait_group_read();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(ptx::shared_address(&state.d_query_empty[role]));
  }

  struct StepPlace {
    int first_query;
    int head;
  };
  /// Read by the lane that gives the buffer back, after which the loader may write of another step.
  __device__ __forceinline__ StepPlace place_of(int step, int lane) const {
    StepPlace place{};
    if (lane == 0) {
      const Step& info = state.steps[static_cast<unsigned>(step) % kStepSlots];
      place = {info.first_query, info.head};
    }
    return {__shfl_sync(0xffffffffu, place.first_query, 0), __shfl_sync(0xffffffffu, place.head, 0)};
  }

  /// Starts the addition of a part of a step's share, which is there.
  __device__ __forceinline__ void add(const StepPlace& place, int part, int lane) const {
    if (lane >= kRowBlocks) return;
    constexpr int kBytes = G::kDQueryPartBytes / kRowBlocks;
    const std::int64_t row = scratch_row_of(state.item, p, place.head) + place.first_query;
    const int column = role * G::kDQueryColumns + part * G::kDQueryPart;
    ptx::cp_reduce_async_bulk_add(p.d_q_scratch + (row + lane * 16) * G::kD + column / 8 * kAtomFloats,
                                  shared_ + G::kDQuery + (role * kRowBlocks + lane) * kBytes, kBytes, ptx::kEvictLast);
    ptx::cp_async_bulk_commit_group();
  }

  /// Adds all of a step's share when all smaller items have added theirs. An item waits for smaller ones only, so that
  /// what it holds back meanwhile blocks nobody for ever.
  __device__ __forceinline__ void add_in_turn(int step, int lane) const {
    wait_for_part(G::kDQueryParts * step);
    const StepPlace at = place_of(step, lane);
    const std::int64_t list =
        (static_cast<std::int64_t>(state.item.batch) * p.list_heads + at.head / p.list_heads_per_head) * p.key_tiles +
        state.item.key_tile;
    const int place = p.list_ranks[list * p.query_tiles + at.first_query / G::kM];
    std::int32_t* const turn =
        p.d_q_turns + (scratch_row_of(state.item, p, at.head) + at.first_query) / kTurnRows + role;
    while (ptx::ld_acquire(turn) != place) {
    }
    ptx::fence_proxy_async_global();
#pragma unroll 1
    for (int part = 0; part < G::kDQueryParts; ++part) {
      if (part > 0) wait_for_part(G::kDQueryParts * step + part);
      add(at, part, lane);
      give_back_when_read(lane);
    }
    if (lane < kRowBlocks) {
      ptx::cp_async_bulk_wait_group();
      ptx::fence_proxy_async_global();
      __threadfence();
    }
    __syncwarp();
    if (lane == 0) ptx::st_release(turn, place + 1);
  }

  const BackwardParameters& p;
  std::uint32_t shared_;
  State& state;
  int role;
};

}  // namespace flashdma_bwd::hopper::transposed
