// The backward kernel of the Ampere family (mma.sync, ldmatrix, cp.async): compute capability 8.0 and up.
//
// A CTA owns a tile of keys of one (batch, group of query heads): K and V stay in shared memory, dK and dV in
// registers, while it walks the query tiles that see any of its keys. A step, for a query tile:
//
//     S = Q K^T,  P = exp(scale S + bias - LSE)      accumulators; P goes to shared memory in 16 bits
//     dP = dO V^T,  dS = P (dP - D)                  accumulators; dS goes to shared memory in 16 bits
//     dV += P^T dO,  dK += dS^T Q                    accumulators for the whole life of the CTA
//     dQ = dS K                                      reduced into float32 scratch in global memory
//
// With two stages of Q and dO a step has two barriers: one after P is written, one after dS is written and the next
// tile's loads have landed. The arithmetic between the products then runs under other products: exponentials under dP,
// dS under dV. With one stage a further barrier frees a buffer as early as its last product is issued, and two CTAs of
// a multiprocessor, for which there is then shared memory, hide each other's arithmetic. The loop order follows
// FlashAttention-2 (Dao, 2023), section 3.1.2.
//
// Here are the item, its heads and the steps. What a step consists of has files of its own: operand_loads.cuh brings
// what it reads, score_tile.cuh makes P and dS, pair_masks.cuh, key_bias.cuh and tile_bias.cuh have their parts in it,
// d_query.cuh adds dQ; key_gradients.cuh writes dK and dV in the end. schedule.cuh says what comes in which order.
#pragma once

#include "ampere/cta.cuh"
#include "ampere/d_query.cuh"
#include "ampere/key_bias.cuh"
#include "ampere/key_gradients.cuh"
#include "ampere/operand_loads.cuh"
#include "ampere/pair_masks.cuh"
#include "ampere/schedule.cuh"
#include "ampere/score_tile.cuh"
#include "ampere/tile_bias.cuh"
#include "ampere/warp_gemm.cuh"

namespace flashdma_bwd::ampere {

template <KernelConfig kConfig>
class Backward {
  using G = Geometry<kConfig>;
  using Schedule = ampere::Schedule<kConfig>;
  static constexpr bool kBf16 = kConfig.data_type == DataType::bf16;
  static constexpr bool kKeyBias = kConfig.bias == BiasKind::key_vector;
  static constexpr bool kTileBias = kConfig.bias == BiasKind::tile;
  static constexpr bool kValueInRegisters = kConfig.tile.value_in_registers;

 public:
  __device__ __forceinline__ Backward(const BackwardParameters& parameters, unsigned char* shared)
      : cta_(parameters, shared) {}

  __device__ __forceinline__ void run() {
    if (!start_item()) return;
    load_keys_and_values(cta_);
    if constexpr (kValueInRegisters) keep_values(cta_, value_);

    DkvAccumulator<kConfig> d_k, d_v;
    clear(d_k);
    clear(d_v);
    for (int h = 0; h < cta_.p.heads_per_item; ++h) process_head(h, d_k, d_v);

    // Also the copies of K and V, for which no tile may have waited.
    arrive_loads();
    write_key_gradients(cta_, d_k, d_v);
  }

 private:
  // --- The item ---

  __device__ __forceinline__ bool start_item() {
    if (cta_.thread() == 0) {
      ptx::mbarrier_init(cta_.shared_base + G::kQueryFree, G::kThreads);
      // In deterministic mode a CTA waits for those with earlier items, so items must start in order (work_table.cuh).
      const int index = cta_.p.ticket != nullptr ? atomicAdd(cta_.p.ticket, 1) : static_cast<int>(blockIdx.x);
      if (!find_item(cta_.item(), cta_.p, index, G::kN)) cta_.item().keys = 0;
    }
    __syncthreads();
    if (cta_.item().keys <= 0) return false;
    for (int row = cta_.thread(); row < G::kN; row += G::kThreads) {
      const bool valid = row < cta_.item().keys;
      cta_.positions()[row] = !valid                          ? kPastEnd
                              : cta_.item().active != nullptr ? cta_.item().active[row]
                                                              : cta_.item().first_position + row;
    }
    __syncthreads();
    return true;
  }

  // --- One query head ---

