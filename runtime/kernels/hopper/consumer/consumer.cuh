// A consumer warpgroup: 64 keys of an item's tile, against all query tiles that see any of the item's keys; one item
// after the other.
//
// A step i computes, with the warpgroup's keys as the rows of its products:
//
//     S^T = K Q^T,  dP^T = V dO^T                       accumulators; one more product may subtract LSE
//                                                       or D (statistic_columns.cuh)
//     P = exp(scale S + bias - LSE),  dS = P (dP - D)   accumulators; dS also goes to a ring in shared memory, from
//                                                       where it is stored as a tile bias's gradient, too
//     dV += P^T dO,  dK += dS^T Q                       P^T and dS^T are operands as they stand in the registers
//     dQ = dS K                                         a share of the dQ of all the item's keys, one step late
//
// dQ needs the other warpgroups' dS. It is computed one step late from the ring, so that nobody waits for anybody's dS:
// the warpgroups drift apart, and the arithmetic of one runs under the products of the other; in some kernels they take
// turns with it (kTakesTurns). dQ of an item's last step is computed with the first step of the next item, for which
// the old K stays where it is. The order of a step's parts, and that the score product of the next step is issued under
// dV and dK of this one, were chosen by measurement, see notes/step.md. The transposed products and their register
// operands follow FlashAttention-3 (Shah et al., 2024), and so do the turns, which its forward pass has.
//
// Here are the loops over items and steps, and dK and dV. S, P and dP are in scores.cuh, dS and dQ in d_scores.cuh, a
// key bias in key_bias.cuh; what the tiles are in shared memory in tiles.cuh, and all choices in step_choices.cuh.
#pragma once

#include "hopper/consumer/d_scores.cuh"
#include "hopper/geometry.cuh"
#include "hopper/key_gradient.cuh"
#include "hopper/ptx.cuh"
#include "hopper/wgmma.cuh"

namespace flashdma_bwd::hopper {

/// `kAddsDQuery`: else another kernel computes dQ of a tile bias's gradient, which dS is.
template <KernelConfig kConfig, bool kAddsDQuery = true>
class Consumer : ConsumerDScores<kConfig, kAddsDQuery> {
  using Base = ConsumerDScores<kConfig, kAddsDQuery>;
  using Base::kType, Base::kBf16, Base::kKeyBias, Base::kTileBias, Base::kM, Base::kD, Base::kTakesTurns,
      Base::kValueInRegisters, Base::kLeavesOut, Base::kFactsAhead, Base::gather_keys, Base::step_info,
      Base::query_tile, Base::d_out_tile, Base::slot_before, Base::load_values, Base::give_back_query,
      Base::d_score_rows, Base::p, Base::maps, Base::shared_, Base::state, Base::consumer_, Base::slot_,
      Base::leave_head, Base::clear_bias_sums, Base::start_scores, Base::finish_scores, Base::take_turn,
      Base::pass_turn, Base::has_fact, Base::facts_, Base::make_d_scores, Base::wait_for_d_scores, Base::start_d_query,
      Base::hand_over_d_query;
  using typename Base::G, typename Base::State, typename Base::QueryTile, typename Base::PairTile,
      typename Base::DScoreRing, typename Base::ValueOperand, typename Base::Scores, typename Base::Operand,
      typename Base::Mask, typename Base::Lse, typename Base::DQuery;
  using KeyGradient = float[Base::kD / 2];

 public:
  __device__ __forceinline__ Consumer(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                      std::uint32_t shared, State& shared_state, int consumer)
      : Base(parameters, tensor_maps, shared, shared_state, consumer) {}

