// The consumer warpgroups of a CTA of two: 64 keys of the item's tile, against all query tiles that see any of the
// item's keys.
//
// A step i computes, with the CTA's keys as the rows of the transposed products:
//
//     S^T = K Q^T;  P = exp(scale S + bias - LSE);  dV += P^T dO     the value owner, P is its operand in registers
//     dP^T = V dO^T;  dS = P (dP - D);              dK += dS^T Q     the key owner, dS likewise
//     dQ = dS K, over the keys of both CTAs         a quarter of the head dim each, one step late
//
// The value owner runs ahead and hands P to the key owner, lane by lane: their fragments are the same. dS goes to a
// ring in shared memory and from there to the other CTA. Each warpgroup holds one gradient of all the head dim, which
// leaves registers to spare; that each reads its own half of the operands of S and dP once is why S and dP are not
// shared out by queries.
#pragma once

#include "hopper/key_gradient.cuh"
#include "hopper/pair/geometry.cuh"
#include "hopper/ptx.cuh"
#include "hopper/score_tile.cuh"
#include "hopper/wgmma.cuh"

namespace flashdma_bwd::hopper::pair {

/// What both roles do.
template <KernelConfig kConfig, Role kRole>
class Consumer {
 protected:
  using G = Geometry<kConfig>;
  using State = typename G::State;
  using QueryTile = typename G::QueryTile;
  using KeyTile = typename G::KeyTile;
  using OtherKeyTile = typename G::OtherKeyTile;
  using ValueTile = typename G::ValueTile;
  using PairTile = typename G::PairTile;
  static constexpr DataType kType = kConfig.data_type;
  static constexpr bool kBf16 = kType == DataType::bf16;
  static constexpr bool kKeyBias = kConfig.bias == BiasKind::key_vector;
  static constexpr bool kSoftcap = kConfig.softcap;
  static constexpr int kM = G::kM;
  static constexpr int kD = G::kD;
  static_assert(kConfig.bias != BiasKind::tile);

  using Scores = float[kM / 2];
  using Gradient = float[kD / 2];
  using DQuery = float[G::kDQueryColumns / 2];
  using Operand = std::uint32_t[kM / 16][4];
  using QueryRing = RingPosition<G::kQueryStages>;
  using DOutRing = RingPosition<G::kDOutStages>;
  using DScoreRing = RingPosition<G::kDScoreStages>;
  using OtherDScoreRing = RingPosition<G::kOtherDScoreStages>;

  __device__ __forceinline__ Consumer(const BackwardParameters& parameters, std::uint32_t shared, State& shared_state)
      : p(parameters), shared_(shared), state(shared_state) {}

  static __device__ __forceinline__ int lane() { return ptx::fresh_thread_index() % 32; }
  static __device__ __forceinline__ int warp() { return ptx::fresh_thread_index() / 32 % 4; }

  /// The CTA's number, read anew for the same reason as the thread's.
  static __device__ __forceinline__ int rank() { return ptx::cluster_ctarank(); }

  /// Row of the item's tile of a lane's first key; the second is 8 further.
  __device__ __forceinline__ int key_row() const { return rank() * G::kKeys + warp() * 16 + lane() / 4; }
  /// Of the lane's two keys.
  __device__ __forceinline__ int position(int half) const { return position_of_row(state.item, key_row() + half * 8); }

  // --- Barriers ---

  static __device__ __forceinline__ void wait(std::uint64_t& barrier, std::uint32_t parity) {
    ptx::mbarrier_wait_parity(ptx::shared_address(&barrier), parity);
  }
  /// Arrives for the warp, whose lanes have all come this far.
  static __device__ __forceinline__ void arrive(std::uint64_t& barrier) {
    if (lane() == 0) ptx::mbarrier_arrive(ptx::shared_address(&barrier));
  }
  /// The same in both CTAs.
  static __device__ __forceinline__ void arrive_in_both(std::uint64_t& barrier) {
    if (const int l = lane(); l < kCtas) ptx::mbarrier_arrive_cluster(ptx::mapa(ptx::shared_address(&barrier), l));
  }

  // --- Products ---

  __device__ __forceinline__ std::uint32_t query_tile(int i) const {
    return ptx::opaque(QueryTile::descriptor(shared_ + G::kQuery) + QueryRing(i).stage * (QueryTile::kBytes >> 4));
  }
  __device__ __forceinline__ std::uint32_t d_out_tile(int i) const {
    return ptx::opaque(QueryTile::descriptor(shared_ + G::kDOut) + DOutRing(i).stage * (QueryTile::kBytes >> 4));
  }

