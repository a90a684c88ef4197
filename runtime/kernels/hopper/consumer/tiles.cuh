// A consumer warpgroup's keys, and where in shared memory a step's tiles are that it reads and writes.
#pragma once

#include <cstddef>

#include "hopper/consumer/step_choices.cuh"
#include "hopper/consumer_warp.cuh"
#include "hopper/gather_keys.cuh"
#include "hopper/geometry.cuh"
#include "hopper/ptx.cuh"
#include "hopper/statistic_columns.cuh"
#include "hopper/tensor_maps.hpp"

namespace flashdma_bwd::hopper {

/// The first part of a Consumer (consumer.cuh), on which the others build: its place in the CTA, and the item at work.
/// Each part names what it takes from those before it, for templates do not find a base's names by themselves.
template <KernelConfig kConfig, bool kAddsDQuery>
class ConsumerTiles : protected StepChoices<kConfig, kAddsDQuery> {
 protected:
  using Base = StepChoices<kConfig, kAddsDQuery>;
  using Base::kTileBias, Base::kM, Base::kD, Base::kValueInRegisters;
  using G = Geometry<kConfig>;
  using State = typename G::State;
  using QueryTile = typename G::QueryTile;
  using KeyTile = typename G::KeyTile;
  using ValueTile = typename G::ValueTile;
  using PairTile = typename G::PairTile;
  using DScoreRing = RingPosition<G::kDScoreStages>;
  using BiasRing = RingPosition<Base::kTileBias ? G::kBiasStages : 1>;
  using ValueOperand = std::uint32_t[Base::kValueInRegisters ? Base::kD / 16 : 1][4];

  __device__ __forceinline__ ConsumerTiles(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                           std::uint32_t shared, State& shared_state, int consumer)
      : p(parameters), maps(tensor_maps), shared_(shared), state(shared_state), consumer_(consumer) {}

  // --- The keys ---

  /// Row of the item's tile of a lane's first key; the second is 8 further.
  __device__ __forceinline__ int key_row() const { return consumer_thread() / 32 * 16 + lane() / 4; }

  /// Of all consumers' threads.
  static __device__ __forceinline__ int consumer_thread() { return ptx::fresh_thread_index() - kWarpgroupThreads; }

  /// Of the lane's two keys.
  __device__ __forceinline__ int position(const KeyItem& item, int half) const {
    return position_of_row(item, key_row() + half * 8);
  }

  /// Loads the warpgroup's rows of K and V, which a compacted mask scatters. The buffer of K is free; the rows of V
  /// were read by the warpgroup's own products only. The others' rows of K are there when the others' dS is.
  __device__ __forceinline__ void gather_keys() const {
    const KeyItem& item = state.items[slot_];
    const int thread = ptx::fresh_thread_index() % kWarpgroupThreads;
    const int row = consumer_ * G::kKeysOfConsumer;
    const std::int32_t* const staged = stages_keys<kConfig>(p) ? G::staged_keys(state, consumer_) : nullptr;
    gather_key_rows<KeyTile, kWarpgroupThreads, G::kKeysOfConsumer>(p, item, p.k, row, 0, shared_ + key_tile(slot_),
                                                                    row, thread, staged);
    ptx::barrier_sync(kFirstConsumerBarrier + consumer_, kWarpgroupThreads);
    gather_key_rows<ValueTile, kWarpgroupThreads, G::kKeysOfConsumer>(p, item, p.v, row, 0, shared_ + G::kValue, row,
                                                                      thread, staged);
    finish_gathering();
    ptx::barrier_sync(kFirstConsumerBarrier + consumer_, kWarpgroupThreads);
  }

  // --- The tiles of a step ---

  /// What the loader says of step i.
  __device__ __forceinline__ const ItemStep& step_info(int i) const { return state.steps[i % kStepSlots]; }

  /// Descriptors of Q and dO of step i.
  __device__ __forceinline__ std::uint32_t query_tile(int i) const {
    return QueryTile::descriptor(shared_ + G::kQuery) +
           RingPosition<G::kQueryStages>(i).stage * (QueryTile::kBytes >> 4);
  }
  __device__ __forceinline__ std::uint32_t d_out_tile(int i) const {
    return QueryTile::descriptor(shared_ + G::kDOut) + RingPosition<G::kDOutStages>(i).stage * (QueryTile::kBytes >> 4);
  }

