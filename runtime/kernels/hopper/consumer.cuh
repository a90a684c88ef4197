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
// dV and dK of this one, were chosen by measurement, see NOTES.md. The transposed products and their register operands
// follow FlashAttention-3 (Shah et al., 2024), and so do the turns, which its forward pass has.
#pragma once

#include <cstddef>

#include "hopper/consumer_warp.cuh"
#include "hopper/gather_keys.cuh"
#include "hopper/geometry.cuh"
#include "hopper/key_gradient.cuh"
#include "hopper/ptx.cuh"
#include "hopper/score_tile.cuh"
#include "hopper/statistic_columns.cuh"
#include "hopper/step_choices.cuh"
#include "hopper/tensor_maps.hpp"
#include "hopper/transposed_product.cuh"
#include "hopper/wgmma.cuh"

namespace flashdma_bwd::hopper {

/// `kAddsDQuery`: else another kernel computes dQ of a tile bias's gradient, which dS is.
template <KernelConfig kConfig, bool kAddsDQuery = true>
class Consumer : StepChoices<kConfig, kAddsDQuery> {
  using Choices = StepChoices<kConfig, kAddsDQuery>;
  using G = Geometry<kConfig>;
  using State = typename G::State;
  using QueryTile = typename G::QueryTile;
  using KeyTile = typename G::KeyTile;
  using ValueTile = typename G::ValueTile;
  using PairTile = typename G::PairTile;
  using Choices::kType, Choices::kBf16, Choices::kKeyBias, Choices::kTileBias, Choices::kSoftcap, Choices::kSlopeTaken,
      Choices::kDotTerms, Choices::kLseTerms, Choices::kM, Choices::kD, Choices::kTanhFirst, Choices::kMaskInShared,
      Choices::kReadMaskEarly, Choices::kMaskBeforeScores, Choices::kPackEarly, Choices::kTakesTurns,
      Choices::kEarlyProbabilities, Choices::kSomeLate, Choices::kPacksLast, Choices::kValueInRegisters,
      Choices::kFactsFirst, Choices::kHeadFirst, Choices::kLse, Choices::kBiasFirst, Choices::kLeavesOut,
      Choices::kFactsAhead, Choices::kLseInRegisters, Choices::kTestsGradients;

  using Scores = float[kM / 2];
  using KeyGradient = float[kD / 2];
  using DQuery = float[G::kDQueryColumns / 2];
  using Operand = std::uint32_t[kM / 16][4];
  using Mask = MaskBits[kM / 64];
  using DScoreRing = RingPosition<G::kDScoreStages>;
  using BiasRing = RingPosition<kTileBias ? G::kBiasStages : 1>;
  using BiasWords = std::uint32_t[kBiasFirst ? kM / 16 : 1][4];
  using Lse = float2[kLseInRegisters ? kM / 8 : 1];
  using BiasSums = std::conditional_t<G::kBiasSumsOfThreads, ThreadSums, KeySums>;
  using ValueOperand = std::uint32_t[kValueInRegisters ? kD / 16 : 1][4];

 public:
  __device__ __forceinline__ Consumer(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                      std::uint32_t shared, State& shared_state, int consumer)
      : p(parameters), maps(tensor_maps), shared_(shared), state(shared_state), consumer_(consumer) {}

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
      if constexpr (kKeyBias) {
        write_bias_sums_of_head();
        head_ = kNoHead;
      }
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
  // --- The keys ---

  /// Row of the item's tile of a lane's first key; the second is 8 further.
  __device__ __forceinline__ int key_row() const {
    return consumer_thread() / 32 * 16 + lane() / 4;
  }
  /// Of all consumers' threads.
  static __device__ __forceinline__ int consumer_thread() {
    return ptx::fresh_thread_index() - kWarpgroupThreads;
  }

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

  /// Of the item of the step before, where `first` is the first of the item at work. The same as a variable that comes
  /// round the loop, which where steps are left out would not stay in a uniform register.
  __device__ __forceinline__ int slot_before(int i, int first) const {
    return !G::kSeveralItems ? 0 : i == first ? slot_ ^ 1 : slot_;
  }

  // --- A step ---