  /// Issues `scores` = the tile `keys`, K or V, times the tile `queries`, transposed.
  template <class Tile>
  static __device__ __forceinline__ void multiply_transposed(Scores& scores, std::uint32_t keys,
                                                             std::uint32_t queries) {
    using Product = ptx::Wgmma<kM, kBf16>;
#pragma unroll
    for (int k = 0; k < kD / 16; ++k) {
      const std::uint64_t a = Tile::descriptor_of(keys + Tile::column_step(k));
      const std::uint64_t b = QueryTile::descriptor_of(queries + QueryTile::column_step(k));
      if (k == 0)
        Product::template ss<false, false, false>(scores, a, b);
      else
        Product::template ss<false, false, true>(scores, a, b);
    }
    ptx::wgmma_commit_group();
  }

  /// Issues `gradient` += `pairs` times the tile `queries`, Q or dO.
  static __device__ __forceinline__ void accumulate(Gradient& gradient, const Operand& pairs, std::uint32_t queries) {
    using Product = ptx::Wgmma<kD, kBf16>;
#pragma unroll
    for (int k = 0; k < kM / 16; ++k)
      Product::template rs<true>(gradient, pairs[k], QueryTile::descriptor_of(queries + QueryTile::row_step(k)));
    ptx::wgmma_commit_group();
  }

  // --- dQ ---

  /// Until both CTAs' dS of step i is there.
  __device__ __forceinline__ void wait_for_d_scores(int i) const {
    const DScoreRing ring(i);
    wait(state.d_score_full[ring.stage], ring.parity);
    const OtherDScoreRing other(i);
    wait(state.other_d_score_full[other.stage], other.parity);
    // The next one to this buffer may come.
    if (kRole == Role::key && warp() == 0 && lane() == 0)
      ptx::mbarrier_arrive_expect_tx(ptx::shared_address(&state.other_d_score_full[other.stage]), PairTile::kBytes);
  }

  /// Issues the warpgroup's share of dQ of step i.
  __device__ __forceinline__ void start_d_query(int i, DQuery& d_q) const {
    constexpr int kShare = static_cast<int>(kRole);
    constexpr int kSteps = G::kKeys / 16;
    constexpr int kSharePanels = G::kDQueryColumns / KeyTile::kPanelColumns;
    constexpr int kHalfPanels = G::kDQueryHalf / KeyTile::kPanelColumns;
    const std::uint32_t d_scores =
        ptx::opaque(PairTile::descriptor(shared_ + G::kDScore) + DScoreRing(i).stage * (PairTile::kBytes >> 4));
    const std::uint32_t other_d_scores = ptx::opaque(PairTile::descriptor(shared_ + G::kOtherDScore) +
                                                     OtherDScoreRing(i).stage * (PairTile::kBytes >> 4));
    const std::uint32_t keys =
        ptx::opaque(KeyTile::descriptor(shared_ + G::kKey + kShare * kSharePanels * KeyTile::kPanelBytes) +
                    rank() * (kHalfPanels * KeyTile::kPanelBytes >> 4));
    const std::uint32_t other_keys = ptx::opaque(
        OtherKeyTile::descriptor(shared_ + G::kOtherKey + kShare * kSharePanels * OtherKeyTile::kPanelBytes));
    using Product = ptx::Wgmma<G::kDQueryColumns, kBf16>;
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const std::uint64_t a = PairTile::descriptor_of(d_scores + PairTile::column_step(k));
      const std::uint64_t b = KeyTile::descriptor_of(keys + KeyTile::row_step(k));
      if (k == 0)
        Product::template ss<false, true, false>(d_q, a, b);
      else
        Product::template ss<false, true, true>(d_q, a, b);
    }
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
      Product::template ss<false, true, true>(d_q, PairTile::descriptor_of(other_d_scores + PairTile::column_step(k)),
                                              OtherKeyTile::descriptor_of(other_keys + OtherKeyTile::row_step(k)));
    ptx::wgmma_commit_group();
  }

