// The producer warpgroup: one thread loads tiles, one warp for each consumer adds its dQ to global memory.
#pragma once

#include "hopper/geometry.cuh"
#include "hopper/ptx.cuh"
#include "hopper/tensor_maps.hpp"

namespace flashdma_bwd::hopper {

/// Loads the item's K and V once and Q, dO, the statistics and the tile bias of every step, and says what each step is.
/// One thread.
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
    // The keys of a compacted mask have been gathered. Without steps nobody would wait for a copy, which must not
    // outlive the CTA.
    const bool load_keys = state.item.active == nullptr && state.step_count > 0;
    if (load_keys) load_key_tile<typename G::KeyTile>(maps.k, G::kKey, state.key_full);
    int index = 0;
    for (int h = 0; h < p.heads_per_item; ++h) {
      HeadWalk& walk = state.walk;
      // The first was found with the item.
      if (h > 0) find_head(walk, state.item, p, h, G::kM, G::kN);
      for (int i = 0; i < walk.count; ++i, ++index) {
        const RingPosition<G::kQueryStages> query(index);
        const RingPosition<G::kDOutStages> d_out(index);
        const TileStep step = step_of(walk, i);
        const int first_query = step.tile * G::kM;
        // With two buffers the bias's is free before Q's is, with one it is free last.
        if constexpr (kTileBias && G::kBiasStages > 1) load_bias_tile(index, first_query);

        ptx::mbarrier_wait_parity(ptx::shared_address(&state.query_empty[query.stage]), query.parity ^ 1);
        state.steps[index % kStepSlots] = {first_query, walk.head, step.partial,
                                           step.partial ? mask_words(walk.head, first_query) : nullptr};
        constexpr int kBytes = G::QueryTile::kBytes + G::kM * 4;
        const std::uint32_t query_full = ptx::shared_address(&state.query_full[query.stage]);
        ptx::mbarrier_arrive_expect_tx(query_full, G::kLoadedTogether ? 2 * kBytes : kBytes);
        load_query_tile(maps.q, G::kQuery, query.stage, query_full, first_query, walk.head, maps.lse, G::kLse);
        if (load_keys && index == 0) load_key_tile<typename G::ValueTile>(maps.v, G::kValue, state.value_full);

        std::uint32_t d_out_full = query_full;
        if constexpr (!G::kLoadedTogether) {
          d_out_full = ptx::shared_address(&state.d_out_full[d_out.stage]);
          ptx::mbarrier_wait_parity(ptx::shared_address(&state.d_out_empty[d_out.stage]), d_out.parity ^ 1);
          ptx::mbarrier_arrive_expect_tx(d_out_full, kBytes);
        }
        load_query_tile(maps.d_out, G::kDOut, d_out.stage, d_out_full, first_query, walk.head, maps.row_dot,
                        G::kRowDot);
        if constexpr (kTileBias && G::kBiasStages == 1) load_bias_tile(index, first_query);
      }
    }
  }

 private:
  __device__ __forceinline__ const std::uint64_t* mask_words(int head, int first_query) const {
    if (p.mask_words == nullptr) return nullptr;
    const std::int64_t first_atom = state.item.batch * p.mask_batch_stride +
                                    head / p.mask_heads_per_head * p.mask_head_stride +
                                    std::int64_t{state.item.key_tile} * (G::kN / kMaskAtom) * p.query_atoms;
    return p.mask_words + first_atom * kMaskAtom + first_query;
  }

  /// The biases of the index-th step, whose head is that of the walk: those of each consumer's keys, a panel, as soon
  /// as it has read the last ones, so that the consumers can drift apart.
  __device__ __forceinline__ void load_bias_tile(int index, int first_query) {
    using Tile = typename G::PairTile;
    static_assert(Tile::kPanels == G::kConsumers);
    const RingPosition<G::kBiasStages> ring(index);
    const int length = state.item.sequence.length_q;
    const int head = state.walk.head / p.bias.heads_per_head;
    const int batch = p.bias.stride_batch == 0 ? 0 : state.item.batch;
    unsigned missing = (1u << Tile::kPanels) - 1;
    while (true) {
#pragma unroll
      for (int panel = 0; panel < Tile::kPanels; ++panel) {
        if ((missing >> panel & 1u) == 0 ||
            !ptx::mbarrier_test_parity(ptx::shared_address(&state.bias_empty[ring.stage][panel]), ring.parity ^ 1))
          continue;
        missing &= ~(1u << panel);
        const std::uint32_t full = ptx::shared_address(&state.bias_full[ring.stage][panel]);
        ptx::mbarrier_arrive_expect_tx(full, Tile::kPanelBytes);
        ptx::cp_async_bulk_tensor_5d(shared_ + G::kTileBias + ring.stage * Tile::kBytes + panel * Tile::kPanelBytes,
                                     maps.bias,
                                     {state.item.first_position + panel * Tile::kPanelColumns,
                                      p.seqlen_q - length + first_query, length, head, batch},
                                     full, ptx::kEvictFirst);
      }
      if (missing == 0) break;
      __nanosleep(kPollNanoseconds);
    }
  }

  static constexpr unsigned kPollNanoseconds = 40;  ///< the computing warps need the issue slots

  template <class Tile>
  __device__ __forceinline__ void load_key_tile(const CUtensorMap& map, int offset, std::uint64_t& barrier) {
    const KeyItem& item = state.item;
    const SequenceRows& s = item.sequence;
    const std::uint32_t full = ptx::shared_address(&barrier);
    ptx::mbarrier_arrive_expect_tx(full, Tile::kBytes);
    const int head = item.head_item * p.heads_per_item / (p.heads / p.heads_kv);
    const int batch = p.cu_seqlens_k != nullptr ? 0 : item.batch;
#pragma unroll
    for (int panel = 0; panel < Tile::kPanels; ++panel)
      ptx::cp_async_bulk_tensor_5d(shared_ + offset + panel * Tile::kPanelBytes, map,
                                   {panel * Tile::kPanelColumns, p.seqlen_k - s.length_k + item.first_position,
                                    static_cast<int>(s.row_k) + s.length_k, head, batch},
                                   full, ptx::kEvictFirst);
  }

  __device__ __forceinline__ void load_query_tile(const CUtensorMap& map, int offset, int stage, std::uint32_t full,
                                                  int first_query, int head, const CUtensorMap& statistics_map,
                                                  int statistics_offset) {
    using Tile = typename G::QueryTile;
    const SequenceRows& s = state.item.sequence;
    const int batch = p.cu_seqlens_q != nullptr ? 0 : state.item.batch;
#pragma unroll
    for (int panel = 0; panel < Tile::kPanels; ++panel)
      ptx::cp_async_bulk_tensor_5d(shared_ + offset + stage * Tile::kBytes + panel * Tile::kPanelBytes, map,
                                   {panel * Tile::kPanelColumns, p.seqlen_q - s.length_q + first_query,
                                    static_cast<int>(s.row_q) + s.length_q, head, batch},
                                   full, ptx::kEvictLast);
    ptx::cp_async_bulk_tensor_2d(shared_ + statistics_offset + stage * G::kM * 4, statistics_map,
                                 {static_cast<int>(s.scratch_row) + first_query, head}, full);
  }

  const BackwardParameters& p;
  const TensorMaps& maps;
  std::uint32_t shared_;
  State& state;
};