  __device__ __forceinline__ void run() {
    if constexpr (kKeyBias) clear_bias_sums();
    if (kTakesTurns && consumer_ == 1) pass_turn();
    int i = 0;          // of the step, through all items
    int last_slot = 0;  // of the last step's item
    for (int number = 0; G::kSeveralItems || number == 0; ++number) {
      slot_ = number % G::kItemSlots;
      const std::uint32_t parity = number / G::kItemSlots & 1;
      wait(state.item_full[slot_], parity);
      // So that `i` and what follows from it stay in uniform registers, too.
      const int steps = ptx::in_uniform_register(state.step_counts[slot_]);
      if (steps <= 0) break;
      const int first = i;
      const int end = i + steps;
      if constexpr (!kTileBias)
        if (state.items[slot_].active != nullptr) gather_keys();

      KeyGradient d_k, d_v;
#pragma unroll
      for (int e = 0; e < kD / 2; ++e) d_k[e] = d_v[e] = 0.0f;
      wait(state.key_full[slot_], parity);
      // Steps one after the other, and again behind those that are left out.
      while (true) {
        if constexpr (kLeavesOut) {
          i = leave_out_steps(i, first, end, number & 1);
          if (i == end) break;
        }
        Scores probability, d_score;
        Operand probabilities;
        Lse lse;
        Mask mask;
        start_scores(i, probability, lse, mask, kLeavesOut);
        wait(state.value_full, number & 1);
        ValueOperand values;
        if constexpr (kValueInRegisters) load_values(values);
        finish_scores(i, values, lse, mask, probability, d_score, probabilities);
        if constexpr (G::kSeveralItems) free_d_query_buffer();
        while (true) {
          const int slot = kLeavesOut ? slot_before(i, first) : last_slot;
          const bool goes_on = take_step(i, slot, probability, d_score, probabilities, d_k, d_v);
          last_slot = slot_;
          if (++i == end) break;
          if constexpr (kLeavesOut) {
            if (!goes_on && sees_nothing(i)) break;
            start_scores(i, probability, lse, mask, true);
          } else {
            start_scores(i, probability, lse, mask, goes_on);
          }
          // The products of dV and dK of the step before.
          ptx::wgmma_wait_group<1>();
          give_back_query(i - 1);
          finish_scores(i, values, lse, mask, probability, d_score, probabilities);
        }
        ptx::wgmma_wait_group<0>();
        give_back_query(i - 1);
        if (i == end) break;
      }
      if constexpr (kKeyBias) leave_head();
      write_gradients(i - 1, d_k, d_v);
    }
    if (kTakesTurns && consumer_ == 0) take_turn();            // the last one that the other has passed
    if constexpr (!kAddsDQuery) return free_d_query_buffer();  // shared memory must outlive the copies
    // Read anew, for the registers that it would take through the loop.
    if constexpr (!G::kSeveralItems) i = ptx::in_uniform_register(state.step_counts[0]);
    if (i > 0) {
      free_d_query_buffer();
      DQuery d_q;
      wait_for_d_scores(i - 1);
      ptx::wgmma_fence();
      // slot_ is the next item's by now, of which there is none.
      start_d_query(i - 1, kLeavesOut ? slot_before(i, i) : last_slot, d_q);
      ptx::wgmma_wait_group<0>();
      hand_over_d_query(i - 1, d_q, false, RingPosition<G::kQueryStages>(i));
    }
  }

 private:
  /// dS, and the products that take it. On return dV's and dK's are in flight. `last_slot`: of the item of the step
  /// before. Returns whether the next step's queries have come, and are seen by some key of the warpgroup's; where
  /// steps are left out the same for all lanes.
  __device__ __forceinline__ bool take_step(int i, int last_slot, Scores& probability, Scores& d_score,
                                            Operand& probabilities, KeyGradient& d_k, KeyGradient& d_v) {
    Operand d_scores;
    const bool d_scores_came = make_d_scores(i, probability, d_score, probabilities, d_scores);

    if constexpr (kAddsDQuery)
      if (i > 0) wait_for_d_scores(i - 1, d_scores_came);
    ptx::wgmma_fence();
    [[maybe_unused]] DQuery d_q;
    // Before the first step of whatever is there; it is not used.
    if constexpr (kAddsDQuery) start_d_query(i - 1, last_slot, d_q);
    const std::uint32_t queries = query_tile(i);
    const std::uint32_t d_outs = d_out_tile(i);
    using Product = ptx::Wgmma<kD, kBf16>;
#pragma unroll
    for (int k = 0; k < kM / 16; ++k)
      Product::template rs<true, true>(d_v, probabilities[k],
                                       QueryTile::descriptor_of(d_outs + QueryTile::row_step(k)));
#pragma unroll
    for (int k = 0; k < kM / 16; ++k)
      Product::template rs<true, true>(d_k, d_scores[k], QueryTile::descriptor_of(queries + QueryTile::row_step(k)));
    ptx::wgmma_commit_group();
    if constexpr (!kAddsDQuery) {
      const RingPosition<G::kQueryStages> next(i + 1);
      return has_come(state.query_full[next.stage], next.parity);
    }
    const bool buffer_came = has_come(state.d_query_empty[consumer_], (i & 1) ^ 1);
    const RingPosition<G::kQueryStages> next(i + 1);
    bool goes_on = false;
    if constexpr (kLeavesOut) {
      // Asked here, and not behind the stores of dQ, so that the answers are there before these are done.
      const bool came = has_come(state.query_full[next.stage], next.parity);
      // Until it has come what it is may be being written: then this step's, for nothing.
      const std::uint32_t facts = state.steps[static_cast<unsigned>(came ? i + 1 : i) % kStepSlots].facts;
      if constexpr (kFactsAhead) facts_ = facts;
      ptx::wgmma_wait_group<1>();
      goes_on = __all_sync(0xffffffffu, came && has_fact(facts, kSomeActive));
    } else {
      ptx::wgmma_wait_group<1>();
    }
    if (i > 0) {
      if constexpr (!G::kDScoresOutlastReaders) arrive<kLastLane>(state.d_score_empty[DScoreRing(i - 1).stage]);
      const bool queries_came = hand_over_d_query(i - 1, d_q, buffer_came, next);
      if constexpr (!kLeavesOut) goes_on = queries_came;
    }
    return goes_on;
  }