  /// Lets go of the dS of step i, and adds the warpgroup's share of dQ to the scratch or has the reducer do so.
  __device__ __forceinline__ void hand_over_d_query(int i, const DQuery& d_q) const {
    arrive(state.d_score_empty[DScoreRing(i).stage]);
    if (lane() == 0)
      ptx::mbarrier_arrive_cluster(
          ptx::mapa(ptx::shared_address(&state.other_d_score_taken[OtherDScoreRing(i).stage]), rank() ^ 1));
    // In deterministic mode the reducer keeps the order, so that both parts go there.
    if (p.d_q_turns != nullptr) {
      give_to_reducer(0, 2 * i, d_q);
      give_to_reducer(1, 2 * i + 1, d_q);
      return;
    }
    give_to_reducer(0, i, d_q);
    const StepInfo& info = state.steps[i % kStepSlots];
    const std::int64_t row = scratch_row_of(state.item, p, info.head) + info.first_query + warp() * 16;
    const int column = rank() * G::kDQueryHalf + static_cast<int>(kRole) * G::kDQueryColumns + G::kDQueryPart;
    float* destination = p.d_q_scratch + row * kD + column / 8 * kAtomFloats + lane() * 4;
#pragma unroll
    for (int c = 0; c < G::kDQueryPart / 8; ++c) {
      const float* values = d_q + (G::kDQueryPart / 8 + c) * 4;
      ptx::red_add_v4(destination + c * kAtomFloats, {values[0], values[1], values[2], values[3]});
    }
  }
  /// `use` counts the uses of the warpgroup's buffer.
  __device__ __forceinline__ void give_to_reducer(int part, int use, const DQuery& d_q) const {
    constexpr int kShare = static_cast<int>(kRole);
    wait(state.d_query_empty[kShare], (use & 1) ^ 1);
    const std::uint32_t address =
        shared_ + G::kDQuery + (kShare * 4 + warp()) * (G::kDQueryPartBytes / 4) + lane() * 16;
#pragma unroll
    for (int c = 0; c < G::kDQueryPart / 8; ++c) {
      const float* values = d_q + (part * (G::kDQueryPart / 8) + c) * 4;
      ptx::st_shared_v4(address + c * kAtomFloats * 4, values[0], values[1], values[2], values[3]);
    }
    ptx::fence_proxy_async();
    __syncwarp();
    arrive(state.d_query_full[kShare]);
  }

  /// The last step's share of dQ, for which there is no next step.
  __device__ __forceinline__ void finish_d_query(int last) const {
    DQuery d_q;
    wait_for_d_scores(last);
    ptx::wgmma_fence();
    start_d_query(last, d_q);
    ptx::wgmma_wait_group<0>();
    hand_over_d_query(last, d_q);
  }

  // --- dK and dV ---

  /// By way of the tile `staging`, which all products have read.
  template <class Tile>
  __device__ __forceinline__ void write_gradient(const TensorView& tensor, float* partial, const Gradient& values,
                                                 std::uint32_t staging) const {
    const int row = warp() * 16;
    if (partial != nullptr)
      write_partial_key_gradient(p, state.item, partial, values, rank() * G::kKeys + row);
    else
      write_key_gradient_rows<Tile, kType>(p, state.item, tensor, values, staging, row, rank() * G::kKeys + row);
  }

  // --- P, from lane to lane ---

  /// Of the lane's first 16 bytes; the next are 512 further.
  __device__ __forceinline__ std::uint32_t probability_address() const {
    return shared_ + G::kProbability + warp() * (kM * 16 * G::kProbabilityBytes) + lane() * 16;
  }
  /// What P, which is at most 1, is multiplied by on its way, so that small ones keep fp16's precision.
  static constexpr float kProbabilityScale = 16384.0f;
  /// P and, with a softcap, its slope. A key bias needs dS with and without the slope, else one product of them does.
  static constexpr bool kHandOverSlopes = G::kProbabilityBytes == 4;

  const BackwardParameters& p;
  std::uint32_t shared_;
  State& state;
};

/// S, P and dV.
template <KernelConfig kConfig>
class ValueOwner : Consumer<kConfig, Role::value> {
  using Base = Consumer<kConfig, Role::value>;
  using Base::kD;
  using Base::kKeyBias;
  using Base::kM;
  using Base::kSoftcap;
  using Base::kType;
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
  __device__ __forceinline__ ValueOwner(const BackwardParameters& parameters, std::uint32_t shared, State& shared_state)
      : Base(parameters, shared, shared_state) {}

