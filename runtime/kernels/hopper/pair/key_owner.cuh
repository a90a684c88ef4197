// The consumer warpgroup that computes dP, dS and dK, and a key bias's gradient.
#pragma once

#include "hopper/owners/probability_words.cuh"
#include "hopper/pair/consumer.cuh"

namespace flashdma_bwd::hopper::pair {

/// dP, dS and dK. `kAddsDQuery`: and a share of dQ.
template <KernelConfig kConfig, bool kAddsDQuery = true>
class KeyOwner : Consumer<kConfig, Role::key, kAddsDQuery> {
  using Base = Consumer<kConfig, Role::key, kAddsDQuery>;
  using Base::kD;
  using Base::kKeyBias;
  using Base::kM;
  using Base::kSoftcap;
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
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) d_k[i] = 0.0f;
    const int steps = state.step_count;
    if (steps > 0) {
      wait(state.value_full, 0);
      wait(state.key_full, 0);
      Scores d_score;
      bool probabilities_came = start_d_probability(0, d_score, false);
      ptx::wgmma_wait_group<0>();
      for (int i = 0;;) {
        if constexpr (!kAddsDQuery) {
          probabilities_came = take_step_without_d_query(i, i + 1 == steps, d_score, d_k, probabilities_came);
          if (++i == steps) break;
          continue;
        }
        Operand d_scores;
        const bool buffer_came = differentiate(i, d_score, d_scores, probabilities_came);
        // D has been read, too, by all lanes.
        __syncwarp();
        this->arrive_in_both(state.d_out_empty[DOutRing(i).stage]);
        const bool queries_came = store_d_scores(i, d_scores, buffer_came);
        const QueryRing query(i);
        wait(state.query_full[query.stage], query.parity, queries_came);
        const auto d_scores_came = this->d_scores_came(i - 1);
        ptx::wgmma_fence();
        this->accumulate(d_k, d_scores, this->query_tile(i));
        if (i > 0) this->wait_for_d_scores(i - 1, d_scores_came);
        DQuery d_q;
        ptx::wgmma_fence();
        this->start_d_query(i - 1, d_q);  // before the first step of whatever is there; it is not used
        const bool d_query_buffer_came = this->buffer_came(i - 1);
        ptx::wgmma_wait_group<1>();
        this->arrive_in_both(state.query_empty[query.stage]);
        float* const second_part = this->second_part(i - 1);
        ptx::wgmma_wait_group<0>();
        const DOutRing next(i + 1);
        bool next_came = false;
        if (i > 0)
          next_came = this->hand_over_d_query(i - 1, d_q, d_query_buffer_came, second_part,
                                              state.d_out_full[next.stage], next.parity);
        if (++i == steps) break;
        probabilities_came = start_d_probability(i, d_score, next_came);
        ptx::wgmma_wait_group<0>();
      }
      if constexpr (kAddsDQuery) this->finish_d_query(steps - 1);
      if constexpr (kKeyBias) write_bias_sums();
    }
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) d_k[i] *= p.scale;
    // Q has been read by S, whose P has all come, and by this warpgroup's products, which each warp has waited for.
    ptx::barrier_sync(owners::kKeyOwnerBarrier, kWarpgroupThreads);
    this->template write_gradient<QueryTile>(p.d_k, maps.d_k, false, d_k, shared_ + G::kQuery);
  }

 private:
  /// Step i without dQ, and dP^T of the next one, unless it is the last, behind the products of dK. Returns whether the
  /// next step's P has come.
  __device__ __forceinline__ bool take_step_without_d_query(int i, bool last, Scores& d_score, Gradient& d_k,
                                                            bool probabilities_came) {
    Operand d_scores;
    const bool buffer_came = differentiate(i, d_score, d_scores, probabilities_came);
    // D has been read, too, by all lanes.
    __syncwarp();
    this->arrive_in_both(state.d_out_empty[DOutRing(i).stage]);
    const bool queries_came = store_d_scores(i, d_scores, buffer_came);
    const QueryRing query(i);
    wait(state.query_full[query.stage], query.parity, queries_came);
    ptx::wgmma_fence();
    this->accumulate(d_k, d_scores, this->query_tile(i));
    bool next_came = false;
    if (last) {
      ptx::wgmma_wait_group<0>();
    } else {
      next_came = start_d_probability(i + 1, d_score, false);
      ptx::wgmma_wait_group<1>();
    }
    this->arrive_in_both(state.query_empty[query.stage]);
    ptx::wgmma_wait_group<0>();
    return next_came;
  }

  /// Issues dP^T of step i. Returns whether the step's P has come.
  __device__ __forceinline__ bool start_d_probability(int i, Scores& d_probability, bool d_out_came) const {
    const DOutRing d_out(i);
    wait(state.d_out_full[d_out.stage], d_out.parity, d_out_came);
    ptx::wgmma_fence();
    start_transposed_product<ValueTile, typename Base::QueryTile, Base::kBf16>(
        d_probability, ptx::opaque(ValueTile::descriptor(shared_ + G::kValue)), this->d_out_tile(i));
    return has_come(state.probability_full, i & 1);
  }

  /// dP to dS. Returns whether there is a buffer for it.
  __device__ __forceinline__ bool differentiate(int i, Scores& d_score, Operand& d_scores, bool probabilities_came) {
    wait(state.probability_full, i & 1, probabilities_came);
    const DScoreRing ring(i);
    const bool buffer_came = has_come(state.d_score_empty[ring.stage], ring.parity ^ 1);
    // The value owner has seen that Q, with which the step's description comes, is there.
    const StepInfo& info = state.steps[i % kStepSlots];
    if constexpr (kKeyBias)
      if (info.head != head_) {
        write_bias_sums();
        head_ = info.head;
      }
    const std::uint32_t row_dot = shared_ + G::kRowDot + DOutRing(i).stage * (kM * 4) + lane() % 4 * 8;
    const std::uint32_t address = this->probability_address();
    [[maybe_unused]] const std::uint32_t biases =
        G::kSlopesReplaceBiases ? shared_ + G::kTileBias + this->pair_tile_row() : 0;
    float sums[2] = {0.0f, 0.0f};
    const bool partial = state.probability_partial[warp()];
#pragma unroll
    for (int k = 0; k < kM / 16; ++k) {
      const uint4 words = ptx::ld_shared_v4(address + k * 512);
      const float2 probabilities[4] = {Words::unpack(words.x), Words::unpack(words.y), Words::unpack(words.z),
                                       Words::unpack(words.w)};
      float2 slopes[4];
      if constexpr (G::kSlopesReplaceBiases) {
        std::uint32_t words[4];
        ptx::ldmatrix_x4_trans(words, biases + k * 16 * PairTile::kRowBytes);
#pragma unroll
        for (int w = 0; w < 4; ++w) slopes[w] = unpack<kSlopeType>(words[w]);
      }
      if constexpr (Base::kHandOverSlopes) {
        const uint4 both = ptx::ld_shared_v4(address + (k + kM / 16) * 512);
        slopes[0] = unpack<kSlopeType>(both.x);
        slopes[1] = unpack<kSlopeType>(both.y);
        slopes[2] = unpack<kSlopeType>(both.z);
        slopes[3] = unpack<kSlopeType>(both.w);
      }
      // What multiplies a P of 0 is made finite: a masked key may hold values whose products overflow.
      if (partial) {
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          if (probabilities[w].x == 0.0f) d_score[k * 8 + w * 2] = 0.0f;
          if (probabilities[w].y == 0.0f) d_score[k * 8 + w * 2 + 1] = 0.0f;
        }
      }
      [[maybe_unused]] std::uint32_t bias_gradient[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        constexpr float kUnit = Words::kUnit;
        const float2 column = ptx::ld_shared_v2(row_dot + (k * 2 + w / 2) * 32);
        float x = probabilities[w].x * fmaf(d_score[k * 8 + w * 2], kUnit, -column.x * kUnit);
        float y = probabilities[w].y * fmaf(d_score[k * 8 + w * 2 + 1], kUnit, -column.y * kUnit);
        if constexpr (kKeyBias) sums[w % 2] += x + y;
        if constexpr (G::kSlopesReplaceBiases) bias_gradient[w] = pack<kType>(x, y);
        if constexpr (Base::kHandOverSlopes || G::kSlopesReplaceBiases) {
          x *= slopes[w].x;
          y *= slopes[w].y;
        }
        d_scores[k][w] = pack<kType>(x, y);
      }
      if constexpr (G::kSlopesReplaceBiases)
        ptx::stmatrix_x4_trans(biases + k * 16 * PairTile::kRowBytes, bias_gradient);
    }
    if constexpr (kKeyBias) {
      float2& total = bias_sums();
      total = {total.x + sums[0], total.y + sums[1]};
    }
    ptx::mbarrier_arrive(ptx::shared_address(&state.probability_empty));
    return buffer_came;
  }

  /// dS into the ring, as rows of queries, for both warpgroups and the sender. Returns whether Q has come.
  __device__ __forceinline__ bool store_d_scores(int i, const Operand& d_scores, bool buffer_came) const {
    return this->publish_d_scores(i, buffer_came, [&](std::uint32_t tile) {
      const std::uint32_t address = tile + this->pair_tile_row();
#pragma unroll
      for (int k = 0; k < kM / 16; ++k) ptx::stmatrix_x4_trans(address + k * 16 * PairTile::kRowBytes, d_scores[k]);
    });
  }

  // --- The bias's gradient ---

  /// The thread's sums of dS over the queries, of its two keys. In shared memory, for there are no registers for them.
  __device__ __forceinline__ float2& bias_sums() const {
    return reinterpret_cast<float2*>(reinterpret_cast<unsigned char*>(&state) -
                                     (G::kState - G::kBiasSums))[ptx::fresh_thread_index() % kWarpgroupThreads];
  }

  /// Writes the sums of the head at work, and starts anew.
  __device__ __forceinline__ void write_bias_sums() {
    const float2 mine = bias_sums();
    bias_sums() = {0.0f, 0.0f};
    if (head_ < 0) return;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      write_bias_sum(p, state.item, head_, this->position(half), half == 0 ? mine.x : mine.y, lane());
  }

  int head_ = -1;  ///< key-vector bias: of the step at work
};

}  // namespace flashdma_bwd::hopper::pair
