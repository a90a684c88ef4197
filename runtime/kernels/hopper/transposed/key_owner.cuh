// The consumer warpgroup that computes dP, dS and dK, and a key bias's gradient.
#pragma once

#include "hopper/owners/probability_words.cuh"
#include "hopper/transposed/consumer.cuh"

namespace flashdma_bwd::hopper::transposed {

/// dP, dS and dK.
template <KernelConfig kConfig, int kKeys>
class KeyOwner : Consumer<kConfig, Role::key, kKeys> {
  using Base = Consumer<kConfig, Role::key, kKeys>;
  using Base::kKeyBias;
  using Base::kM;
  using Base::kN;
  using Base::kType;
  using Base::maps;
  using Base::p;
  using Base::shared_;
  using Base::state;
  using typename Base::DOutRing;
  using typename Base::DQuery;
  using typename Base::DScoreRing;
  using typename Base::G;
  using typename Base::Gradient;
  using typename Base::Operand;
  using typename Base::PairTile;
  using typename Base::QueryRing;
  using typename Base::QueryTile;
  using typename Base::Scores;
  using typename Base::State;
  using typename Base::ValueTile;
  using Words = owners::ProbabilityWords<kConfig>;

 public:
  __device__ __forceinline__ KeyOwner(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                      std::uint32_t shared, State& shared_state)
      : Base(parameters, tensor_maps, shared, shared_state) {}

  __device__ __forceinline__ void run() {
    Gradient d_k;
    Base::clear(d_k);
    const int steps = state.step_count;
    if (steps > 0) {
      wait(state.value_full, 0);
      wait(state.key_full, 0);
      Scores d_score;
      start_d_probability(0, d_score, false);
      ptx::wgmma_wait_group<0>();
      for (int i = 0;;) {
        const QueryRing query(i);
        const DScoreRing ring(i);
        bool queries_came;
        {
          Operand d_scores;
          [[maybe_unused]] BiasSums sums;
          const bool buffer_came = differentiate(i, d_score, d_scores, sums);
          // D has been read, too, by all lanes.
          __syncwarp();
          arrive(state.d_out_empty[DOutRing(i).stage]);
          queries_came = store_d_scores(i, d_scores, buffer_came);
          // Here it runs while the other warps store theirs.
          if constexpr (kKeyBias) add_bias_sums(sums);
        }
        DQuery d_q;
        wait(state.d_score_full[ring.stage], ring.parity);
        ptx::wgmma_fence();
        this->start_d_query(i, d_q);
        wait(state.query_full[query.stage], query.parity, queries_came);
        ptx::wgmma_fence();
        Base::accumulate(d_k, this->query_tile(i), this->d_score_tile(i));
        const bool d_query_buffer_came = this->buffer_came(i);
        float* const destination = this->other_parts(i);
        ptx::wgmma_wait_group<1>();
        this->hand_over_d_query(i, d_q, d_query_buffer_came, destination);
        const DOutRing next(i + 1);
        const bool d_out_came = has_come(state.d_out_full[next.stage], next.parity);
        ptx::wgmma_wait_group<0>();
        arrive(state.query_empty[query.stage]);
        arrive(state.d_score_empty[ring.stage]);
        if (++i == steps) break;
        start_d_probability(i, d_score, d_out_came);
        if constexpr (kKeyBias) write_bias_sums_of_last_head(i);
        ptx::wgmma_wait_group<0>();
      }
      if constexpr (kKeyBias) write_bias_sums(head_of(steps - 1));
    }
#pragma unroll
    for (auto& block : d_k)
#pragma unroll
      for (float& value : block) value *= p.scale;
    // Q has been read by S, whose P has all come, and by this warpgroup's products, which each warp has waited for.
    ptx::barrier_sync(owners::kKeyOwnerBarrier, kWarpgroupThreads);
    static_assert(ValueTile::kBytes <= G::kQueryStages * QueryTile::kBytes);
    this->write_gradient(p.d_k, maps.d_k, false, d_k, shared_ + G::kQuery);
  }

 private:
  /// Issues dP of step i.
  __device__ __forceinline__ void start_d_probability(int i, Scores& d_probability, bool d_out_came) const {
    const DOutRing d_out(i);
    wait(state.d_out_full[d_out.stage], d_out.parity, d_out_came);
    ptx::wgmma_fence();
    // The rows are queries, not keys.
    start_transposed_product<QueryTile, ValueTile, Base::kBf16>(
        d_probability, this->d_out_tile(i), ptx::opaque(ValueTile::descriptor(shared_ + G::kValue)));
  }

  /// Of a lane's keys, over its two queries.
  using BiasSums = float[kKeyBias ? kN / 4 : 1];