  __device__ __forceinline__ void process_head(int h, DkvAccumulator<kConfig>& d_k, DkvAccumulator<kConfig>& d_v) {
    // The previous head's last products may still read the buffers.
    __syncthreads();
    if (cta_.thread() == 0) start_head(cta_.item(), cta_.p, h, G::kM, G::kN);
    __syncthreads();
    ColumnSums<G::kScoreN> bias_sums;
    if constexpr (kKeyBias) {
      bias_sums.clear();
      load_key_bias(cta_);
    }
    if (cta_.item().count > 0) {
      TileStep step = step_of(cta_.item(), 0);
      load_query(cta_, step.tile, 0);
      load_d_out(cta_, step.tile, 0);
      load_statistics(cta_, step.tile, 0);
      ptx::cp_async_commit_group();
      if constexpr (Schedule::kTwoStages) arrive_loads();
      for (int i = 0; i < cta_.item().count; ++i) {
        const bool more = i + 1 < cta_.item().count;
        const TileStep next = more ? step_of(cta_.item(), i + 1) : step;
        if constexpr (!Schedule::kSplitMasked)
          process_tile<MaskedPairs::some_steps>(step, next, more, i, d_k, d_v, bias_sums);
        else if (step.is_partial())
          process_tile<MaskedPairs::this_step>(step, next, more, i, d_k, d_v, bias_sums);
        else
          process_tile<MaskedPairs::none>(step, next, more, i, d_k, d_v, bias_sums);
        step = next;
      }
    }
    if constexpr (kKeyBias)
      if (cta_.p.d_bias_rows != nullptr) write_bias_rows(cta_, bias_sums);
  }

  // --- A step ---

  /// Starts the next step's copies for which there is a second stage.
  __device__ __forceinline__ void load_ahead(int next_tile, bool more, int i) {
    // The other stage of dO and the statistics was read before the last barrier, that of Q was not.
    if constexpr (G::kDOutStages == 2)
      if (more) load_d_out(cta_, next_tile, i + 1);
    if (more) load_statistics(cta_, next_tile, i + 1);
    // The first step finds both stages free.
    if constexpr (Schedule::kTwoStages)
      if (i > 0) wait_until_query_is_free();
    if constexpr (G::kQueryStages == 2)
      if (more) load_query(cta_, next_tile, i + 1);
    ptx::cp_async_commit_group();
  }

  /// Waits until all threads have computed their dK of the step before, the last that reads its Q.
  __device__ __forceinline__ void wait_until_query_is_free() const {
    while (!ptx::mbarrier_test_wait_parity(cta_.shared_base + G::kQueryFree, query_free_phase_ ^ 1)) {
    }
  }

  /// Says that this thread has read this step's Q.
  __device__ __forceinline__ void free_query() {
    // Every thread arrives, not one for its warp: its own arrival orders its own reads of Q before the next copy. The
    // __syncwarp is there for the schedule only: without it ptxas 13.0 spills in sm90's kernels with 128 keys, head
    // dim 128, key bias and softcap.
    __syncwarp();
    ptx::mbarrier_arrive(cta_.shared_base + G::kQueryFree);
    query_free_phase_ ^= 1;
  }