  __device__ __forceinline__ void run() {
    Gradient d_v;
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) d_v[i] = 0.0f;
    if (state.step_count > 0) {
      this->wait(state.key_full, 0);
      Scores scores;
      start_scores(0, scores);
      ptx::wgmma_wait_group<0>();
      this->wait(state.value_full, 0);  // the other CTA's keys
      for (int i = 0;;) {
        Operand probabilities;
        finish_scores(i, scores, probabilities);
        this->arrive_in_both(state.query_empty[QueryRing(i).stage]);
        const DOutRing d_out(i);
        this->wait(state.d_out_full[d_out.stage], d_out.parity);
        ptx::wgmma_fence();
        this->accumulate(d_v, probabilities, this->d_out_tile(i));
        if (i > 0) this->wait_for_d_scores(i - 1);
        DQuery d_q;
        ptx::wgmma_fence();
        this->start_d_query(i - 1, d_q);  // before the first step of whatever is there; it is not used
        ptx::wgmma_wait_group<1>();
        this->arrive_in_both(state.d_out_empty[d_out.stage]);
        ptx::wgmma_wait_group<0>();
        if (i > 0) this->hand_over_d_query(i - 1, d_q);
        if (++i == state.step_count) break;
        start_scores(i, scores);
        ptx::wgmma_wait_group<0>();
      }
      this->finish_d_query(state.step_count - 1);
    }
    // V has been read by the key owner's products, which were finished before the last dS that dQ was computed of.
    this->template write_gradient<typename G::ValueTile>(p.d_v, p.d_v_partial, d_v, shared_ + G::kValue);
  }

 private:
  /// Issues S^T of step i.
  __device__ __forceinline__ void start_scores(int i, Scores& scores) const {
    const QueryRing query(i);
    this->wait(state.query_full[query.stage], query.parity);
    ptx::wgmma_fence();
    this->template multiply_transposed<KeyTile>(scores, ptx::opaque(KeyTile::descriptor(shared_ + G::kKey)),
                                                this->query_tile(i));
  }

  /// S to P, for the key owner and as dV's operand.
  __device__ __forceinline__ void finish_scores(int i, Scores& scores, Operand& probabilities) {
    const StepInfo& info = state.steps[i % kStepSlots];
    if constexpr (kKeyBias)
      if (info.head != head_) {
        head_ = info.head;
        if (this->lane() % 4 == 0) {
#pragma unroll
          for (int half = 0; half < 2; ++half)
            ptx::st_shared_f32(key_bias_address(half),
                               key_bias_of<kType>(p, state.item, head_, this->position(half)) * kLog2E);
        }
        __syncwarp();
      }
    float bias[2] = {0.0f, 0.0f};
    if constexpr (kKeyBias) {
#pragma unroll
      for (int half = 0; half < 2; ++half) bias[half] = ptx::ld_shared_f32(key_bias_address(half));
    }
    const std::uint32_t lse = shared_ + G::kLse + QueryRing(i).stage * (kM * 4) + this->lane() % 4 * 8;
    std::uint32_t slopes[kSoftcap ? kM / 8 : 1][2];
    exponentiate<kConfig>(p, scores, lse, bias, slopes, slopes);
    const bool partial =
        info.partial || (kKeyBias && __any_sync(0xffffffffu, bias[0] == -INFINITY || bias[1] == -INFINITY));
    if (partial) {
      MaskColumns<kM> mask;
      if (info.mask_words != nullptr) mask.read(info.mask_words, this->warp(), this->lane());
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        VisibleQueries visible(state.item.limits, this->position(half), info.first_query);
        if (kKeyBias && bias[half] == -INFINITY) visible.high = visible.low;
        hide_pairs(scores, mask, info.mask_words != nullptr, visible, half, this->lane());
      }
      if constexpr (kSoftcap) {
#pragma unroll
        for (int e = 0; e < kM / 2; ++e)
          if (scores[e] == 0.0f) slopes[e / 4][e / 2 % 2] &= e % 2 == 0 ? 0xffff0000u : 0x0000ffffu;
      }
    }
