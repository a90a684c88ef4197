// The producer warpgroup of a CTA with transposed gradients. Each of its warps has one task: a thread loads Q, with K
// and V, a thread loads dO, and two warps add what the consumers hand over of dQ to global memory.
#pragma once

#include "hopper/owners/d_query_reducer.cuh"
#include "hopper/owners/loader.cuh"
#include "hopper/transposed/geometry.cuh"

namespace flashdma_bwd::hopper::transposed {

/// What both loaders do: they load a tile for each step.
template <KernelConfig kConfig>
class Loader : protected owners::Loader<Geometry<kConfig>> {
  using Base = owners::Loader<Geometry<kConfig>>;

 protected:
  using Base::Base;
  using typename Base::G;
  using typename Base::QueryTile;
  using typename Base::State;

  /// A tile of Q or dO, and LSE or D of its queries. The barrier also counts `more_bytes` that are copied after it.
  __device__ __forceinline__ void load_tile(const CUtensorMap& map, int offset, const CUtensorMap& statistics_map,
                                            int statistics_offset, int stage, std::uint64_t& barrier,
                                            const TilePlace& place, int more_bytes = 0) {
    const std::uint32_t full = ptx::shared_address(&barrier);
    ptx::mbarrier_arrive_expect_tx(full, QueryTile::kBytes + G::kM * 4 + more_bytes);
    const std::uint32_t tile = this->shared_ + offset + stage * QueryTile::kBytes;
#pragma unroll 1
    for (int panel = 0; panel < QueryTile::kPanels; ++panel)
      ptx::cp_async_bulk_tensor_5d(
          tile + panel * QueryTile::kPanelBytes, map,
          {panel * QueryTile::kPanelColumns, place.row, place.end_row, place.head, place.batch}, full, ptx::kEvictLast);
    this->load_statistics(statistics_map, statistics_offset, stage, full, place);
  }
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
      load_keys_of_item<typename G::KeyTile>(maps.k, G::kKey, state.key_full);
    int last_head = -1;
    this->walk_steps(state.query_walk, [&](int index, int head, const TileStep& step) {
      const RingPosition<G::kQueryStages> ring(index);
      const int first_query = step.tile * G::kM;
      const bool has_words = step.is_partial() && p.mask_words != nullptr;
      const int atoms = has_words ? atoms_with_pairs(head, step.tile) : 0;
      const auto place = this->place_of(first_query, head);
      ptx::mbarrier_wait_parity(ptx::shared_address(&state.query_empty[ring.stage]), ring.parity ^ 1);
      Step& info = state.steps[static_cast<unsigned>(index) % kStepSlots];
      info.first_query = first_query;
      info.head = head;
      info.new_head = head != last_head;
      last_head = head;
      info.partial = step.is_partial();
      info.has_words = has_words;
      if (has_words) info.atoms = atoms;
      this->load_tile(maps.q, G::kQuery, maps.lse, G::kLse, ring.stage, state.query_full[ring.stage], place,
                      has_words ? G::kMaskBytes : 0);
      if (has_words) load_mask(ring.stage, head, first_query);
      if (index == 0 && state.item.active == nullptr)
        load_keys_of_item<typename G::ValueTile>(maps.v, G::kValue, state.value_full);
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
  __device__ __forceinline__ void load_keys_of_item(const CUtensorMap& map, int offset, std::uint64_t& barrier) {
    const std::uint32_t full = ptx::shared_address(&barrier);
    ptx::mbarrier_arrive_expect_tx(full, Tile::kBytes);
    this->template load_key_tile<Tile>(map, offset, full, state.item.head_kv, state.item.first_position);
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
      if constexpr (kConfig.bias == BiasKind::key_vector) state.heads[static_cast<unsigned>(index) % kStepSlots] = head;
      ptx::mbarrier_wait_parity(ptx::shared_address(&state.d_out_empty[ring.stage]), ring.parity ^ 1);
      this->load_tile(maps.d_out, G::kDOut, maps.row_dot, G::kRowDot, ring.stage, state.d_out_full[ring.stage], place);
    });
  }
};

/// Adds the first part of a consumer's share of every step's dQ to its scratch in global memory; in deterministic mode
/// all parts, in the order of the items. One warp.
template <KernelConfig kConfig>
class DQueryReducer : owners::DQueryReducer<Geometry<kConfig>> {
  using Base = owners::DQueryReducer<Geometry<kConfig>>;
  using Base::kRowBlocks;
  using Base::p;
  using Base::row_of;
  using Base::state;
  using typename Base::G;
  using typename Base::State;
  using typename Base::StepPlace;

 public:
  __device__ __forceinline__ DQueryReducer(const BackwardParameters& parameters, std::uint32_t shared,
                                           State& shared_state, int consumer_role)
      : Base(parameters, shared, shared_state), role(consumer_role) {}

  __device__ __forceinline__ void run() {
    const int lane = ptx::fresh_thread_index() % 32;
    const int steps = state.step_count;
    for (int step = 0; step < steps; ++step) {
      if (p.d_q_turns != nullptr) {
        add_in_turn(step, lane);
      } else {
        this->wait_for_part(role, step);
        add_part(row_of(this->place_of(step, lane)), 0, lane);
        this->give_back_when_read(role, lane);
      }
    }
    this->finish(lane);
  }

 private:
  /// Starts the addition of a part of a step's share, which is there.
  __device__ __forceinline__ void add_part(std::int64_t row, int part, int lane) const {
    this->add(row, role * G::kDQueryColumns + part * G::kDQueryPart, role, lane);
  }

  /// Adds all of a step's share when all smaller items have added theirs. An item waits for smaller ones only, so that
  /// what it holds back meanwhile blocks nobody for ever.
  __device__ __forceinline__ void add_in_turn(int step, int lane) const {
    this->wait_for_part(role, G::kDQueryParts * step);
    const StepPlace at = this->place_of(step, lane);
    const std::int64_t row = row_of(at);
    const int place = this->items_before(at);
    std::int32_t* const turn = p.d_q_turns + row / kTurnRows + role;
    while (ptx::ld_acquire(turn) != place) {
    }
    ptx::fence_proxy_async_global();
#pragma unroll 1
    for (int part = 0; part < G::kDQueryParts; ++part) {
      if (part > 0) this->wait_for_part(role, G::kDQueryParts * step + part);
      add_part(row, part, lane);
      this->give_back_when_read(role, lane);
    }
    if (lane < kRowBlocks) {
      ptx::cp_async_bulk_wait_group();
      ptx::fence_proxy_async_global();
      __threadfence();
    }
    __syncwarp();
    if (lane == 0) ptx::st_release(turn, place + 1);
  }

  int role;
};

}  // namespace flashdma_bwd::hopper::transposed
