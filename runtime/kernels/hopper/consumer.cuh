// A consumer warpgroup: 64 keys of the item's tile, against all query tiles that see any of the item's keys.
//
// A step i computes, with the warpgroup's keys as the rows of its products:
//
//     S^T = K Q^T,  dP^T = V dO^T                       accumulators
//     P = exp(scale S + bias - LSE),  dS = P (dP - D)   accumulators; dS also goes to a ring in shared memory, from
//                                                       where it is stored as a tile bias's gradient, too
//     dV += P^T dO,  dK += dS^T Q                       P^T and dS^T are operands as they stand in the registers
//     dQ = dS K                                         a share of the dQ of all the item's keys, one step late
//
// dQ needs the other warpgroups' dS. It is computed one step late from the ring, so that nobody waits for anybody at a
// barrier: the warpgroups drift apart, and the arithmetic of one runs under the products of the other. The order of a
// step's parts, and that the score product of the next step is issued under dV and dK of this one, were chosen by
// measurement, see NOTES.md. The transposed products and their register operands follow FlashAttention-3 (Shah et al.,
// 2024).
#pragma once

#include "hopper/consumer_warp.cuh"
#include "hopper/geometry.cuh"
#include "hopper/key_gradient.cuh"
#include "hopper/ptx.cuh"
#include "hopper/score_tile.cuh"
#include "hopper/transposed_product.cuh"
#include "hopper/wgmma.cuh"

namespace flashdma_bwd::hopper {

template <KernelConfig kConfig>
class Consumer {
  using G = Geometry<kConfig>;
  using State = typename G::State;
  using QueryTile = typename G::QueryTile;
  using KeyTile = typename G::KeyTile;
  using ValueTile = typename G::ValueTile;
  using PairTile = typename G::PairTile;
  static constexpr DataType kType = kConfig.data_type;
  static constexpr bool kBf16 = kType == DataType::bf16;
  static constexpr bool kKeyBias = kConfig.bias == BiasKind::key_vector;
  static constexpr bool kTileBias = kConfig.bias == BiasKind::tile;
  static constexpr bool kSoftcap = kConfig.softcap;
  static constexpr int kM = G::kM;
  static constexpr int kD = G::kD;

  using Scores = float[kM / 2];
  using KeyGradient = float[kD / 2];
  using DQuery = float[G::kDQueryColumns / 2];
  using Operand = std::uint32_t[kM / 16][4];
  /// Whether the mask's bits are asked for before the products that hide their latency. With 128 queries there are no
  /// registers for that.
  static constexpr bool kReadMaskEarly = kM == 64;
  /// Whether they are asked for 32 queries at a time: with 128 queries and a tile bias there are none for all at once.
  static constexpr bool kReadMaskInParts = kM == 128 && kTileBias;
  /// Whether P is made an operand under dP's products. With 128 queries there are no registers for both; with 128
  /// columns it is as fast either way, but for a softcap (NOTES.md).
  static constexpr bool kPackEarly = kM == 64 && (kD <= 96 || kSoftcap);
  using DScoreRing = RingPosition<G::kDScoreStages>;
  /// Whether the warpgroup's rows of V stay in registers, as dP's operand, instead of being read from shared memory in
  /// every step.
  static constexpr bool kValueInRegisters = kD <= 32 || (kM == 64 && (kD <= 64 || (kD <= 96 && !kSoftcap)));
  using ValueOperand = std::uint32_t[kValueInRegisters ? kD / 16 : 1][4];
  using BiasRing = RingPosition<kTileBias ? G::kBiasStages : 1>;
  static_assert(!kTileBias || !kSoftcap);  // dS is what goes into the ring, and from there into dBias

 public:
  __device__ __forceinline__ Consumer(const BackwardParameters& parameters, std::uint32_t shared, State& shared_state,
                                      int consumer)
      : p(parameters), shared_(shared), state(shared_state), consumer_(consumer) {}

