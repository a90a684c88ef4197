// The consumer warpgroup that computes S, P and dV, and hands P over.
#pragma once

#include "hopper/owners/probability_words.cuh"
#include "hopper/pair/consumer.cuh"

namespace flashdma_bwd::hopper::pair {

/// S, P and dV. `kAddsDQuery`: and a share of dQ.
template <KernelConfig kConfig, bool kAddsDQuery = true>
class ValueOwner : Consumer<kConfig, Role::value, kAddsDQuery> {
  using Base = Consumer<kConfig, Role::value, kAddsDQuery>;
  using Base::kD;
  using Base::kKeyBias;
  using Base::kM;
  using Base::kSoftcap;
  using Base::kTileBias;
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
  using typename Base::QueryRing;
  using typename Base::Scores;
  using typename Base::State;

 public:
  __device__ __forceinline__ ValueOwner(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                        std::uint32_t shared, State& shared_state)
      : Base(parameters, tensor_maps, shared, shared_state) {}

  __device__ __forceinline__ void run() {
    Gradient d_v;
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) d_v[i] = 0.0f;
    const int steps = state.step_count;
    if (steps > 0) {
      wait(state.key_full, 0);
      Scores scores;
      start_scores(0, scores, false);
      if constexpr (kKeyBias) take_head(0);
      ptx::wgmma_wait_group<0>();
      wait(state.value_full, 0);  // the other CTA's keys
      for (int i = 0;;) {
        if constexpr (!kAddsDQuery) {
          take_step_without_d_query(i, i + 1 == steps, scores, d_v);
          if (++i == steps) break;
          continue;
        }
        Operand probabilities;
        const bool d_out_came = finish_scores(i, scores, probabilities);
        // LSE has been read, too, by all lanes.
        __syncwarp();
        this->arrive_in_both(state.query_empty[QueryRing(i).stage]);
        const DOutRing d_out(i);
        wait(state.d_out_full[d_out.stage], d_out.parity, d_out_came);
        const auto d_scores_came = this->d_scores_came(i - 1);
        ptx::wgmma_fence();
        this->accumulate(d_v, probabilities, this->d_out_tile(i));
        if (i > 0) this->wait_for_d_scores(i - 1, d_scores_came);
        DQuery d_q;
        ptx::wgmma_fence();
        this->start_d_query(i - 1, d_q);  // before the first step of whatever is there; it is not used
        const bool buffer_came = this->buffer_came(i - 1);
        ptx::wgmma_wait_group<1>();
        this->arrive_in_both(state.d_out_empty[d_out.stage]);
        float* const second_part = this->second_part(i - 1);
        ptx::wgmma_wait_group<0>();
        const QueryRing next(i + 1);
        bool next_came = false;
        if (i > 0)
          next_came =
              this->hand_over_d_query(i - 1, d_q, buffer_came, second_part, state.query_full[next.stage], next.parity);
        if (++i == steps) break;
        start_scores(i, scores, next_came);
        if constexpr (kKeyBias) take_head(i);
        ptx::wgmma_wait_group<0>();
      }
      // V has been read by the key owner's products, which were finished before the last dS that dQ was computed of, or
      // before the last P was taken.
      if constexpr (kAddsDQuery)
        this->finish_d_query(steps - 1);
      else
        wait(state.probability_empty, (steps - 1) & 1);
    }
    this->template write_gradient<typename G::ValueTile>(p.d_v, maps.d_v, true, d_v, shared_ + G::kValue);
  }

 private:
  /// Step i without dQ, and S^T of the next one, unless it is the last, behind the products of dV.
  __device__ __forceinline__ void take_step_without_d_query(int i, bool last, Scores& scores, Gradient& d_v) {
    Operand probabilities;
    const bool d_out_came = finish_scores(i, scores, probabilities);
    // LSE has been read, too, by all lanes.
    __syncwarp();
    this->arrive_in_both(state.query_empty[QueryRing(i).stage]);
    const DOutRing d_out(i);
    wait(state.d_out_full[d_out.stage], d_out.parity, d_out_came);
    ptx::wgmma_fence();
    this->accumulate(d_v, probabilities, this->d_out_tile(i));
    if (last) {
      ptx::wgmma_wait_group<0>();
    } else {
      start_scores(i + 1, scores, false);
      ptx::wgmma_wait_group<1>();
    }
    this->arrive_in_both(state.d_out_empty[d_out.stage]);
    ptx::wgmma_wait_group<0>();
  }

