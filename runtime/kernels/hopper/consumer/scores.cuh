// S, P and dP of a consumer warpgroup's step: their products, the exponentials under these, and which pairs are masked.
#pragma once

#include "hopper/consumer/key_bias.cuh"
#include "hopper/score_tile.cuh"
#include "hopper/softcap.cuh"
#include "hopper/statistic_columns.cuh"
#include "hopper/transposed_product.cuh"
#include "hopper/wgmma.cuh"

namespace flashdma_bwd::hopper {

/// Of a Consumer (consumer.cuh). start_scores() is called under the products of the step before, finish_scores() behind
/// them.
template <KernelConfig kConfig, bool kAddsDQuery>
class ConsumerScores : protected ConsumerKeyBias<kConfig, kAddsDQuery> {
 protected:
  using Base = ConsumerKeyBias<kConfig, kAddsDQuery>;
  using Base::kType, Base::kBf16, Base::kKeyBias, Base::kTileBias, Base::kSoftcap, Base::kSlopeTaken, Base::kDotTerms,
      Base::kLseTerms, Base::kM, Base::kTanhFirst, Base::kMaskInShared, Base::kReadMaskEarly, Base::kMaskBeforeScores,
      Base::kTakesTurns, Base::kEarlyProbabilities, Base::kPackEarly, Base::kValueInRegisters, Base::kFactsFirst,
      Base::kHeadFirst, Base::kLse, Base::kBiasFirst, Base::kLeavesOut, Base::kFactsAhead, Base::kLseInRegisters,
      Base::position, Base::step_info, Base::query_tile, Base::d_out_tile, Base::own_keys, Base::statistics,
      Base::lse_in_terms, Base::lse_address, Base::row_dot_address, Base::bias_rows, Base::own_values,
      Base::kFirstTurnBarrier, Base::p, Base::shared_, Base::state, Base::consumer_, Base::slot_,
      Base::key_bias_address, Base::read_key_biases, Base::take_head;
  using typename Base::G, typename Base::State, typename Base::QueryTile, typename Base::KeyTile,
      typename Base::ValueTile, typename Base::PairTile, typename Base::BiasRing, typename Base::ValueOperand;
  using Scores = float[Base::kM / 2];
  using Operand = std::uint32_t[Base::kM / 16][4];
  using Mask = MaskBits[Base::kM / 64];
  using Lse = float2[Base::kLseInRegisters ? Base::kM / 8 : 1];
  using BiasWords = std::uint32_t[Base::kBiasFirst ? Base::kM / 16 : 1][4];

  __device__ __forceinline__ ConsumerScores(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                            std::uint32_t shared, State& shared_state, int consumer)
      : Base(parameters, tensor_maps, shared, shared_state, consumer) {}

  /// Issues S^T of step i.
  __device__ __forceinline__ void start_scores(int i, Scores& scores, Lse& lse, Mask& mask, bool queries_came) {
    const RingPosition<G::kQueryStages> query(i);
    wait(state.query_full[query.stage], query.parity, queries_came);
    if constexpr (kFactsFirst) read_facts(i);
    if constexpr (kHeadFirst) take_head(step_.head, step_.key_bias);
    if constexpr (kLse == LseWay::read_before_scores) read_lse(i, lse);
    if constexpr (kMaskBeforeScores) read_mask_early(i, mask);
    StatisticOperand lse_columns;
    if constexpr (kLseTerms) select_lse(lse_columns);
    ptx::wgmma_fence();
    if constexpr (kLseTerms) start_statistic_product<kM>(scores, lse_columns, statistics(i));
    start_transposed_product<KeyTile, QueryTile, kBf16, kLseTerms>(scores, own_keys(), query_tile(i));
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
      start_transposed_product<ValueTile, QueryTile, kBf16, kDotTerms>(d_probability, own_values(), d_out_tile(i));

    // What the arithmetic needs from global memory is asked for while the products run.
    if constexpr (!kFactsFirst) read_facts(i);
    const ItemStep& info = step_info(i);
    bool bias_masks = false;
    if constexpr (kKeyBias) {
      if constexpr (!kHeadFirst) take_head(step_.head, step_.key_bias);
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

  /// Until the arithmetic is this warpgroup's turn, and the other's afterwards. The first turn is the first consumer's.
  __device__ __forceinline__ void take_turn() const {
    ptx::barrier_sync(kFirstTurnBarrier + consumer_, 2 * kWarpgroupThreads);
  }
  __device__ __forceinline__ void pass_turn() const {
    ptx::barrier_arrive(kFirstTurnBarrier + (consumer_ ^ 1), 2 * kWarpgroupThreads);
  }

  /// Of P or dS.
  static __device__ __forceinline__ void pack_probabilities(const Scores& probability, Operand& probabilities) {
#pragma unroll
    for (int j = 0; j < kM / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        probabilities[j / 2][j % 2 * 2 + half] =
            pack<kType>(probability[j * 4 + half * 2], probability[j * 4 + half * 2 + 1]);
  }

  // --- What a step is ---

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
      read_key_biases(step_.key_bias);
    }
  }

  // --- What scores are made probabilities with ---

  __device__ __forceinline__ void read_lse(int i, Lse& lse) const {
#pragma unroll
    for (int j = 0; j < kM / 8; ++j) lse[j] = ptx::ld_shared_v2(lse_address(i) + j * 32);
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

  // --- Masked pairs ---

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

  std::uint32_t facts_;    ///< of the step whose facts are known ahead, from who asks whether it is left out (Consumer)
  Step step_;              ///< of the step at work
  bool partial_ = false;   ///< some pairs of the step at work are masked
  std::uint32_t row_dot_;  ///< shared address of D of the lane's first query of the step at work

  // Softcap, where the scores do not take it: 1 - tanh^2, packed, which multiplies what is rounded to 16 bits right
  // after.
  std::uint32_t slope_[Base::kSoftcap && !Base::kSlopeTaken ? Base::kM / 16 : 1][4];
};

}  // namespace flashdma_bwd::hopper