  __device__ __forceinline__ std::uint32_t query_tile(int i) const {
    return QueryTile::descriptor(shared_ + G::kQuery) +
           RingPosition<G::kQueryStages>(i).stage * (QueryTile::kBytes >> 4);
  }
  __device__ __forceinline__ std::uint32_t d_out_tile(int i) const {
    return QueryTile::descriptor(shared_ + G::kDOut) + RingPosition<G::kDOutStages>(i).stage * (QueryTile::kBytes >> 4);
  }
  /// Offset of the K of the item in a slot.
  static __device__ __forceinline__ std::uint32_t key_tile(int slot) {
    return G::kKey + slot * KeyTile::kBytes;
  }
  /// The warpgroup's rows of K or V.
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

  /// What of a step decides how it is computed.
  struct Step {
    int head;
    bool partial;       ///< some of its pairs with the warpgroup's keys are masked
    bool in_words;      ///< by the mask's words
    float key_bias[2];  ///< of the lane's keys, in units of log2, with the head that was at work when it was read
  };
  /// Whether it is one of these about the warpgroup's keys.
  __device__ __forceinline__ bool has_fact(std::uint32_t facts, StepFacts fact) const {
    return (facts & static_cast<std::uint32_t>(fact) << consumer_ * kBitsOfHalf) != 0;
  }

  /// What the loader says of step i.
  __device__ __forceinline__ const ItemStep& step_info(int i) const {
    return state.steps[i % kStepSlots];
  }

  /// Whether some of a step's pairs are masked, with the warpgroup's keys where it looks at these alone.
  __device__ __forceinline__ bool is_partial(const ItemStep& info) const {
    return kLeavesOut ? has_fact(kFactsAhead ? facts_ : info.facts, kSomeMasked) : info.partial;
  }

  __device__ __forceinline__ void read_facts(int i) {
    const ItemStep& info = step_info(i);
    step_.partial = is_partial(info);
    step_.in_words = kFactsAhead ? has_fact(facts_, kMaskedByWords) : info.mask_words != nullptr;
    if constexpr (kKeyBias) {
      step_.head = info.head;
      read_key_biases();
    }
  }
  __device__ __forceinline__ void read_key_biases() {
#pragma unroll
    for (int half = 0; half < 2; ++half) step_.key_bias[half] = ptx::ld_shared_f32(key_bias_address(half));
  }

  /// What follows from a step's head, where it is another one than before.
  __device__ __forceinline__ void take_head() {
    const int head = ptx::in_uniform_register(step_.head);
    if (head == head_) return;
    write_bias_sums_of_head();
    head_ = head;
    load_key_biases();
    read_key_biases();
  }

  __device__ __forceinline__ void read_lse(int i, Lse& lse) const {
#pragma unroll
    for (int j = 0; j < kM / 8; ++j) lse[j] = ptx::ld_shared_v2(lse_address(i) + j * 32);
  }

  /// Asks for the mask's bits of step i, if they hide some of its pairs.
  __device__ __forceinline__ void read_mask_early(int i, Mask& mask) const {
    static_assert(kFactsFirst);
    const ItemStep& info = step_info(i);
#pragma unroll
    for (MaskBits& bits : mask) bits = {};  // else they would keep their registers all the time
    if (step_.in_words)
#pragma unroll
      for (int part = 0; part < kM / 64; ++part) read_mask(mask[part], i, info, part);
  }

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
    arrive(state.d_score_stored[consumer_][ring.stage]);  // not by kLastLane: see NOTES.md, "compute-sanitizer"
    if (i == 0) return;
    wait_for_d_scores(i - 1);
    ptx::wgmma_fence();
    DQuery d_q;
    start_d_query(i - 1, last_slot, d_q);
    ptx::wgmma_wait_group<0>();
    if constexpr (!G::kDScoresOutlastReaders) arrive<kLastLane>(state.d_score_empty[DScoreRing(i - 1).stage]);
    hand_over_d_query(i - 1, d_q, false, RingPosition<G::kQueryStages>(i + 1));
  }

  /// Issues S^T of step i.
  __device__ __forceinline__ void start_scores(int i, Scores& scores, Lse& lse, Mask& mask, bool queries_came) {
    const RingPosition<G::kQueryStages> query(i);
    wait(state.query_full[query.stage], query.parity, queries_came);
    if constexpr (kFactsFirst) read_facts(i);
    if constexpr (kHeadFirst) take_head();
    if constexpr (kLse == LseWay::read_before_scores) read_lse(i, lse);
    if constexpr (kMaskBeforeScores) read_mask_early(i, mask);
    StatisticOperand lse_columns;
    if constexpr (kLseTerms) select_lse(lse_columns);
    ptx::wgmma_fence();
    if constexpr (kLseTerms) start_statistic_product<kM>(scores, lse_columns, statistics(i));
    start_transposed_product<KeyTile, QueryTile, kBf16, kLseTerms>(scores, own_rows<KeyTile>(key_tile(slot_)),
                                                                   query_tile(i));
  }