  /// Issues S^T of step i.
  __device__ __forceinline__ void start_scores(int i, Scores& scores, bool queries_came) const {
    const QueryRing query(i);
    wait(state.query_full[query.stage], query.parity, queries_came);
    ptx::wgmma_fence();
    start_transposed_product<KeyTile, typename Base::QueryTile, Base::kBf16>(
        scores, ptx::opaque(KeyTile::descriptor(shared_ + G::kKey)), this->query_tile(i));
  }

  /// The key biases of step i, whose Q has come, where it is another head's than the one before. Under S's products, at
  /// the end of the loop: from a branch within it ptxas concludes that nothing is the same for all threads any more,
  /// and moves every descriptor to uniform registers anew (NOTES.md).
  __device__ __forceinline__ void take_head(int i) {
    const int head = state.steps[i % kStepSlots].head;
    if (__all_sync(0xffffffffu, head == head_)) return;
    head_ = head;
    read_key_bias();
  }

  /// S to P, for the key owner and as dV's operand. Returns whether dO has come.
  __device__ __forceinline__ bool finish_scores(int i, Scores& scores, Operand& probabilities) {
    const StepInfo& info = state.steps[i % kStepSlots];
    const bool buffer_came = has_come(state.probability_empty, (i & 1) ^ 1);
    float bias[2] = {0.0f, 0.0f};
    if constexpr (kKeyBias) {
#pragma unroll
      for (int half = 0; half < 2; ++half) bias[half] = ptx::ld_shared_f32(key_bias_address(half));
    }
    const std::uint32_t lse = shared_ + G::kLse + QueryRing(i).stage * (kM * 4) + lane() % 4 * 8;
    constexpr bool kSlopeTaken = kScoresTakeSlope<kConfig>;
    static_assert(kSlopeTaken == (kSoftcap && !Base::kHandOverSlopes && !G::kSlopesReplaceBiases));
    std::uint32_t slopes[kSoftcap && !kSlopeTaken ? kM / 16 : 1][4];
    const auto with_bias = [&](auto&& key_bias) {
      if constexpr (kSlopeTaken)
        exponentiate<kConfig>(p, scores, lse, key_bias, Absent{}, probabilities);
      else if constexpr (kSoftcap)
        exponentiate<kConfig>(p, scores, lse, key_bias, Absent{}, slopes);
      else
        exponentiate<kConfig>(p, scores, lse, key_bias, Absent{}, Absent{});
    };
    bool bias_masks = false;
    if constexpr (kTileBias) {
      bias_masks = take_tile_bias(i, scores, lse, slopes);
    } else if constexpr (kKeyBias) {
      with_bias(bias);
      bias_masks = __any_sync(0xffffffffu, bias[0] == -INFINITY || bias[1] == -INFINITY);
    } else {
      with_bias(Absent{});
    }
    const bool partial = info.partial || bias_masks;
    if (partial) {
      const auto clear = [&](int e) {
        scores[e] = 0.0f;
        if constexpr (kSlopeTaken) clear_packed(probabilities, e);
      };
      if (info.mask_words != nullptr) {
        static_assert(kM == 64);
        MaskBits mask;
        if constexpr (G::kMaskBytes > 0)
          mask.read(shared_ + G::kMask + QueryRing(i).stage * G::kMaskBytes, warp(), lane());
        else
          mask.read(info.mask_words, warp(), lane());
        mask.arrange(lane());
        if constexpr (kKeyBias) {
#pragma unroll
          for (int half = 0; half < 2; ++half)
            if (bias[half] == -INFINITY) mask.mask_key(half);
        }
        mask.hide(clear, 0);
      }
      if (info.mask_words == nullptr || !p.limits_in_mask) {
        const int first_query = read_here(info.first_query);  // also by lanes without a key
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          VisibleQueries visible(state.item.limits, this->position(half), first_query);
          if (kKeyBias && bias[half] == -INFINITY) visible.high = visible.low;
          hide_invisible<kM / 2>(clear, visible, half, lane());
        }
      }
      if constexpr (kSoftcap && !kSlopeTaken) {
#pragma unroll
        for (int e = 0; e < kM / 2; ++e)
          if (scores[e] == 0.0f) clear_packed(slopes, e);
      }
    }
    if constexpr (G::kSlopesReplaceBiases) {
      const std::uint32_t tile = shared_ + G::kTileBias + this->pair_tile_row();
#pragma unroll
      for (int k = 0; k < kM / 16; ++k) ptx::stmatrix_x4_trans(tile + k * 16 * Base::PairTile::kRowBytes, slopes[k]);
    }
    if constexpr (!kSlopeTaken) {
#pragma unroll
      for (int j = 0; j < kM / 8; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          probabilities[j / 2][j % 2 * 2 + half] = pack<kType>(scores[j * 4 + half * 2], scores[j * 4 + half * 2 + 1]);
    }
    wait(state.probability_empty, (i & 1) ^ 1, buffer_came);
    const DOutRing d_out(i);
    const bool d_out_came = has_come(state.d_out_full[d_out.stage], d_out.parity);
    const std::uint32_t address = this->probability_address();
#pragma unroll
    for (int k = 0; k < kM / 16; ++k) {
      std::uint32_t words[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const float* pair = scores + k * 8 + w * 2;
        words[w] = owners::ProbabilityWords<kConfig>::pack(pair[0], pair[1]);
      }
      ptx::st_shared_v4(address + k * 512, {words[0], words[1], words[2], words[3]});
      if constexpr (Base::kHandOverSlopes)
        ptx::st_shared_v4(address + (k + kM / 16) * 512, {slopes[k][0], slopes[k][1], slopes[k][2], slopes[k][3]});
    }
    if (lane() == 0) state.probability_partial[warp()] = partial;
    ptx::mbarrier_arrive(ptx::shared_address(&state.probability_full));
    return d_out_came;
  }