  __device__ __forceinline__ void run() {
    const int steps = state.step_count;
    if constexpr (kKeyBias) bias_sums() = {0.0f, 0.0f};

    KeyGradient d_k, d_v;
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) d_k[i] = d_v[i] = 0.0f;
    if (steps > 0) {
      wait(state.key_full, 0);
      Scores probability, d_score;
      Operand probabilities;
      start_scores(0, probability, false);
      wait(state.value_full, 0);
      ValueOperand values;
      if constexpr (kValueInRegisters) load_values(values);
      finish_scores(0, values, probability, d_score, probabilities);
      for (int i = 0;;) {
        const bool queries_came = take_step(i, probability, d_score, probabilities, d_k, d_v);
        if (++i == steps) break;
        start_scores(i, probability, queries_came);
        // The products of dV and dK of the step before.
        ptx::wgmma_wait_group<1>();
        arrive(state.query_empty[RingPosition<G::kQueryStages>(i - 1).stage]);
        if constexpr (!G::kLoadedTogether) arrive(state.d_out_empty[RingPosition<G::kDOutStages>(i - 1).stage]);
        finish_scores(i, values, probability, d_score, probabilities);
      }
      DQuery d_q;
      wait_for_d_scores(steps - 1);
      ptx::wgmma_fence();
      start_d_query(steps - 1, d_q);
      ptx::wgmma_wait_group<0>();
      hand_over_d_query(steps - 1, d_q, false, RingPosition<G::kQueryStages>(steps));
      if constexpr (kKeyBias) write_bias_sums();
    }
    write_gradients(d_k, d_v);
  }

 private:
  // --- The keys ---

  /// Row of the item's tile of a lane's first key; the second is 8 further.
  __device__ __forceinline__ int key_row() const {
    return consumer_ * 64 + warp() * 16 + lane() / 4;
  }

  /// Of the lane's two keys.
  __device__ __forceinline__ int position(int half) const {
    return position_of_row(state.item, key_row() + half * 8);
  }

  // --- A step ---

  __device__ __forceinline__ std::uint32_t query_tile(int i) const {
    return QueryTile::descriptor(shared_ + G::kQuery) +
           RingPosition<G::kQueryStages>(i).stage * (QueryTile::kBytes >> 4);
  }
  __device__ __forceinline__ std::uint32_t d_out_tile(int i) const {
    return QueryTile::descriptor(shared_ + G::kDOut) + RingPosition<G::kDOutStages>(i).stage * (QueryTile::kBytes >> 4);
  }
  /// The warpgroup's rows of K or V.
  template <class Tile>
  __device__ __forceinline__ std::uint32_t own_rows(int offset) const {
    return ptx::opaque(Tile::descriptor(shared_ + offset) + consumer_ * (64 * Tile::kRowBytes >> 4));
  }

  /// The warpgroup's rows of V, as wgmma's A operand.
  __device__ __forceinline__ void load_values(ValueOperand& values) const {
    const int row = consumer_ * 64 + warp() * 16 + lane() % 16;
#pragma unroll
    for (int k = 0; k < kD / 16; ++k)
      ptx::ldmatrix_x4(values[k], shared_ + G::kValue + ValueTile::chunk_offset(row, k * 2 + lane() / 16));
  }

  /// Issues S^T of step i.
  __device__ __forceinline__ void start_scores(int i, Scores& scores, bool queries_came) const {
    const RingPosition<G::kQueryStages> query(i);
    wait(state.query_full[query.stage], query.parity, queries_came);
    ptx::wgmma_fence();
    start_transposed_product<KeyTile, QueryTile, kBf16>(scores, own_rows<KeyTile>(G::kKey), query_tile(i));
  }