  /// dP to dS. Returns whether there is a buffer for it.
  __device__ __forceinline__ bool differentiate(int i, Scores& d_score, Operand& d_scores,
                                                [[maybe_unused]] BiasSums& sums) {
    constexpr float kUnit = Words::kUnit;
    const std::uint32_t row_dot = shared_ + G::kRowDot + DOutRing(i).stage * (kM * 4) + Base::query_row() * 4;
    const float dots[2] = {-kUnit * ptx::ld_shared_f32(row_dot), -kUnit * ptx::ld_shared_f32(row_dot + 8 * 4)};
    wait(state.probability_full, i & 1);
    const DScoreRing ring(i);
    const bool buffer_came = has_come(state.d_score_empty[ring.stage], ring.parity ^ 1);
    const std::uint32_t address = this->probability_address();
    const bool partial = state.probability_partial[warp()];
#pragma unroll
    for (int k = 0; k < kN / 16; ++k) {
      const uint4 words = ptx::ld_shared_v4(address + k * 512);
      const float2 probabilities[4] = {Words::unpack(words.x), Words::unpack(words.y), Words::unpack(words.z),
                                       Words::unpack(words.w)};
      // What multiplies a P of 0 is made finite: a masked key may hold values whose products overflow.
      if (partial) {
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          if (probabilities[w].x == 0.0f) d_score[k * 8 + w * 2] = 0.0f;
          if (probabilities[w].y == 0.0f) d_score[k * 8 + w * 2 + 1] = 0.0f;
        }
      }
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const float x = probabilities[w].x * fmaf(d_score[k * 8 + w * 2], kUnit, dots[w % 2]);
        const float y = probabilities[w].y * fmaf(d_score[k * 8 + w * 2 + 1], kUnit, dots[w % 2]);
        if constexpr (kKeyBias) {
          float* const sum = sums + k * 4 + w / 2 * 2;
          sum[0] = w % 2 == 0 ? x : sum[0] + x;
          sum[1] = w % 2 == 0 ? y : sum[1] + y;
        }
        d_scores[k][w] = pack<kType>(x, y);
      }
    }
    ptx::mbarrier_arrive(ptx::shared_address(&state.probability_empty));
    return buffer_came;
  }

  /// dS into the ring, for both warpgroups. Returns whether Q has come.
  __device__ __forceinline__ bool store_d_scores(int i, const Operand& d_scores, bool buffer_came) const {
    return this->publish_d_scores(i, buffer_came, [&](std::uint32_t tile) {
      store_rows<PairTile, kN>(tile, [&](int k, std::uint32_t(&words)[4]) {
#pragma unroll
        for (int w = 0; w < 4; ++w) words[w] = d_scores[k][w];
      });
    });
  }

  // --- The bias's gradient ---

  /// A warp's sum of dS over its queries, of a key.
  __device__ __forceinline__ float& bias_sum(int of_warp, int key) const {
    return reinterpret_cast<float*>(reinterpret_cast<unsigned char*>(&state) -
                                    (G::kState - G::kBiasSums))[of_warp * kN + key];
  }

  /// Adds a lane's sums of a step to those of its warp. Of the eight lanes that have the same keys each keeps an
  /// eighth.
  template <int kCount>
  __device__ __forceinline__ void add_bias_sums(float (&sums)[kCount]) {
    static_assert(kCount == 8 * kKeptSums);
    const int l = lane();
    fold<4 * kKeptSums>(sums, l, 16);
    fold<2 * kKeptSums>(sums, l, 8);
    fold<kKeptSums>(sums, l, 4);
#pragma unroll
    for (int c = 0; c < kKeptSums; ++c) kept_sums_[c] += sums[c];
  }
  /// Keeps the sums [0, kKept), or in the lanes with `bit` the next ones, of both lanes that differ in it.
  template <int kKept, int kCount>
  static __device__ __forceinline__ void fold(float (&sums)[kCount], int lane, int bit) {
    const bool upper = (lane & bit) != 0;
#pragma unroll
    for (int c = 0; c < kKept; ++c) {
      const float sent = upper ? sums[c] : sums[c + kKept];
      const float kept = upper ? sums[c + kKept] : sums[c];
      sums[c] = kept + __shfl_xor_sync(0xffffffffu, sent, bit);
    }
  }

  /// Of step i, whose dO has come.
  __device__ __forceinline__ int head_of(int i) const {
    return state.heads[static_cast<unsigned>(i) % kStepSlots];
  }
  /// Where step i, whose dO has come, is another head's than the one before. Asked under dP's products, at the end of
  /// the loop: from a branch within it ptxas concludes that nothing is the same for all threads any more, and moves
  /// every descriptor to uniform registers anew (NOTES.md).
  __device__ __forceinline__ void write_bias_sums_of_last_head(int i) {
    const int last = head_of(i - 1);
    if (__any_sync(0xffffffffu, head_of(i) != last)) write_bias_sums(last);
  }
  /// Writes the sums of a head, and starts anew.
  __device__ __forceinline__ void write_bias_sums(int head) {
    const int l = lane();
    const int first = (l >> 4 & 1) * (4 * kKeptSums) + (l >> 3 & 1) * (2 * kKeptSums) + (l >> 2 & 1) * kKeptSums;
#pragma unroll
    for (int c = 0; c < kKeptSums; ++c) {
      const int n = first + c;
      bias_sum(warp(), n / 2 * 8 + l % 4 * 2 + n % 2) = kept_sums_[c];
      kept_sums_[c] = 0.0f;
    }
    ptx::barrier_sync(owners::kKeyOwnerBarrier, kWarpgroupThreads);
    if (const int row = warp() * 32 + lane(); row < kN) {
      float sum = 0.0f;
#pragma unroll
      for (int w = 0; w < 4; ++w) sum += bias_sum(w, row);
      store_bias_sum(p, state.item, head, position_of_row(state.item, row), sum);
    }
    ptx::barrier_sync(owners::kKeyOwnerBarrier, kWarpgroupThreads);
  }

  static constexpr int kKeptSums = kN / 32;
  float kept_sums_[kKeptSums] = {};  ///< key bias: the lane's share of its warp's sums of dS with the head at work
};

}  // namespace flashdma_bwd::hopper::transposed