  /// Gives back the buffers of Q and dO of step i, whose products have all finished.
  __device__ __forceinline__ void give_back_query(int i) const {
    arrive<kLastLane>(state.query_empty[RingPosition<G::kQueryStages>(i).stage]);
    if constexpr (!G::kLoadedTogether) arrive<kLastLane>(state.d_out_empty[RingPosition<G::kDOutStages>(i).stage]);
  }

  /// Issues dP^T and computes P under it, or what kPacksLast makes P of behind it. On return both are there.
  __device__ __forceinline__ void finish_scores(int i, const ValueOperand& values, Lse& lse, Mask& mask, Scores& scores,
                                                Scores& d_probability, Operand& probabilities) {
    const RingPosition<G::kDOutStages> d_out(i);
    if constexpr (!G::kLoadedTogether) wait(state.d_out_full[d_out.stage], d_out.parity);
    if constexpr (kBiasFirst) {
      const BiasRing ring(i);
      wait(state.bias_full[ring.stage][consumer_], ring.parity);
      ptx::wgmma_wait_group<0>();
    }
    if constexpr (kLse == LseWay::read_before_d_probability) read_lse(i, lse);
    BiasWords bias;
    if constexpr (kBiasFirst) read_bias(i, bias);
    StatisticOperand dot_columns;
    if constexpr (kDotTerms) select_dot(dot_columns);
    ptx::wgmma_fence();
    if constexpr (kDotTerms) start_statistic_product<kM>(d_probability, dot_columns, statistics(i));
    if constexpr (kValueInRegisters)
      start_transposed_product<QueryTile, kBf16, kDotTerms>(d_probability, values, d_out_tile(i));
    else
      start_transposed_product<ValueTile, QueryTile, kBf16, kDotTerms>(d_probability, own_rows<ValueTile>(G::kValue),
                                                                       d_out_tile(i));

    // What the arithmetic needs from global memory is asked for while the products run.
    if constexpr (!kFactsFirst) read_facts(i);
    const ItemStep& info = step_info(i);
    bool bias_masks = false;
    if constexpr (kKeyBias) {
      if constexpr (!kHeadFirst) take_head();
      bias_masks = __any_sync(0xffffffffu, step_.key_bias[0] == -INFINITY || step_.key_bias[1] == -INFINITY);
    }
    if constexpr (kReadMaskEarly && !kMaskBeforeScores) read_mask_early(i, mask);

    ptx::wgmma_wait_group<1>();
    if constexpr (kTakesTurns) take_turn();
    if constexpr (kTanhFirst) {
      with_tanh<kConfig>(p, scores, [&](auto&& tanh) {
#pragma unroll
        for (int e = 0; e < kM / 2; ++e) scores[e] = tanh(scores[e]);
      });
      partial_ = is_partial(info);
      ptx::wgmma_wait_group<0>();
      return;
    }
    if constexpr (kLseTerms)
      finish_probabilities(i, Absent{}, bias, scores, probabilities);
    else if constexpr (kLseInRegisters)
      bias_masks |= finish_probabilities(i, lse, bias, scores, probabilities);
    else if constexpr (kDotTerms)
      bias_masks |= finish_probabilities(i, LseInTerms{lse_in_terms(i)}, bias, scores, probabilities);
    else
      bias_masks |= finish_probabilities(i, lse_address(i), bias, scores, probabilities);
    partial_ = bias_masks || (kFactsFirst ? step_.partial : is_partial(info));
    if (partial_)
      hide(i, mask, info, [&](int e) {
        scores[e] = e < kEarlyProbabilities ? 0.0f : -INFINITY;
        if constexpr (kSlopeTaken) clear_packed(probabilities, e);
      });
    if constexpr (kPackEarly && !kSlopeTaken) pack_probabilities(scores, probabilities);
    // Before the wait, for a read of the thread's index takes time.
    if constexpr (kM == 64 && !kDotTerms) row_dot_ = row_dot_address(i);
    ptx::wgmma_wait_group<0>();
  }