  /// Issues dP^T and computes P under it. On return both are there.
  __device__ __forceinline__ void finish_scores(int i, const ValueOperand& values, Scores& scores,
                                                Scores& d_probability, Operand& probabilities) {
    const RingPosition<G::kDOutStages> d_out(i);
    if constexpr (!G::kLoadedTogether) wait(state.d_out_full[d_out.stage], d_out.parity);
    ptx::wgmma_fence();
    if constexpr (kValueInRegisters)
      start_transposed_product<QueryTile, kBf16>(d_probability, values, d_out_tile(i));
    else
      start_transposed_product<ValueTile, QueryTile, kBf16>(d_probability, own_rows<ValueTile>(G::kValue),
                                                            d_out_tile(i));

    // What the arithmetic needs from global memory is asked for while the products run.
    const StepInfo& info = state.steps[i % kStepSlots];
    if constexpr (kKeyBias)
      if (info.head != head_) {
        write_bias_sums();
        head_ = info.head;
        read_key_bias();
      }
    MaskColumns<kM> mask;
    if (kReadMaskEarly && info.mask_words != nullptr) read_mask(mask, info);

    ptx::wgmma_wait_group<1>();
    partial_ = finish_probabilities(i, scores) || info.partial;
    if (partial_) hide(scores, mask, info);
    if constexpr (kPackEarly) pack_probabilities(scores, probabilities);
    // Before the wait, for a read of the thread's index takes time.
    if constexpr (kM == 64) row_dot_ = row_dot_address(i);
    ptx::wgmma_wait_group<0>();
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

  /// dS, and the products that take it. On return dV's and dK's are in flight. Returns whether the next step's queries
  /// have come.
  __device__ __forceinline__ bool take_step(int i, Scores& probability, Scores& d_score, Operand& probabilities,
                                            KeyGradient& d_k, KeyGradient& d_v) {
    if constexpr (!kPackEarly) pack_probabilities(probability, probabilities);
    Operand d_scores;
    differentiate(i, probability, d_score, d_scores);
    const bool d_scores_came = store_d_scores(i, d_scores);

    if (i > 0) wait_for_d_scores(i - 1, d_scores_came);
    ptx::wgmma_fence();
    DQuery d_q;
    start_d_query(i - 1, d_q);  // before the first step of whatever is there; it is not used
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
    const bool buffer_came = has_come(state.d_query_empty[consumer_], i & 1);
    ptx::wgmma_wait_group<1>();
    const RingPosition<G::kQueryStages> next(i + 1);
    bool queries_came = false;
    if (i > 0) {
      if constexpr (!G::kDScoresOutlastReaders) arrive(state.d_score_empty[DScoreRing(i - 1).stage]);
      queries_came = hand_over_d_query(i - 1, d_q, buffer_came, next);
    }
    return queries_came;
  }

  // --- Scores ---

  /// The biases of the lane's keys with the head at work, in units of log2, into shared memory.
  __device__ __forceinline__ void read_key_bias() const {
    if (lane() % 4 == 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float value = key_bias_of<kType>(p, state.item, head_, position(half));
        ptx::st_shared_32(key_bias_address(half), __float_as_uint(value * kLog2E));
      }
    }
    __syncwarp();
  }
  __device__ __forceinline__ std::uint32_t key_bias_address(int half) const {
    return shared_ + G::kKeyBias + (key_row() + half * 8) * 4;
  }

  /// Scores to probabilities. Returns whether a bias masks one of the warp's pairs.
  __device__ __forceinline__ bool finish_probabilities(int i, Scores& s) {
    const std::uint32_t lse = shared_ + G::kLse + RingPosition<G::kQueryStages>(i).stage * (kM * 4) + lane() % 4 * 8;
    float key_bias[2] = {};
    if constexpr (kKeyBias) {
#pragma unroll
      for (int half = 0; half < 2; ++half) key_bias[half] = ptx::ld_shared_f32(key_bias_address(half));
    }
    if constexpr (kTileBias) {
      const BiasRing ring(i);
      wait(state.bias_full[ring.stage][consumer_], ring.parity);
      BiasFragments<kType> bias{rows_of_pairs(shared_ + G::kTileBias + ring.stage * PairTile::kBytes),
                                PairTile::kRowBytes};
      exponentiate<kConfig>(p, s, lse, key_bias, bias, slope_);
      const bool masked = __any_sync(0xffffffffu, bias.masks());
      if (masked) bias.hide(s);
      __syncwarp();
      arrive(state.bias_empty[ring.stage][consumer_]);
      return masked;
    } else {
      exponentiate<kConfig>(p, s, lse, key_bias, 0, slope_);
      return kKeyBias && __any_sync(0xffffffffu, key_bias[0] == -INFINITY || key_bias[1] == -INFINITY);
    }
  }

  /// The mask's bits of the warp's keys, of the queries from 32 `first_word` on.
  template <int kQueries>
  __device__ __forceinline__ void read_mask(MaskColumns<kQueries>& mask, const StepInfo& info,
                                            int first_word = 0) const {
    mask.read(info.mask_words + static_cast<std::int64_t>(p.query_atoms) * (consumer_ * kMaskAtom) + 32 * first_word,
              warp(), lane());
  }