  /// A query tile's part of all that the item adds up.
  template <MaskedPairs kMasked>
  __device__ __forceinline__ void process_tile(const TileStep& step, const TileStep& next, bool more, int i,
                                               DkvAccumulator<kConfig>& d_k, DkvAccumulator<kConfig>& d_v,
                                               ColumnSums<G::kScoreN>& bias_sums) {
    const WarpShare share = cta_.score_share();
    const int first_query = step.tile * G::kM;
    const std::uint32_t query = query_tile(cta_, i);
    const std::uint32_t d_out = d_out_tile(cta_, i);
    const float* lse = cta_.statistics(i);
    const float* row_dot = lse + G::kM;

    if constexpr (!Schedule::kTwoStages) arrive_loads();
    load_ahead(next.tile, more, i);

    // What the arithmetic needs from global memory is asked for before the product that hides its latency.
    BiasPairs<kConfig> bias_pairs;
    if constexpr (kTileBias) load_bias_pairs(cta_, bias_pairs, first_query, share);
    std::uint64_t words[G::kScoreM][2];
    const bool bits = kMasked != MaskedPairs::none && step.is_partial() && cta_.p.mask_words != nullptr;
    if (bits)
      read_mask_words(words, mask_head(cta_), cta_.p.query_atoms, first_query, cta_.item().key_tile * G::kN, share);

    ScoreAccumulator<kConfig> probability;
    clear(probability);
    multiply_accumulate<kBf16, G::kD / 16>(
        probability,
        OperandA<typename G::QueryTile, Storage::reduction_along_columns>(query, share.lane, share.first_row),
        OperandB<typename G::KeyTile>(cta_.shared_base + G::kKey, share.lane, share.first_column));

    // dP's products hide the exponentials.
    Slopes<kConfig> slope;
    RowValues<kConfig> row_lse;
    read_rows(row_lse, lse, share);
    const auto exponentiate_columns = [&](int step) {
      constexpr int kSteps = G::kD / 16;
#pragma unroll
      for (int n = 0; n < G::kScoreN; ++n)
        if (n * kSteps / G::kScoreN == step) exponentiate(cta_, probability, slope, bias_pairs, row_lse, n, share);
    };
    ScoreAccumulator<kConfig> d_score;
    RowValues<kConfig> dot;
    if constexpr (!Schedule::kReadDotLate) read_rows(dot, row_dot, share);
    const RowStart<G::kScoreM> start = start_of_d_probability<kConfig>(dot);
    const OperandA<typename G::QueryTile, Storage::reduction_along_columns> d_out_rows(d_out, share.lane,
                                                                                       share.first_row);
    if constexpr (kValueInRegisters)
      multiply_accumulate<kBf16, G::kD / 16>(d_score, d_out_rows, value_, exponentiate_columns, start);
    else
      multiply_accumulate<kBf16, G::kD / 16>(
          d_score, d_out_rows,
          OperandB<typename G::KeyTile>(cta_.shared_base + G::kValue, share.lane, share.first_column),
          exponentiate_columns, start);
    if constexpr (kMasked != MaskedPairs::none) {
      if (step.is_partial()) {
        if (bits) apply_mask_words(probability, words);
        apply_limits(probability, cta_.item().limits, cta_.positions(), first_query, share);
      }
      const bool bias_masks = kKeyBias && cta_.item().bias_masks;
      if (bias_masks) apply_bias_mask(cta_, probability, share);
      // A tile bias may mask any pair.
      if (step.is_partial() || bias_masks || kTileBias) silence<kConfig>(d_score, slope, probability);
    }
    store_probabilities(cta_, probability, share);
    if constexpr (Schedule::kReadDotLate) read_rows(dot, row_dot, share);

    const auto differentiate_columns = [&](int step_of_product) {
      constexpr int kSteps = G::kM / 16;
#pragma unroll
      for (int n = 0; n < G::kScoreN; ++n)
        if (n * kSteps / G::kScoreN == step_of_product) differentiate(cta_, d_score, probability, dot, slope, n, share);
    };
    const WarpShare dkv = cta_.dkv_share();
    const OperandA<typename G::PairTile, Storage::reduction_along_rows> probabilities(
        cta_.shared_base + G::kProbability, dkv.lane, dkv.first_row);
    const OperandBTransposed<typename G::QueryTile, G::kDkvN / 2> d_out_columns(d_out, dkv.lane, dkv.first_column);
    if constexpr (Schedule::kTwoStages) {
      // dV's products hide the arithmetic of dS, whose registers leave none for prefetching.
      __syncthreads();
      multiply_accumulate<kBf16, G::kM / 16, /*Prefetch=*/false>(d_v, probabilities, d_out_columns,
                                                                 differentiate_columns);
      add_bias_gradient(d_score, bias_sums, first_query, share);
      arrive_loads();
    } else {
#pragma unroll
      for (int k = 0; k < G::kM / 16; ++k) differentiate_columns(k);
      add_bias_gradient(d_score, bias_sums, first_query, share);
      __syncthreads();
      multiply_accumulate<kBf16, G::kM / 16>(d_v, probabilities, d_out_columns);
    }
    if constexpr (G::kDOutStages == 1 && G::kQueryStages == 2) {
      __syncthreads();
      if (more) load_d_out(cta_, next.tile, i + 1);
      ptx::cp_async_commit_group();
    }
    if constexpr (Schedule::kDQueryFirst) reduce_d_query(cta_, step.tile);
    multiply_accumulate<kBf16, G::kM / 16>(
        d_k,
        OperandA<typename G::PairTile, Storage::reduction_along_rows>(cta_.shared_base + G::kDScore, dkv.lane,
                                                                      dkv.first_row),
        OperandBTransposed<typename G::QueryTile, G::kDkvN / 2>(query, dkv.lane, dkv.first_column));
    if constexpr (Schedule::kTwoStages) free_query();
    if constexpr (G::kQueryStages == 1) {
      __syncthreads();
      if (more) {
        load_query(cta_, next.tile, i + 1);
        if constexpr (G::kDOutStages == 1) load_d_out(cta_, next.tile, i + 1);
      }
      ptx::cp_async_commit_group();
    }
    if constexpr (!Schedule::kDQueryFirst) reduce_d_query(cta_, step.tile);
  }

  __device__ __forceinline__ void add_bias_gradient(const ScoreAccumulator<kConfig>& d_score,
                                                    ColumnSums<G::kScoreN>& sums, int first_query,
                                                    const WarpShare& share) const {
    if constexpr (kKeyBias) add_bias_columns(sums, d_score, share.lane);
    if constexpr (kTileBias) store_bias_gradient(cta_, d_score, first_query, share);
  }

  struct NoValue {};  ///< where V stays in shared memory

  Cta<kConfig> cta_;
  int query_free_phase_ = 0;
  [[no_unique_address]] std::conditional_t<kValueInRegisters, ValueFragments<kConfig>, NoValue> value_;
};

}  // namespace flashdma_bwd::ampere
