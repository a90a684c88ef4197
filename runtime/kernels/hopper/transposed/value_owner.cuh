// The consumer warpgroup that computes S, P and dV, and hands P over.
#pragma once

#include "hopper/owners/probability_words.cuh"
#include "hopper/transposed/consumer.cuh"

namespace flashdma_bwd::hopper::transposed {

/// S, P and dV.
template <KernelConfig kConfig, int kKeys>
class ValueOwner : Consumer<kConfig, Role::value, kKeys> {
  using Base = Consumer<kConfig, Role::value, kKeys>;
  using Base::kKeyBias;
  using Base::kM;
  using Base::kN;
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
  using typename Base::KeyTile;
  using typename Base::Operand;
  using typename Base::PairTile;
  using typename Base::QueryRing;
  using typename Base::QueryTile;
  using typename Base::Scores;
  using typename Base::State;
  using Words = owners::ProbabilityWords<kConfig>;
  /// Where scores become weights, P as an operand is packed beside them.
  using Packed = std::uint32_t[kSoftcap ? kN / 16 : 1][4];

 public:
  __device__ __forceinline__ ValueOwner(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                        std::uint32_t shared, State& shared_state)
      : Base(parameters, tensor_maps, shared, shared_state) {}

  __device__ __forceinline__ void run() {
    Gradient d_v;
    Base::clear(d_v);
    const int steps = state.step_count;
    if (steps > 0) {
      wait(state.key_full, 0);
      Scores scores;
      ScoreFacts facts;
      start_scores(0, scores, facts, false);
      ptx::wgmma_wait_group<0>();
      {
        Packed packed;
        finish_scores(0, facts, scores, packed);
        hand_over(0, scores, packed, facts.partial, false);
      }
      Came came{};
      for (int i = 0; i + 1 < steps; ++i) {
        start_scores(i + 1, scores, facts, came.queries);
        start_d_value(i, d_v, came);
        const bool probability_buffer_came = has_come(state.probability_empty, i & 1);
        ptx::wgmma_wait_group<1>();
        Packed packed;
        finish_scores(i + 1, facts, scores, packed);
        const DScoreRing d_score(i);
        const bool d_scores_came = has_come(state.d_score_full[d_score.stage], d_score.parity);
        ptx::wgmma_wait_group<0>();
        give_back_operands(i);
        hand_over(i + 1, scores, packed, facts.partial, probability_buffer_came);
        came = add_d_query(i, d_scores_came);
      }
      start_d_value(steps - 1, d_v, came);
      ptx::wgmma_wait_group<0>();
      give_back_operands(steps - 1);
      add_d_query(steps - 1, false);
    }
    // V has been read by the key owner's products, which were finished before the last dS.
    this->write_gradient(p.d_v, maps.d_v, true, d_v, shared_ + G::kValue);
  }

 private:
  /// What was asked for ahead, for the next products.
  struct Came {
    bool queries, d_out, operand;
  };

  /// What the arithmetic on S needs, read before its products are issued: a read behind products waits until the tensor
  /// cores have taken them (NOTES.md).
  struct ScoreFacts {
    float lse[2];   ///< of the lane's queries
    bool new_head;  ///< another one than that of the step before
    bool partial;   ///< some of the pairs are masked
  };

  /// Issues S of step i.
  __device__ __forceinline__ void start_scores(int i, Scores& scores, ScoreFacts& facts, bool queries_came) const {
    const QueryRing query(i);
    wait(state.query_full[query.stage], query.parity, queries_came);
    const std::uint32_t address = shared_ + G::kLse + query.stage * (kM * 4) + Base::query_row() * 4;
    facts.lse[0] = ptx::ld_shared_f32(address);
    facts.lse[1] = ptx::ld_shared_f32(address + 8 * 4);
    const Step& info = state.steps[static_cast<unsigned>(i) % kStepSlots];
    facts.partial = info.partial;
    if constexpr (kKeyBias) facts.new_head = info.new_head;
    ptx::wgmma_fence();
    // The rows are queries, not keys.
    start_transposed_product<QueryTile, KeyTile, Base::kBf16>(scores, this->query_tile(i),
                                                              ptx::opaque(KeyTile::descriptor(shared_ + G::kKey)));
  }

  /// Issues dV^T of step i.
  __device__ __forceinline__ void start_d_value(int i, Gradient& d_v, const Came& came) const {
    const DOutRing d_out(i);
    wait(state.d_out_full[d_out.stage], d_out.parity, came.d_out);
    wait(state.operand_full, i & 1, came.operand);
    ptx::wgmma_fence();
    Base::accumulate(d_v, this->d_out_tile(i), ptx::opaque(PairTile::descriptor(shared_ + G::kOperand)));
  }
  /// When dV^T of step i is done.
  __device__ __forceinline__ void give_back_operands(int i) const {
    arrive(state.d_out_empty[DOutRing(i).stage]);
    arrive(state.operand_empty);
  }