  /// Clears the probabilities of the pairs that are not visible.
  __device__ __forceinline__ void hide(Scores& probability, MaskColumns<kM>& mask, const StepInfo& info) const {
    if constexpr (kReadMaskInParts) {
#pragma unroll
      for (int w = 0; w < kM / 32; ++w) {
        MaskColumns<32> part;
        if (info.mask_words != nullptr) read_mask(part, info, w);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const VisibleQueries visible(state.item.limits, position(half), info.first_query);
          hide_pairs(probability, part, info.mask_words != nullptr, visible, half, lane(), w);
        }
      }
      return;
    }
    if (!kReadMaskEarly && info.mask_words != nullptr) read_mask(mask, info);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      VisibleQueries visible(state.item.limits, position(half), info.first_query);
      if constexpr (kKeyBias)
        if (ptx::ld_shared_f32(key_bias_address(half)) == -INFINITY) visible.high = visible.low;
      hide_pairs(probability, mask, info.mask_words != nullptr, visible, half, lane());
    }
  }

  /// dP to dS.
  __device__ __forceinline__ void differentiate(int i, const Scores& probability, Scores& d_score, Operand& d_scores) {
    // What multiplies a P of 0 is made finite: a masked key may hold values whose products overflow.
    if (partial_) {
#pragma unroll
      for (int e = 0; e < kM / 2; ++e)
        if (probability[e] == 0.0f) {
          d_score[e] = 0.0f;
          if constexpr (kSoftcap) slope_[e / 4][e / 2 % 2] &= e % 2 == 0 ? 0xffff0000u : 0x0000ffffu;
        }
    }
    const std::uint32_t row_dot = kM == 64 ? row_dot_ : row_dot_address(i);
    float sums[2] = {0.0f, 0.0f};
#pragma unroll
    for (int j = 0; j < kM / 8; ++j) {
      const float2 column = ptx::ld_shared_v2(row_dot + j * 32);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float x = probability[j * 4 + half * 2];
        const float y = probability[j * 4 + half * 2 + 1];
        const float dx = x * (d_score[j * 4 + half * 2] - column.x);
        const float dy = y * (d_score[j * 4 + half * 2 + 1] - column.y);
        if constexpr (kKeyBias) sums[half] += dx + dy;
        float2 factor = {1.0f, 1.0f};
        if constexpr (kSoftcap) factor = unpack<kType>(slope_[j][half]);
        d_scores[j / 2][j % 2 * 2 + half] = pack<kType>(dx * factor.x, dy * factor.y);
      }
    }
    if constexpr (kKeyBias) {
      float2& total = bias_sums();
      total = {total.x + sums[0], total.y + sums[1]};
    }
  }

  /// Of a tile of pairs at a shared address: the lane's row of 8 keys, for stmatrix and ldmatrix of the first 16
  /// queries with the warp's keys.
  __device__ __forceinline__ std::uint32_t rows_of_pairs(std::uint32_t tile) const {
    const int l = lane();
    const int row = l % 8 + l / 16 * 8;
    return tile + consumer_ * PairTile::kPanelBytes + row * PairTile::kRowBytes +
           ((warp() * 2 + l / 8 % 2) ^ PairTile::row_swizzle(row)) * 16;
  }

  /// dS into the ring, as rows of queries. Returns whether that of all warpgroups of the step before has come.
  __device__ __forceinline__ bool store_d_scores(int i, const Operand& d_scores) const {
    const DScoreRing ring(i);
    if constexpr (!G::kDScoresOutlastReaders) wait(state.d_score_empty[ring.stage], ring.parity ^ 1);
    const std::uint32_t address = rows_of_pairs(shared_ + G::kDScore + ring.stage * PairTile::kBytes);
#pragma unroll
    for (int k = 0; k < kM / 16; ++k) ptx::stmatrix_x4_trans(address + k * 16 * PairTile::kRowBytes, d_scores[k]);
    const DScoreRing last(i - 1);
    const bool came = has_come(state.d_score_full[last.stage], last.parity);
    ptx::fence_proxy_async();
    __syncwarp();
    arrive(state.d_score_full[ring.stage]);
    return came;
  }
  /// Until all warpgroups have stored those of step i.
  __device__ __forceinline__ void wait_for_d_scores(int i, bool came = false) const {
    const DScoreRing ring(i);
    wait(state.d_score_full[ring.stage], ring.parity, came);
  }

  // --- dQ ---

  /// Issues the warpgroup's share of dQ of step i.
  __device__ __forceinline__ void start_d_query(int i, DQuery& d_q) const {
    constexpr bool kRows = G::kDQueryShare == DQueryShare::rows;
    constexpr int kShareBytes =
        kRows ? 64 * PairTile::kRowBytes : G::kDQueryColumns / KeyTile::kPanelColumns * KeyTile::kPanelBytes;
    const std::uint32_t share = consumer_ * (kShareBytes >> 4);
    const std::uint32_t d_scores = PairTile::descriptor(shared_ + G::kDScore) +
                                   DScoreRing(i).stage * (PairTile::kBytes >> 4) + (kRows ? share : 0);
    const std::uint32_t keys = ptx::opaque(KeyTile::descriptor(shared_ + G::kKey) + (kRows ? 0 : share));
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

  /// Gives the warpgroup's share of dQ of step i to its reducer. Returns whether the queries of the step at `next` have
  /// come.
  __device__ __forceinline__ bool hand_over_d_query(int i, const DQuery& d_q, bool buffer_came,
                                                    const RingPosition<G::kQueryStages>& next) {
    wait(state.d_query_empty[consumer_], (i & 1) ^ 1, buffer_came);
    const std::uint32_t address =
        shared_ + G::kDQuery + consumer_ * G::kDQueryBytes + warp() * (G::kDQueryBytes / 4) + lane() * 16;
#pragma unroll
    for (int c = 0; c < G::kDQueryColumns / 8; ++c)
      ptx::st_shared_v4(address + c * kAtomFloats * 4, d_q[c * 4], d_q[c * 4 + 1], d_q[c * 4 + 2], d_q[c * 4 + 3]);
    const bool queries_came = has_come(state.query_full[next.stage], next.parity);
    ptx::fence_proxy_async();
    __syncwarp();
    arrive(state.d_query_full[consumer_]);
    return queries_came;
  }

  // --- The gradient of a key bias ---

  /// The thread's sums of dS over the queries, of its two keys.
  __device__ __forceinline__ float2& bias_sums() const {
    return reinterpret_cast<float2*>(reinterpret_cast<unsigned char*>(&state) -
                                     (G::kState - G::kBiasSums))[ptx::fresh_thread_index() - kWarpgroupThreads];
  }

  /// Writes the sums of the head at work, and starts anew.
  __device__ __forceinline__ void write_bias_sums() const {
    const float2 mine = bias_sums();
    bias_sums() = {0.0f, 0.0f};
    if (head_ < 0) return;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      write_bias_sum(p, state.item, head_, position(half), half == 0 ? mine.x : mine.y, lane());
  }

  // --- dK and dV ---

  __device__ __forceinline__ void write_gradients(KeyGradient& d_k, KeyGradient& d_v) {
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) d_k[i] *= p.scale;
    // The warpgroup's own rows of V, by way of which its gradients leave, are read by its own products only, which have
    // all finished.
    ptx::barrier_sync(kFirstConsumerBarrier + consumer_, kWarpgroupThreads);
    if (state.item.pieces > 1 &&
        !add_pieces<kD / 2>(p, state.item, consumer_ * 4 + warp(), G::kConsumerWarps, d_k, d_v))
      return;
    const int row = consumer_ * 64 + warp() * 16;
    if (p.d_k_partial != nullptr) {
      write_partial_key_gradient(p, state.item, p.d_k_partial, d_k, row);
      write_partial_key_gradient(p, state.item, p.d_v_partial, d_v, row);
      return;
    }
    write_key_gradient_rows<ValueTile, kType>(p, state.item, p.d_v, d_v, shared_ + G::kValue, row, row);
    write_key_gradient_rows<ValueTile, kType>(p, state.item, p.d_k, d_k, shared_ + G::kValue, row, row);
  }

  static constexpr int kFirstConsumerBarrier = 1;  ///< named barriers: 0 is the CTA's

  const BackwardParameters& p;
  std::uint32_t shared_;
  State& state;
  int consumer_;
  int head_ = -1;          ///< key-vector bias: of the step at work
  bool partial_ = false;   ///< some pairs of the step at work are masked
  std::uint32_t row_dot_;  ///< shared address of D of the lane's first query of the step at work

  // Softcap: 1 - tanh^2, packed, which multiplies what is rounded to 16 bits right after.
  std::uint32_t slope_[kSoftcap ? kM / 8 : 1][2];
};

}  // namespace flashdma_bwd::hopper