  /// Of the item of the step before, where `first` is the first of the item at work. The same as a variable that comes
  /// round the loop, which where steps are left out would not stay in a uniform register.
  __device__ __forceinline__ int slot_before(int i, int first) const {
    return !G::kSeveralItems ? 0 : i == first ? slot_ ^ 1 : slot_;
  }

  /// Offset of the K of the item in a slot.
  static __device__ __forceinline__ std::uint32_t key_tile(int slot) { return G::kKey + slot * KeyTile::kBytes; }

  /// The warpgroup's rows of the item's K, and of V.
  __device__ __forceinline__ std::uint32_t own_keys() const { return own_rows<KeyTile>(key_tile(slot_)); }
  __device__ __forceinline__ std::uint32_t own_values() const { return own_rows<ValueTile>(G::kValue); }
  template <class Tile>
  __device__ __forceinline__ std::uint32_t own_rows(std::uint32_t offset) const {
    return ptx::opaque(Tile::descriptor(shared_ + offset) + consumer_ * (64 * Tile::kRowBytes >> 4));
  }

  /// The warpgroup's rows of V, as wgmma's A operand.
  __device__ __forceinline__ void load_values(ValueOperand& values) const {
    const int row = consumer_ * 64 + warp() * 16 + lane() % 16;
#pragma unroll
    for (int k = 0; k < kD / 16; ++k)
      ptx::ldmatrix_x4(values[k], shared_ + G::kValue + ValueTile::chunk_offset(row, k * 2 + lane() / 16));
  }

  /// Gives back the buffers of Q and dO of step i, whose products have all finished.
  __device__ __forceinline__ void give_back_query(int i) const {
    arrive<kLastLane>(state.query_empty[RingPosition<G::kQueryStages>(i).stage]);
    if constexpr (!G::kLoadedTogether) arrive<kLastLane>(state.d_out_empty[RingPosition<G::kDOutStages>(i).stage]);
  }

  /// The terms of step i's queries.
  __device__ __forceinline__ std::uint32_t statistics(int i) const {
    return shared_ + G::kTerms + RingPosition<G::kQueryStages>(i).stage * G::kTermBytes;
  }

  /// The LSE of the lane's first query, where it lies in its terms.
  __device__ __forceinline__ std::uint32_t lse_in_terms(int i) const {
    return statistics(i) + lane() % 4 * (2 * sizeof(StatisticTerms)) + offsetof(StatisticTerms, lse);
  }

  /// Of the LSE and of D of the lane's first query of step i, where the products do not subtract them.
  __device__ __forceinline__ std::uint32_t lse_address(int i) const {
    return shared_ + G::kLse + RingPosition<G::kQueryStages>(i).stage * (kM * 4) + lane() % 4 * 8;
  }
  __device__ __forceinline__ std::uint32_t row_dot_address(int i) const {
    return shared_ + G::kRowDot + RingPosition<G::kDOutStages>(i).stage * (kM * 4) + lane() % 4 * 8;
  }

  /// As pair_rows(): of dS in a buffer of its ring, and of step i's tile bias.
  __device__ __forceinline__ std::uint32_t d_score_rows(int stage) const {
    return pair_rows(G::kDScore, stage);
  }
  __device__ __forceinline__ std::uint32_t bias_rows(int i) const {
    return pair_rows(G::kBias, BiasRing(i).stage);
  }

  /// In a buffer of a ring at `offset`: the lane's row of 8 keys, for stmatrix and ldmatrix of the first 16 queries
  /// with the warp's keys.
  __device__ __forceinline__ std::uint32_t pair_rows(int offset, int stage) const {
    // Row lane % 8 + lane / 16 * 8, whose chunk warp * 2 + lane / 8 % 2 the swizzle moves.
    static_assert(PairTile::kRowBytes == 128);
    const unsigned lane = ptx::lane_index();
    const unsigned row = lane % 8;
    const unsigned chunk = static_cast<unsigned>(warp()) << 1 | (lane >> 3 & 1u);
    return shared_ + offset + stage * PairTile::kBytes + consumer_ * PairTile::kPanelBytes +
           (row << 7 | (lane & 16u) << 6 | (chunk ^ row) << 4);
  }

  static constexpr int kFirstConsumerBarrier = 1;  ///< named barriers: 0 is the CTA's
  static constexpr int kFirstTurnBarrier = kFirstConsumerBarrier + G::kConsumers;

  const BackwardParameters& p;
  const TensorMaps& maps;
  std::uint32_t shared_;
  State& state;
  int consumer_;
  int slot_ = 0;  ///< of the item at work
};

}  // namespace flashdma_bwd::hopper