  /// The warpgroup's share of dQ of step i.
  __device__ __forceinline__ Came add_d_query(int i, bool d_scores_came) const {
    const DScoreRing d_score(i);
    wait(state.d_score_full[d_score.stage], d_score.parity, d_scores_came);
    DQuery d_q;
    ptx::wgmma_fence();
    this->start_d_query(i, d_q);
    const bool buffer_came = this->buffer_came(i);
    float* const destination = this->other_parts(i);
    ptx::wgmma_wait_group<0>();
    arrive(state.d_score_empty[d_score.stage]);
    this->hand_over_d_query(i, d_q, buffer_came, destination);
    const QueryRing query(i + 2);
    const DOutRing d_out(i + 1);
    return {has_come(state.query_full[query.stage], query.parity),
            has_come(state.d_out_full[d_out.stage], d_out.parity), has_come(state.operand_full, (i + 1) & 1)};
  }

  /// S to P.
  __device__ __forceinline__ void finish_scores(int i, ScoreFacts& facts, Scores& scores, Packed& packed) {
    const Step& info = state.steps[static_cast<unsigned>(i) % kStepSlots];
    if constexpr (kKeyBias)
      if (facts.new_head) read_key_bias(info.head);
    const QueryRing query(i);
    if constexpr (kSoftcap)
      exponentiate_rows<kConfig>(p, scores, facts.lse, Absent{}, packed);
    else if constexpr (kKeyBias)
      exponentiate_rows<kConfig>(p, scores, facts.lse, shared_ + G::kKeyBias + lane() % 4 * 8, Absent{});
    else
      exponentiate_rows<kConfig>(p, scores, facts.lse, Absent{}, Absent{});
    if constexpr (kKeyBias)
      facts.partial |= (state.bias_keys[0] & state.bias_keys[1] & state.bias_keys[2]) != 0xffffffffu;
    if (facts.partial) hide_masked(info, query.stage, scores, packed);
    // The mask's words and LSE have been read, too, by all lanes.
    __syncwarp();
    arrive(state.query_empty[query.stage]);
  }

  __device__ __forceinline__ void hide_masked(const Step& info, int stage, Scores& scores, Packed& packed) const {
    const auto clear = [&](int e) {
      scores[e] = 0.0f;
      if constexpr (kSoftcap) clear_packed(packed, e);
    };
    const KeyItem& item = state.item;
    const bool has_words = info.has_words;
    const bool has_limits = !has_words || !p.limits_in_mask;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = Base::query_row() + half * 8;
      const int query = info.first_query + row;
      VisibleKeys visible;
      if (has_words)
        visible.keep_mask(shared_ + G::kMask + stage * G::kMaskBytes + row * 8, info.atoms, item.key_tile % 2 != 0,
                          kM * 8);
      if constexpr (kKeyBias) {
#pragma unroll
        for (int w = 0; w < 3; ++w) visible.keep(w, state.bias_keys[w]);
      }
      const bool scattered = item.active != nullptr;
      if (has_limits && !scattered)
        visible.keep_range(query + item.limits.low - item.first_position,
                           min(query + item.limits.high + 1 - item.first_position, item.keys));
      visible.own_keys(lane());
      if (has_limits && scattered)
        visible.keep_positions(ptx::shared_address(state.positions) + lane() % 4 * 8, query + item.limits.low,
                               query + item.limits.high);
      visible.template hide<kN>(clear, half);
    }
  }

  /// P to shared memory, for the key owner and as dV's operand.
  __device__ __forceinline__ void hand_over(int i, const Scores& scores, const Packed& packed, bool partial,
                                            bool buffer_came) const {
    wait(state.probability_empty, (i & 1) ^ 1, buffer_came);
    const std::uint32_t address = this->probability_address();
#pragma unroll
    for (int k = 0; k < kN / 16; ++k) {
      std::uint32_t words[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) words[w] = Words::pack(scores[k * 8 + w * 2], scores[k * 8 + w * 2 + 1]);
      ptx::st_shared_v4(address + k * 512, {words[0], words[1], words[2], words[3]});
    }
    if (lane() == 0) state.probability_partial[warp()] = partial;
    ptx::mbarrier_arrive(ptx::shared_address(&state.probability_full));
    wait(state.operand_empty, (i & 1) ^ 1);
    store_rows<PairTile, kN>(shared_ + G::kOperand, [&](int k, std::uint32_t(&words)[4]) {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        if constexpr (kSoftcap)
          words[w] = packed[k][w];
        else
          words[w] = pack<kType>(scores[k * 8 + w * 2], scores[k * 8 + w * 2 + 1]);
      }
    });
    ptx::fence_proxy_async();
    __syncwarp();
    arrive(state.operand_full);
  }

  /// The biases of the keys with a head into shared memory, in units of log2, and which of them are not minus
  /// infinity.
  __device__ __forceinline__ void read_key_bias(int head) const {
    ptx::barrier_sync(owners::kValueOwnerBarrier, kWarpgroupThreads);  // the last head's have been read
    if (const int row = warp() * 32 + lane(); warp() < G::kN / 32) {
      const float bias = key_bias_of<kType>(p, state.item, head, position_of_row(state.item, row)) * kLog2E;
      ptx::st_shared_f32(shared_ + G::kKeyBias + row * 4, bias);
      const unsigned finite = __ballot_sync(0xffffffffu, bias != -INFINITY);
      if (lane() == 0) state.bias_keys[warp()] = finite;
    }
    ptx::barrier_sync(owners::kValueOwnerBarrier, kWarpgroupThreads);
  }
};

}  // namespace flashdma_bwd::hopper::transposed
