// dS of a consumer warpgroup's step: from P and dP into registers and into a ring, and dQ, of which each warpgroup
// makes a share of all warpgroups' dS there.
#pragma once

#include "hopper/consumer/scores.cuh"
#include "hopper/key_gradient.cuh"
#include "hopper/score_tile.cuh"
#include "hopper/wgmma.cuh"

namespace flashdma_bwd::hopper {

/// Of a Consumer (consumer.cuh).
template <KernelConfig kConfig, bool kAddsDQuery>
class ConsumerDScores : protected ConsumerScores<kConfig, kAddsDQuery> {
 protected:
  using Base = ConsumerScores<kConfig, kAddsDQuery>;
  using Base::kType, Base::kBf16, Base::kKeyBias, Base::kTileBias, Base::kSoftcap, Base::kSlopeTaken, Base::kDotTerms,
      Base::kM, Base::kTanhFirst, Base::kReadMaskEarly, Base::kTestsGradients, Base::kTakesTurns,
      Base::kEarlyProbabilities, Base::kSomeLate, Base::kPackEarly, Base::kPacksLast, Base::kLeavesOut, Base::step_info,
      Base::key_tile, Base::lse_in_terms, Base::lse_address, Base::row_dot_address, Base::d_score_rows, Base::bias_rows,
      Base::p, Base::shared_, Base::state, Base::consumer_, Base::bias_sums_address, Base::pass_turn,
      Base::pack_probabilities, Base::read_mask_early, Base::hide, Base::partial_, Base::row_dot_, Base::slope_;
  using typename Base::G, typename Base::State, typename Base::KeyTile, typename Base::PairTile,
      typename Base::DScoreRing, typename Base::BiasSums, typename Base::Scores, typename Base::Operand,
      typename Base::Mask;
  using DQuery = float[Base::G::kDQueryColumns / 2];

  __device__ __forceinline__ ConsumerDScores(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                             std::uint32_t shared, State& shared_state, int consumer)
      : Base(parameters, tensor_maps, shared, shared_state, consumer) {}

  /// dS of step i from P and dP, as an operand and in the ring, and P as an operand. Returns whether dS of all
  /// warpgroups of the step before has come.
  __device__ __forceinline__ bool make_d_scores(int i, Scores& probability, Scores& d_score, Operand& probabilities,
                                                Operand& d_scores) {
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
    return store_d_scores(i, d_scores, sums);
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

  // --- The ring ---

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
};

}  // namespace flashdma_bwd::hopper