#pragma unroll
    for (int j = 0; j < kM / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        probabilities[j / 2][j % 2 * 2 + half] = pack<kType>(scores[j * 4 + half * 2], scores[j * 4 + half * 2 + 1]);
    this->wait(state.probability_empty, (i & 1) ^ 1);
    const std::uint32_t address = this->probability_address();
#pragma unroll
    for (int k = 0; k < kM / 16; ++k) {
      std::uint32_t words[4], slope_words[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const float* pair = scores + k * 8 + w * 2;
        float2 factor = {Base::kProbabilityScale, Base::kProbabilityScale};
        if constexpr (kSoftcap) {
          slope_words[w] = slopes[k * 2 + w / 2][w % 2];
          if constexpr (!Base::kHandOverSlopes) {
            const float2 slope = unpack<kType>(slope_words[w]);
            factor = {slope.x * Base::kProbabilityScale, slope.y * Base::kProbabilityScale};
          }
        }
        words[w] = pack<DataType::fp16>(pair[0] * factor.x, pair[1] * factor.y);
      }
      ptx::st_shared_v4(address + k * 512, {words[0], words[1], words[2], words[3]});
      if constexpr (Base::kHandOverSlopes)
        ptx::st_shared_v4(address + (k + kM / 16) * 512,
                          {slope_words[0], slope_words[1], slope_words[2], slope_words[3]});
    }
    if (this->lane() == 0) state.probability_partial[this->warp()] = partial;
    __syncwarp();
    this->arrive(state.probability_full);
  }

  /// In units of log2.
  __device__ __forceinline__ std::uint32_t key_bias_address(int half) const {
    return shared_ + G::kKeyBias + (this->warp() * 16 + this->lane() / 4 + half * 8) * 4;
  }

  int head_ = -1;  ///< key-vector bias: of the step at work
};

/// dP, dS and dK.
template <KernelConfig kConfig>
class KeyOwner : Consumer<kConfig, Role::key> {
  using Base = Consumer<kConfig, Role::key>;
  using Base::kD;
  using Base::kKeyBias;
  using Base::kM;
  using Base::kSoftcap;
  using Base::kType;
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

 public:
  __device__ __forceinline__ KeyOwner(const BackwardParameters& parameters, std::uint32_t shared, State& shared_state)
      : Base(parameters, shared, shared_state) {}