/// Adds a consumer's share of every step's dQ to its scratch in global memory, and stores its keys' dS as the gradient
/// of a tile bias. One warp.
template <KernelConfig kConfig>
class DQueryReducer {
  using G = Geometry<kConfig>;
  using State = typename G::State;
  static constexpr bool kTileBias = kConfig.bias == BiasKind::tile;
  static constexpr int kRowBlocks = 4;  ///< of 16 queries in a share; each lies together in the scratch

 public:
  __device__ __forceinline__ DQueryReducer(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                           std::uint32_t shared, State& shared_state, int consumer)
      : p(parameters), maps(tensor_maps), shared_(shared), state(shared_state), consumer_(consumer) {}

  __device__ __forceinline__ void run() {
    const int lane = ptx::fresh_thread_index() % 32;
    const std::uint32_t full = ptx::shared_address(&state.d_query_full[consumer_]);
    const std::uint32_t empty = ptx::shared_address(&state.d_query_empty[consumer_]);
    constexpr bool kRows = G::kDQueryShare == DQueryShare::rows;
    const int first_row = kRows ? consumer_ * 64 : 0;
    const int first_column = kRows ? 0 : consumer_ * G::kDQueryColumns;
    constexpr int kBytes = G::kDQueryBytes / kRowBlocks;
    const int steps = state.step_count;
    for (int i = 0; i < steps; ++i) {
      ptx::mbarrier_wait_parity(full, i & 1);
      const StepInfo info = state.steps[i % kStepSlots];
      if constexpr (kTileBias)
        if (lane == 0 && p.bias_gradient != BiasGradient::none) start_bias_gradient(i, info);
      const std::int64_t row = scratch_row_of(state.item, p, info.head) + info.first_query;
      std::int32_t* turn = p.d_q_turns == nullptr ? nullptr : p.d_q_turns + row / kTurnRows + consumer_;
      int rank = 0;
      if (turn != nullptr) {
        rank = place_in_turn<G::kM>(p, state.item, info);
        while (ptx::ld_acquire(turn) != rank) {
        }
        ptx::fence_proxy_async_global();
      }
      if (lane < kRowBlocks) {
        float* destination =
            p.d_q_scratch + ((row + first_row) / 16 + lane) * (16 * G::kD) + first_column / 8 * kAtomFloats;
        ptx::cp_reduce_async_bulk_add(destination, shared_ + G::kDQuery + consumer_ * G::kDQueryBytes + lane * kBytes,
                                      kBytes, ptx::kEvictLast);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read();
      }
      __syncwarp();
      if (lane == 0) {
        ptx::mbarrier_arrive(empty);
        if constexpr (kTileBias)
          if (p.bias_gradient != BiasGradient::none)
            ptx::mbarrier_arrive(ptx::shared_address(&state.d_score_empty[RingPosition<G::kDScoreStages>(i).stage]));
      }
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
    if (lane < kRowBlocks) ptx::cp_async_bulk_wait_group();
  }

 private:
  /// Stores dS of the step with the consumer's keys: who hands dQ over has long stored its dS in the ring. Where masks
  /// hide pairs, and past the ends of a sequence, dS is 0.
  __device__ __forceinline__ void start_bias_gradient(int i, const StepInfo& info) const {
    using Tile = typename G::PairTile;
    ptx::cp_async_bulk_tensor_4d_store(
        maps.d_bias,
        {state.item.first_position + consumer_ * Tile::kPanelColumns, info.first_query, info.head, state.item.batch},
        shared_ + G::kDScore + RingPosition<G::kDScoreStages>(i).stage * Tile::kBytes + consumer_ * Tile::kPanelBytes,
        ptx::kEvictFirst);
  }

  const BackwardParameters& p;
  const TensorMaps& maps;
  std::uint32_t shared_;
  State& state;
  int consumer_;
};

}  // namespace flashdma_bwd::hopper