  // --- Steps that are left out ---

  /// Whether none of step i's pairs with the warpgroup's keys is active. On return the step has come. A vote, though
  /// the same for all lanes: the compiler then sees that it is, and keeps what lies behind it in uniform registers.
  __device__ __forceinline__ bool sees_nothing(int i) {
    const RingPosition<G::kQueryStages> query(i);
    wait(state.query_full[query.stage], query.parity);
    const std::uint32_t facts = step_info(i).facts;
    if constexpr (kFactsAhead) facts_ = facts;
    return __any_sync(0xffffffffu, !has_fact(facts, kSomeActive));
  }

  /// Leaves out the steps from i on, of an item with steps [first, end), that the warpgroup's keys have no pairs of.
  /// Returns the next that they have any of, which has come, or `end`. No products are in flight. `value_parity`: of
  /// the item's V.
  __device__ __forceinline__ int leave_out_steps(int i, int first, int end, std::uint32_t value_parity) {
    if constexpr (G::kSeveralItems) free_d_query_buffer();
    for (; i != end && sees_nothing(i); ++i) {
      // Though nobody reads it: with dS of the item's last step the next one's may come, and this wait would miss it.
      if (i == first) wait(state.value_full, value_parity);
      leave_out(i, slot_before(i, first));
      give_back_query(i);
    }
    return ptx::in_uniform_register(i);
  }

  /// All that others wait for of a step: its dS is 0, and dQ of the step before, of the item in `last_slot`.
  __device__ __forceinline__ void leave_out(int i, int last_slot) {
    // Not read either: no wait for a later phase shall take this one for it.
    const RingPosition<G::kDOutStages> d_out(i);
    if constexpr (!G::kLoadedTogether) wait(state.d_out_full[d_out.stage], d_out.parity);
    const DScoreRing ring(i);
    if constexpr (!G::kDScoresOutlastReaders) wait(state.d_score_empty[ring.stage], ring.parity ^ 1);
    constexpr std::uint32_t kZeros[4] = {};
#pragma unroll
    for (int k = 0; k < kM / 16; ++k)
      ptx::stmatrix_x4_trans(d_score_rows(ring.stage) + k * 16 * PairTile::kRowBytes, kZeros);
    __syncwarp();
    arrive(state.d_score_stored[consumer_][ring.stage]);  // not by kLastLane: see notes/compiler_and_copies.md
    if (i == 0) return;
    wait_for_d_scores(i - 1);
    ptx::wgmma_fence();
    DQuery d_q;
    start_d_query(i - 1, last_slot, d_q);
    ptx::wgmma_wait_group<0>();
    if constexpr (!G::kDScoresOutlastReaders) arrive<kLastLane>(state.d_score_empty[DScoreRing(i - 1).stage]);
    hand_over_d_query(i - 1, d_q, false, RingPosition<G::kQueryStages>(i + 1));
  }

  // --- dK and dV ---

  /// They leave by way of the warp's part of the buffer of dQ: that of step i is handed over with the next item's first
  /// step, behind free_d_query_buffer(); that of the step before must have been read.
  __device__ __forceinline__ void write_gradients(int i, KeyGradient& d_k, KeyGradient& d_v) {
    const KeyItem& item = state.items[slot_];
#pragma unroll
    for (int e = 0; e < kD / 2; ++e) d_k[e] *= p.scale;
    if (is_added_up(item) &&
        !add_pieces<kD / 2, kLeavesOut, G::kConsumerWarps, 2 * G::kN * kD>(p, item, consumer_ * 4 + warp(), d_k, d_v))
      return;
    const int row = consumer_ * 64 + warp() * 16;
    if (leaves_as_floats(p, item)) {
      write_float_rows(p, item, false, d_k, row);
      write_float_rows(p, item, true, d_v, row);
      return;
    }
    using Tile = PanelTile<16, kD>;
    static_assert(Tile::kBytes <= G::kDQueryBytes / 4);
    const std::uint32_t staging = shared_ + G::kDQuery + consumer_ * G::kDQueryBytes + warp() * (G::kDQueryBytes / 4);
    if constexpr (kAddsDQuery) wait(state.d_query_empty[consumer_], i & 1);
    write_key_gradient_rows<Tile, kType>(p, item, p.d_v, maps.d_v, d_v, staging, 0, row);
    constexpr bool kBothFit = 2 * Tile::kBytes <= G::kDQueryBytes / 4;
    if constexpr (!kBothFit) wait_for_gradient_stores();
    write_key_gradient_rows<Tile, kType>(p, item, p.d_k, maps.d_k, d_k, staging + (kBothFit ? Tile::kBytes : 0), 0,
                                         row);
  }

  /// Until the last item's gradients have left the buffer of dQ.
  __device__ __forceinline__ void free_d_query_buffer() const {
    wait_for_gradient_stores();
    __syncwarp();
  }
};

}  // namespace flashdma_bwd::hopper