  /// The terms of step i's queries.
  __device__ __forceinline__ std::uint32_t statistics(int i) const {
    return shared_ + G::kTerms + RingPosition<G::kQueryStages>(i).stage * G::kTermBytes;
  }
  /// The LSE of the lane's first query, where it lies in its terms.
  __device__ __forceinline__ std::uint32_t lse_in_terms(int i) const {
    return statistics(i) + lane() % 4 * (2 * sizeof(StatisticTerms)) + offsetof(StatisticTerms, lse);
  }
  __device__ __forceinline__ std::uint32_t lse_address(int i) const {
    return shared_ + G::kLse + RingPosition<G::kQueryStages>(i).stage * (kM * 4) + lane() % 4 * 8;
  }
  __device__ __forceinline__ std::uint32_t row_dot_address(int i) const {
    return shared_ + G::kRowDot + RingPosition<G::kDOutStages>(i).stage * (kM * 4) + lane() % 4 * 8;
  }

  static __device__ __forceinline__ void pack_probabilities(const Scores& probability, Operand& probabilities) {
#pragma unroll
    for (int j = 0; j < kM / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        probabilities[j / 2][j % 2 * 2 + half] =
            pack<kType>(probability[j * 4 + half * 2], probability[j * 4 + half * 2 + 1]);
  }

  /// dS, and the products that take it. On return dV's and dK's are in flight. `last_slot`: of the item of the step
  /// before. Returns whether the next step's queries have come, and are seen by some key of the warpgroup's; where
  /// steps are left out the same for all lanes.
  __device__ __forceinline__ bool take_step(int i, int last_slot, Scores& probability, Scores& d_score,
                                            Operand& probabilities, KeyGradient& d_k, KeyGradient& d_v) {
    Operand d_scores;
    float key_sums[2] = {0.0f, 0.0f};  // of the lane's dS, over the queries
    [[maybe_unused]] BiasSums sums;
    if constexpr (kPacksLast) {
      differentiate_in_place(i, probability, d_score);
      pack_probabilities(probability, probabilities);
      // What a P of 0 was multiplied by may have been infinite: a masked key's values.
      if (kSomeLate && !kTestsGradients && partial_) {
#pragma unroll
        for (int e = 0; e < kM / 2; ++e)
          if (probability[e] == 0.0f) d_score[e] = 0.0f;
      }
      if constexpr (kKeyBias) {
        sums.read(bias_sums_address());
#pragma unroll
        for (int e = 0; e < kM / 2; ++e) key_sums[e % 4 / 2] += d_score[e];
        if constexpr (!kTestsGradients) sums.start(key_sums);
      }
      pack_probabilities(d_score, d_scores);
    } else {
      if constexpr (!kPackEarly) pack_probabilities(probability, probabilities);
      differentiate(i, probability, d_score, d_scores, key_sums, sums);
    }
    if constexpr (kTestsGradients)
      if (partial_ && overflowed(d_scores, key_sums)) clear_masked(i, probabilities, d_scores, key_sums);
    if constexpr (kKeyBias && (kTestsGradients || !kPacksLast)) sums.start(key_sums);
    if constexpr (kTakesTurns) pass_turn();
    const bool d_scores_came = store_d_scores(i, d_scores, sums);

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

  /// Until the arithmetic is this warpgroup's turn, and the other's afterwards. The first turn is the first consumer's.
  __device__ __forceinline__ void take_turn() const {
    ptx::barrier_sync(kFirstTurnBarrier + consumer_, 2 * kWarpgroupThreads);
  }
  __device__ __forceinline__ void pass_turn() const {
    ptx::barrier_arrive(kFirstTurnBarrier + (consumer_ ^ 1), 2 * kWarpgroupThreads);
  }

  // --- Scores ---

  /// The biases of the warp's keys with the head at work, in units of log2, into shared memory, which no other warp
  /// reads. Each by two lanes: behind a branch of some lanes ptxas would keep nothing uniform (NOTES.md, "What ptxas
  /// does").
  __device__ __forceinline__ void load_key_biases() const {
    __syncwarp();  // the last head's have been read
    const KeyItem& item = state.items[slot_];
    const int half = lane() % 2;
    const float value = key_bias_of<kType>(p, item, head_, position(item, half));
    ptx::st_shared_32(key_bias_address(half), __float_as_uint(value * kLog2E));
    __syncwarp();
  }
  __device__ __forceinline__ std::uint32_t key_bias_address(int half) const {
    return shared_ + G::kKeyBias + (key_row() + half * 8) * 4;
  }

  /// The warpgroup's biases of step i, which have come.
  __device__ __forceinline__ void read_bias(int i, BiasWords& words) const {
    const std::uint32_t rows = bias_rows(i);
#pragma unroll
    for (int k = 0; k < kM / 16; ++k) ptx::ldmatrix_x4_trans(words[k], rows + k * 16 * PairTile::kRowBytes);
  }

  /// Scores and a tile bias to probabilities. Returns whether it masks one of the warp's pairs.
  template <class Bias, class Lse>
  __device__ __forceinline__ bool take_bias(Bias& bias, const Lse& lse, Scores& s) {
    if constexpr (kSoftcap)
      exponentiate<kConfig>(p, s, lse, Absent{}, bias, slope_);
    else
      exponentiate<kConfig>(p, s, lse, Absent{}, bias, Absent{});
    // The vote takes all lanes' biases: behind it the warp has read what its gradient will take the place of.
    const bool masked = __any_sync(0xffffffffu, bias.masks());
    if (masked) bias.hide(s);
    return masked;
  }

  /// Scores to probabilities, and to an operand if they take the slope. `lse`: as exponentiate() takes it. `words`: the
  /// biases where they have been read. Returns whether a tile bias masks one of the warp's pairs.
  template <class Lse>
  __device__ __forceinline__ bool finish_probabilities(int i, const Lse& lse, const BiasWords& words, Scores& s,
                                                       Operand& probabilities) {
    if constexpr (kBiasFirst) {
      LoadedBias<kType, kM / 16> bias(bias_rows(i), PairTile::kRowBytes, words);
      return take_bias(bias, lse, s);
    } else if constexpr (kTileBias) {
      const BiasRing ring(i);
      wait(state.bias_full[ring.stage][consumer_], ring.parity);
      BiasFragments<kType> bias{bias_rows(i), PairTile::kRowBytes};
      return take_bias(bias, lse, s);
    } else {
      const auto with_bias = [&](auto&& bias) {
        if constexpr (kSlopeTaken)
          exponentiate<kConfig>(p, s, lse, bias, Absent{}, probabilities);
        else if constexpr (kSoftcap)
          exponentiate<kConfig>(p, s, lse, bias, Absent{}, slope_);
        else
          exponentiate<kConfig, kEarlyProbabilities>(p, s, lse, bias, Absent{}, Absent{});
      };
      if constexpr (kKeyBias)
        with_bias(step_.key_bias);
      else
        with_bias(Absent{});
      return false;
    }
  }

  /// The mask's bits of the lane's pairs with queries of step i from 64 `part` on.
  __device__ __forceinline__ void read_mask(MaskBits& mask, int i, const ItemStep& info, int part) const {
    if constexpr (kMaskInShared)
      mask.read(shared_ + G::kMask + RingPosition<G::kQueryStages>(i).stage * G::kMaskBytes + consumer_ * (kM * 8) +
                    part * (kMaskAtom * 8),
                warp(), lane());
    else
      mask.read(info.mask_words + static_cast<std::int64_t>(p.query_atoms) * (consumer_ * kMaskAtom) + part * kMaskAtom,
                warp(), lane());
  }

  /// Calls clear(e) for the pairs of step i that are not visible. `mask`: its bits where they are asked for early.
  template <class Clear>
  __device__ __forceinline__ void hide(int i, Mask& mask, const ItemStep& info, Clear&& clear) const {
    const KeyItem& item = state.items[slot_];
    if (kFactsAhead ? step_.in_words : info.mask_words != nullptr) {
#pragma unroll
      for (int part = 0; part < kM / 64; ++part) {
        if constexpr (!kReadMaskEarly) read_mask(mask[part], i, info, part);
        mask[part].arrange(lane());
        if constexpr (kKeyBias) {
#pragma unroll
          for (int half = 0; half < 2; ++half)
            if (ptx::ld_shared_f32(key_bias_address(half)) == -INFINITY) mask[part].mask_key(half);
        }
        mask[part].hide(clear, part * 32);
      }
      if (p.limits_in_mask) return;
    }
    const int first_query = read_here(info.first_query);  // also by lanes without a key
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      VisibleQueries visible(item.limits, position(item, half), first_query);
      if constexpr (kKeyBias)
        if (ptx::ld_shared_f32(key_bias_address(half)) == -INFINITY) visible.high = visible.low;
      hide_invisible<kM / 2>(clear, visible, half, lane());
    }
  }

  /// dP less D, which products may have subtracted.
  static __device__ __forceinline__ float less_dot(float d_probability, float dot) {
    return kDotTerms ? d_probability : d_probability - dot;
  }

  /// What scores of step i have become under dP's products, and dP, to P and dS, in place. A step's masked pairs are
  /// hidden where that is not done under the products.
  __device__ __forceinline__ void differentiate_in_place(int i, Scores& s, Scores& d) {
    static_assert(!kTanhFirst || kTanhScale<kConfig> == 1.0f);
    [[maybe_unused]] const std::uint32_t row_dot = kDotTerms ? 0 : kM == 64 ? row_dot_ : row_dot_address(i);
    [[maybe_unused]] const std::uint32_t zero = __float_as_uint(p.softcap) >> 31;  // its sign: a softcap is positive
#pragma unroll
    for (int j = 0; j < kM / 8; ++j) {
      float2 lse{}, dot{};
      if constexpr (!kDotTerms) dot = ptx::ld_shared_v2(row_dot + j * 32);
      [[maybe_unused]] float to_log2 = p.score_log2;
      if constexpr (kTanhFirst) {
        if constexpr (kDotTerms)
          lse = lse_of(LseInTerms{lse_in_terms(i)}, j);
        else
          lse = lse_of(lse_address(i), j);
        // Else ptxas has the exponentials behind all other arithmetic, which then hides none of their time: it does not
        // know that nothing comes of the last ones here.
        if (j > 0) to_log2 = __uint_as_float((__float_as_uint(s[j * 4 - 1]) & zero) | __float_as_uint(to_log2));
      }
#pragma unroll
      for (int e = j * 4; e < j * 4 + 4; ++e) {
        float slope = 1.0f;
        if constexpr (kTanhFirst) {
          slope -= s[e] * s[e];
          s[e] = ptx::ex2(fmaf(s[e], to_log2, e % 2 == 0 ? -lse.x : -lse.y));
        } else if (e >= kEarlyProbabilities) {
          s[e] = ptx::ex2(s[e]);
        }
        d[e] = less_dot(d[e], e % 2 == 0 ? dot.x : dot.y) * slope * s[e];
      }
    }
    if (!kTanhFirst || !partial_) return;
    Mask mask;
    hide(i, mask, step_info(i), [&](int e) { s[e] = d[e] = 0.0f; });
  }

  /// dP to dS. `sums`: of a lane's dS with either key, over the queries. `bias_sums`: read ahead of the arithmetic,
  /// which hides the time that takes.
  __device__ __forceinline__ void differentiate(int i, const Scores& probability, Scores& d_score, Operand& d_scores,
                                                float (&sums)[2], BiasSums& bias_sums) {
    [[maybe_unused]] const std::uint32_t row_dot = kDotTerms ? 0 : kM == 64 ? row_dot_ : row_dot_address(i);
    // What multiplies a P of 0 is made finite: a masked key may hold values whose products overflow.
    if (!kTestsGradients && partial_) {
#pragma unroll
      for (int e = 0; e < kM / 2; ++e)
        if (probability[e] == 0.0f) {
          d_score[e] = 0.0f;
          if constexpr (kSoftcap && !kSlopeTaken) clear_packed(slope_, e);
        }
    }
    if constexpr (kKeyBias) bias_sums.read(bias_sums_address());
    [[maybe_unused]] std::uint32_t bias_gradient[4];  // of 16 queries
    [[maybe_unused]] const std::uint32_t bias_gradient_rows = G::kOwnBiasRing ? bias_rows(i) : 0;
#pragma unroll
    for (int j = 0; j < kM / 8; ++j) {
      float2 column{};  // the products have subtracted D else
      if constexpr (!kDotTerms) column = ptx::ld_shared_v2(row_dot + j * 32);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float dx = probability[j * 4 + half * 2] * less_dot(d_score[j * 4 + half * 2], column.x);
        const float dy = probability[j * 4 + half * 2 + 1] * less_dot(d_score[j * 4 + half * 2 + 1], column.y);
        if constexpr (kKeyBias) sums[half] += dx + dy;
        float2 factor = {1.0f, 1.0f};
        if constexpr (kSoftcap && !kSlopeTaken) factor = unpack<kSlopeType>(slope_[j / 2][j % 2 * 2 + half]);
        d_scores[j / 2][j % 2 * 2 + half] = pack<kType>(dx * factor.x, dy * factor.y);
        if constexpr (G::kOwnBiasRing) bias_gradient[j % 2 * 2 + half] = pack<kType>(dx, dy);
      }
      if constexpr (G::kOwnBiasRing)
        if (j % 2 == 1) ptx::stmatrix_x4_trans(bias_gradient_rows + j / 2 * 16 * PairTile::kRowBytes, bias_gradient);
    }
  }