  __device__ __forceinline__ void run() {
    Gradient d_k;
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) d_k[i] = 0.0f;
    if (state.step_count > 0) {
      this->wait(state.value_full, 0);
      this->wait(state.key_full, 0);
      Scores d_score;
      start_d_probability(0, d_score);
      ptx::wgmma_wait_group<0>();
      for (int i = 0;;) {
        Operand d_scores;
        differentiate(i, d_score, d_scores);
        // D has been read, too.
        this->arrive_in_both(state.d_out_empty[DOutRing(i).stage]);
        store_d_scores(i, d_scores);
        const QueryRing query(i);
        this->wait(state.query_full[query.stage], query.parity);
        ptx::wgmma_fence();
        this->accumulate(d_k, d_scores, this->query_tile(i));
        if (i > 0) this->wait_for_d_scores(i - 1);
        DQuery d_q;
        ptx::wgmma_fence();
        this->start_d_query(i - 1, d_q);  // before the first step of whatever is there; it is not used
        ptx::wgmma_wait_group<1>();
        this->arrive_in_both(state.query_empty[query.stage]);
        ptx::wgmma_wait_group<0>();
        if (i > 0) this->hand_over_d_query(i - 1, d_q);
        if (++i == state.step_count) break;
        start_d_probability(i, d_score);
        ptx::wgmma_wait_group<0>();
      }
      this->finish_d_query(state.step_count - 1);
      if constexpr (kKeyBias) write_bias_sums();
    }
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) d_k[i] *= p.scale;
    // Q has been read by S, whose P has all come, and by this warpgroup's products, which each warp has waited for.
    ptx::barrier_sync(kKeyOwnerBarrier, kWarpgroupThreads);
    this->template write_gradient<QueryTile>(p.d_k, p.d_k_partial, d_k, shared_ + G::kQuery);
  }

 private:
  /// Issues dP^T of step i.
  __device__ __forceinline__ void start_d_probability(int i, Scores& d_probability) const {
    const DOutRing d_out(i);
    this->wait(state.d_out_full[d_out.stage], d_out.parity);
    ptx::wgmma_fence();
    this->template multiply_transposed<ValueTile>(
        d_probability, ptx::opaque(ValueTile::descriptor(shared_ + G::kValue)), this->d_out_tile(i));
  }

  /// dP to dS.
  __device__ __forceinline__ void differentiate(int i, Scores& d_score, Operand& d_scores) {
    this->wait(state.probability_full, i & 1);
    // The value owner has seen that Q, with which the step's description comes, is there.
    const StepInfo& info = state.steps[i % kStepSlots];
    if constexpr (kKeyBias)
      if (info.head != head_) {
        write_bias_sums();
        head_ = info.head;
      }
    const std::uint32_t row_dot = shared_ + G::kRowDot + DOutRing(i).stage * (kM * 4) + this->lane() % 4 * 8;
    const std::uint32_t address = this->probability_address();
    float sums[2] = {0.0f, 0.0f};
    const bool partial = state.probability_partial[this->warp()];
#pragma unroll
    for (int k = 0; k < kM / 16; ++k) {
      const uint4 words = ptx::ld_shared_v4(address + k * 512);
      const float2 probabilities[4] = {unpack<DataType::fp16>(words.x), unpack<DataType::fp16>(words.y),
                                       unpack<DataType::fp16>(words.z), unpack<DataType::fp16>(words.w)};
      float2 slopes[4];
      if constexpr (Base::kHandOverSlopes) {
        const uint4 both = ptx::ld_shared_v4(address + (k + kM / 16) * 512);
        slopes[0] = unpack<kType>(both.x);
        slopes[1] = unpack<kType>(both.y);
        slopes[2] = unpack<kType>(both.z);
        slopes[3] = unpack<kType>(both.w);
      }
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
        constexpr float kInverse = 1.0f / Base::kProbabilityScale;
        const float2 column = ptx::ld_shared_v2(row_dot + (k * 2 + w / 2) * 32);
        float x = probabilities[w].x * fmaf(d_score[k * 8 + w * 2], kInverse, -column.x * kInverse);
        float y = probabilities[w].y * fmaf(d_score[k * 8 + w * 2 + 1], kInverse, -column.y * kInverse);
        if constexpr (kKeyBias) sums[w % 2] += x + y;
        if constexpr (Base::kHandOverSlopes) {
          x *= slopes[w].x;
          y *= slopes[w].y;
        }
        d_scores[k][w] = pack<kType>(x, y);
      }
    }
    if constexpr (kKeyBias) {
      float2& total = bias_sums();
      total = {total.x + sums[0], total.y + sums[1]};
    }
    __syncwarp();
    this->arrive(state.probability_empty);
  }

  /// dS into the ring, as rows of queries, for both warpgroups and the sender.
  __device__ __forceinline__ void store_d_scores(int i, const Operand& d_scores) const {
    const DScoreRing ring(i);
    this->wait(state.d_score_empty[ring.stage], ring.parity ^ 1);
    const int l = this->lane();
    const int row = l % 8 + l / 16 * 8;
    const std::uint32_t address = shared_ + G::kDScore + ring.stage * PairTile::kBytes + row * PairTile::kRowBytes +
                                  ((this->warp() * 2 + l / 8 % 2) ^ PairTile::row_swizzle(row)) * 16;
#pragma unroll
    for (int k = 0; k < kM / 16; ++k) ptx::stmatrix_x4_trans(address + k * 16 * PairTile::kRowBytes, d_scores[k]);
    ptx::fence_proxy_async();
    __syncwarp();
    this->arrive(state.d_score_full[ring.stage]);
  }

  // --- The bias's gradient ---

  /// The thread's sums of dS over the queries, of its two keys. In shared memory, for there are no registers for them.
  __device__ __forceinline__ float2& bias_sums() const {
    return reinterpret_cast<float2*>(reinterpret_cast<unsigned char*>(&state) -
                                     (G::kState - G::kBiasSums))[ptx::fresh_thread_index() % kWarpgroupThreads];
  }

  static constexpr int kKeyOwnerBarrier = 1;  ///< named barriers: 0 is the CTA's

  /// Writes the sums of the head at work, and starts anew.
  __device__ __forceinline__ void write_bias_sums() {
    const float2 mine = bias_sums();
    bias_sums() = {0.0f, 0.0f};
    if (head_ < 0) return;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      write_bias_sum(p, state.item, head_, this->position(half), half == 0 ? mine.x : mine.y, this->lane());
  }

  int head_ = -1;  ///< key-vector bias: of the step at work
};

}  // namespace flashdma_bwd::hopper::pair