  /// S and the step's tile of biases to P, and with a softcap to its slopes. Returns whether one of the warp's biases
  /// masks its pair.
  template <class Slopes>
  __device__ __forceinline__ bool take_tile_bias(int i, Scores& scores, std::uint32_t lse, Slopes& slopes) const {
    wait(state.bias_full, i & 1);
    BiasFragments<kType> bias{shared_ + G::kTileBias + this->pair_tile_row(), Base::PairTile::kRowBytes};
    if constexpr (kSoftcap)
      exponentiate<kConfig>(p, scores, lse, Absent{}, bias, slopes);
    else
      exponentiate<kConfig>(p, scores, lse, Absent{}, bias, Absent{});
    // The vote takes all lanes' biases: behind it the warp has read what the slopes will take the place of.
    const bool masked = __any_sync(0xffffffffu, bias.masks());
    if (masked) bias.hide(scores);
    __syncwarp();
    if constexpr (!G::kSlopesReplaceBiases) arrive(state.bias_empty);
    return masked;
  }

  /// The biases of the warp's keys with the head at work into shared memory, which no other warp reads. Each by two
  /// lanes: behind a branch of some lanes ptxas would keep nothing uniform ("What ptxas does").
  __device__ __forceinline__ void read_key_bias() const {
    __syncwarp();  // the last head's have been read
    const int half = lane() % 2;
    ptx::st_shared_f32(key_bias_address(half), key_bias_of<kType>(p, state.item, head_, this->position(half)) * kLog2E);
    __syncwarp();
  }
  /// In units of log2.
  __device__ __forceinline__ std::uint32_t key_bias_address(int half) const {
    return shared_ + G::kKeyBias + (warp() * 16 + lane() / 4 + half * 8) * 4;
  }

  int head_ = -1;  ///< key-vector bias: of the step at work
};

}  // namespace flashdma_bwd::hopper::pair