  /// Whether a dS of the warp's is infinite or none. A masked pair's is, where products of a masked key's rows
  /// overflowed. `sums`: of the lane's dS, where the kernel has them.
  static __device__ __forceinline__ bool overflowed(const Operand& d_scores, const float (&sums)[2]) {
    if constexpr (kKeyBias) return __any_sync(0xffffffffu, (sums[0] + sums[1]) * 0.0f != 0.0f);
    std::uint32_t zeros[2] = {0, 0};
#pragma unroll
    for (int k = 0; k < kM / 16; ++k)
#pragma unroll
      for (int word = 0; word < 4; ++word) zeros[word % 2] = packed_fma<kType>(d_scores[k][word], 0, zeros[word % 2]);
    return __any_sync(0xffffffffu, (zeros[0] | zeros[1]) != 0);
  }

  /// Clears P and dS of step i's masked pairs, and takes the sums anew. All lanes of a warp.
  __device__ __forceinline__ void clear_masked(int i, Operand& probabilities, Operand& d_scores,
                                               float (&sums)[2]) const {
    Mask mask;
    if constexpr (kReadMaskEarly) read_mask_early(i, mask);
    hide(i, mask, step_info(i), [&](int e) {
      clear_packed(probabilities, e);
      clear_packed(d_scores, e);
    });
    sums[0] = sums[1] = 0.0f;
#pragma unroll
    for (int k = 0; k < kM / 16; ++k)
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        const float2 pair = unpack<kType>(d_scores[k][word]);
        sums[word % 2] += pair.x + pair.y;
      }
  }

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

  /// dS into the ring, as rows of queries. Returns whether that of all warpgroups of the step before has come. The sums
  /// over the queries are finished between the stores, which hide the way from lane to lane.
  __device__ __forceinline__ bool store_d_scores(int i, const Operand& d_scores, BiasSums& sums) const {
    const DScoreRing ring(i);
    // A tile bias without a ring of its own was loaded into the buffer when nobody read it any more.
    if constexpr (!G::kDScoresOutlastReaders && (!kTileBias || G::kOwnBiasRing))
      wait(state.d_score_empty[ring.stage], ring.parity ^ 1);
    const std::uint32_t address = d_score_rows(ring.stage);
#pragma unroll
    for (int k = 0; k < kM / 16; ++k) {
      ptx::stmatrix_x4_trans(address + k * 16 * PairTile::kRowBytes, d_scores[k]);
      if constexpr (kKeyBias)
        if (k == kM / 32 - 1) sums.exchange();
    }
    const DScoreRing last(i - 1);
    const bool came = kAddsDQuery && has_come(state.d_score_full[last.stage], last.parity);
    __syncwarp();
    arrive<kLastLane>(state.d_score_stored[consumer_][ring.stage]);
    if constexpr (kKeyBias) sums.store();
    return came;
  }
  /// Until all warpgroups have stored those of step i.
  __device__ __forceinline__ void wait_for_d_scores(int i, bool came = false) const {
    const DScoreRing ring(i);
    wait(state.d_score_full[ring.stage], ring.parity, came);
  }

  // --- dQ ---

  /// Issues the warpgroup's share of dQ of step i, of the item in this slot.
  __device__ __forceinline__ void start_d_query(int i, int slot, DQuery& d_q) const {
    constexpr bool kRows = G::kDQueryShare == DQueryShare::rows;
    constexpr int kShareBytes =
        kRows ? 64 * PairTile::kRowBytes : G::kDQueryColumns / KeyTile::kPanelColumns * KeyTile::kPanelBytes;
    const std::uint32_t share = consumer_ * (kShareBytes >> 4);
    const std::uint32_t d_scores = PairTile::descriptor(shared_ + G::kDScore) +
                                   DScoreRing(i).stage * (PairTile::kBytes >> 4) + (kRows ? share : 0);
    const std::uint32_t keys = ptx::opaque(KeyTile::descriptor(shared_ + key_tile(slot)) + (kRows ? 0 : share));
    using Product = ptx::Wgmma<G::kDQueryColumns, kBf16>;
#pragma unroll
    for (int k = 0; k < G::kN / 16; ++k) {
      const std::uint64_t a = PairTile::descriptor_of(d_scores + PairTile::column_step(k));
      const std::uint64_t b = KeyTile::descriptor_of(keys + KeyTile::row_step(k));
      if (k == 0)
        Product::template ss<false, true, false>(d_q, a, b);
      else
        Product::template ss<false, true, true>(d_q, a, b);
    }
    ptx::wgmma_commit_group();
  }

  /// Gives the warpgroup's share of dQ of step i to its reducer. Returns whether the
  /// queries of the step at `next` have come.
  __device__ __forceinline__ bool hand_over_d_query(int i, const DQuery& d_q, bool buffer_came,
                                                    const RingPosition<G::kQueryStages>& next) {
    wait(state.d_query_empty[consumer_], i & 1, buffer_came);
    const std::uint32_t address =
        shared_ + G::kDQuery + consumer_ * G::kDQueryBytes + warp() * (G::kDQueryBytes / 4) + lane() * 16;
#pragma unroll
    for (int c = 0; c < G::kDQueryColumns / 8; ++c)
      ptx::st_shared_v4(address + c * kAtomFloats * 4, d_q[c * 4], d_q[c * 4 + 1], d_q[c * 4 + 2], d_q[c * 4 + 3]);
    const bool queries_came = !kLeavesOut && has_come(state.query_full[next.stage], next.parity);
    __syncwarp();
    arrive<kLastLane>(state.d_query_full[consumer_]);
    return queries_came;
  }

  // --- The gradient of a key bias ---

  // In shared memory, for there are no registers for them: the thread's sums of dS over its queries for its two keys;
  // or, where there is room for one sum of a key only, which the quad of lanes adds up in every step, that of the first
  // key is the first lane's and that of the second key the second's.

  __device__ __forceinline__ std::uint32_t bias_sums_address() const {
    if constexpr (G::kBiasSumsOfThreads)
      return shared_ + G::kBiasSums + consumer_thread() * 8;
    else
      return shared_ + G::kBiasSums + (key_row() + lane() % 2 * 8) * 4;
  }
  __device__ __forceinline__ void clear_bias_sums() const {
    if constexpr (G::kBiasSumsOfThreads)
      ptx::st_shared_v2(bias_sums_address(), 0.0f, 0.0f);
    else if (lane() % 4 < 2)
      ptx::st_shared_f32(bias_sums_address(), 0.0f);
  }

  /// Writes the sums of the head at work, and starts anew.
  __device__ __forceinline__ void write_bias_sums_of_head() const {
    const KeyItem& item = state.items[slot_];
    if constexpr (G::kBiasSumsOfThreads) {
      const float2 sums = ptx::ld_shared_v2(bias_sums_address());
      clear_bias_sums();
      if (head_ == kNoHead) return;
      write_bias_sum(p, item, head_, position(item, 0), sums.x, lane());
      write_bias_sum(p, item, head_, position(item, 1), sums.y, lane());
    } else {
      if (lane() % 4 >= 2) return;
      const float sum = ptx::ld_shared_f32(bias_sums_address());
      clear_bias_sums();
      if (head_ != kNoHead) store_bias_sum(p, item, head_, position(item, lane() % 2), sum);
    }
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

  static constexpr int kFirstConsumerBarrier = 1;  ///< named barriers: 0 is the CTA's
  static constexpr int kFirstTurnBarrier = kFirstConsumerBarrier + G::kConsumers;
  static constexpr int kNoHead = -1;  ///< the head at work before the first

  const BackwardParameters& p;
  const TensorMaps& maps;
  std::uint32_t shared_;
  State& state;
  int consumer_;
  int slot_ = 0;           ///< of the item at work
  std::uint32_t facts_;    ///< of the step whose facts are known ahead
  Step step_;              ///< of the step at work
  int head_ = kNoHead;     ///< key-vector bias: whose sums and biases are in shared memory
  bool partial_ = false;   ///< some pairs of the step at work are masked
  std::uint32_t row_dot_;  ///< shared address of D of the lane's first query of the step at work

  // Softcap, where the scores do not take it: 1 - tanh^2, packed, which multiplies what is rounded to 16 bits right
  // after.
  std::uint32_t slope_[kSoftcap && !kSlopeTaken ? kM / 16 : 1][4];
};

}  // namespace flashdma_bwd::hopper
