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
#pragma once

#include "ampere/item.cuh"
#include "ampere/score_tile.cuh"
#include "ampere/tile_loads.cuh"
#include "ampere/warp_gemm.cuh"

namespace flashdma_bwd::ampere {

/// What a step's code knows about masked pairs when it is compiled.
enum class MaskedPairs {
  none,        ///< there are none
  this_step,   ///< there are some
  some_steps,  ///< the step says
};

template <KernelConfig kConfig>
class Backward {
  using G = Geometry<kConfig>;
  static constexpr DataType kType = kConfig.data_type;
  static constexpr bool kBf16 = kType == DataType::bf16;
  static constexpr bool kKeyBias = kConfig.bias == BiasKind::key_vector;
  static constexpr bool kTileBias = kConfig.bias == BiasKind::tile;
  static constexpr bool kSoftcap = kConfig.softcap;
  static constexpr bool kValueInRegisters = kConfig.tile.value_in_registers;
  static constexpr bool kVectorReduction = kConfig.architecture == Architecture::sm90;
  static constexpr int kQueryStages = kConfig.tile.q_stages;
  static constexpr int kDOutStages = kConfig.tile.do_stages;
  /// Whether dP's products start from -D instead of 0, which saves a subtraction a pair. On an H200 it gains 1 to 3 %
  /// at head dims 96, 128 and 192 and loses 2 % at 64 and 256, where the compiler then schedules the products worse. At
  /// 128 its registers are there only without a bias, a softcap and scalar reductions.
  static constexpr bool kStartFromMinusDot =
      G::kD == 96 || G::kD == 192 || (G::kD == 128 && kConfig.bias == BiasKind::none && !kSoftcap && kVectorReduction);
  /// Whether steps with and without masked pairs have code of their own. Even the masking code that does not run costs
  /// the compiler's schedule up to 4 %; with a bias or a softcap two copies of the loop do not fit the registers.
  static constexpr bool kSplitMasked = kConfig.bias == BiasKind::none && !kSoftcap;
  static constexpr bool kTwoStages = kQueryStages == 2 && kDOutStages == 2;
  /// Whether dQ's products come before dK's, whose products then hide dQ's reduction. On an H200 it gains 2 % at head
  /// dims 64 and 256 and loses 5 % at 128. With one stage dQ comes last: it hides the next tile's loads.
  static constexpr bool kDQueryFirst = kTwoStages && (G::kD == 64 || G::kD == 256);
  /// Whether D is read only when it is subtracted. It frees registers under dP's products, and costs them elsewhere,
  /// where head dim 128 has none.
  static constexpr bool kReadDotLate = kSplitMasked && !kStartFromMinusDot && G::kD != 128;

  using ScoreAccumulator = float[G::kScoreM][G::kScoreN][4];
  using DkvAccumulator = float[G::kDkvM][G::kDkvN][4];

 public:
  __device__ __forceinline__ Backward(const BackwardParameters& parameters, unsigned char* shared)
      : p(parameters), shared_(shared), shared_base_(ptx::shared_address(shared)) {}

  __device__ __forceinline__ void run() {
    if (!start_item()) return;
    load_keys_and_values();

    DkvAccumulator d_k, d_v;
    clear(d_k);
    clear(d_v);
    for (int h = 0; h < p.heads_per_item; ++h) process_head(h, d_k, d_v);

    // Also the copies of K and V, for which no tile may have waited.
    arrive_loads();
    write_gradients(d_k, d_v);
  }

 private:
  // --- The item ---

  __device__ __forceinline__ bool start_item() {
    if (thread() == 0) {
      ptx::mbarrier_init(shared_base_ + G::kQueryFree, G::kThreads);
      // In deterministic mode a CTA waits for those with smaller items, so items must start in order.
      const int index = p.ticket != nullptr ? atomicAdd(p.ticket, 1) : static_cast<int>(blockIdx.x);
      if (!find_item(item(), p, index, G::kN)) item().keys = 0;
    }
    __syncthreads();
    if (item().keys <= 0) return false;
    for (int row = thread(); row < G::kN; row += G::kThreads) {
      const bool valid = row < item().keys;
      positions()[row] = !valid                     ? kPastEnd
                         : item().active != nullptr ? item().active[row]
                                                    : item().first_position + row;
    }
    __syncthreads();
    return true;
  }

  __device__ __forceinline__ int kv_head() const {
    return item().head_item * p.heads_per_item / (p.heads / p.heads_kv);
  }

  // --- Loads ---

  /// The key of a row of the tile, negative past the end.
  __device__ __forceinline__ auto key_of_row() const {
    return [positions = positions()](int row) { return positions[row] == kPastEnd ? -1 : positions[row]; };
  }

  __device__ __forceinline__ HeadView key_head(const TensorView& tensor) const {
    return head_view(tensor, item().batch, kv_head(), item().sequence.row_k, p.cu_seqlens_k != nullptr);
  }

  __device__ __forceinline__ void load_keys_and_values() {
    using Tile = typename G::KeyTile;
    load_tile<Tile, G::kThreads>(shared_base_ + G::kKey, key_head(p.k), p.head_dim, thread(), key_of_row());
    load_tile<Tile, G::kThreads>(shared_base_ + G::kValueStaging, key_head(p.v), p.head_dim, thread(), key_of_row());
    ptx::cp_async_commit_group();
    if constexpr (kValueInRegisters) {
      ptx::cp_async_wait_group<0>();
      __syncthreads();
      const WarpShare share = score_share();
      value_.fill(OperandB<Tile>(shared_base_ + G::kValueStaging, share.lane, share.first_column));
      __syncthreads();
    }
  }

  __device__ __forceinline__ auto query_of_row(int tile) const {
    return [first = tile * G::kM, length = item().sequence.length_q](int row) {
      return first + row < length ? first + row : -1;
    };
  }

  /// Starts the copy of Q's tile.
  __device__ __forceinline__ void load_query(int tile, int step) {
    load_tile<typename G::QueryTile, G::kThreads>(
        shared_base_ + G::kQuery + (step % kQueryStages) * G::QueryTile::kBytes,
        HeadView{item().q, static_cast<int>(p.q.stride_row)}, p.head_dim, thread(), query_of_row(tile));
  }

  __device__ __forceinline__ void load_statistics(int tile, int step) {
    constexpr int kChunks = G::kM / 4;
    const int chunk = thread();
    if (chunk < 2 * kChunks) {
      const float* source = (chunk < kChunks ? p.lse_log2 : p.row_dot) + item().d_q_row;
      ptx::cp_async_16(shared_base_ + G::kStatistics + (step % 2) * (2 * G::kM * 4) + chunk * 16,
                       source + tile * G::kM + chunk % kChunks * 4, true);
    }
  }

  /// Waits until all copies that were started have arrived, for all threads.
  static __device__ __forceinline__ void arrive_loads() {
    ptx::cp_async_wait_group<0>();
    __syncthreads();
  }

  __device__ __forceinline__ void load_d_out(int tile, int step) {
    load_tile<typename G::QueryTile, G::kThreads>(shared_base_ + G::kDOut + (step % kDOutStages) * G::QueryTile::kBytes,
                                                  HeadView{item().d_out, static_cast<int>(p.d_out.stride_row)},
                                                  p.head_dim, thread(), query_of_row(tile));
  }

  /// The key-vector bias of a head, in units of log2. A bias of -inf masks its key.
  __device__ __forceinline__ void load_key_bias() {
    const std::int64_t offset =
        item().batch * p.bias.stride_batch + (item().head / p.bias.heads_per_head) * p.bias.stride_head;
    bool masks = false;
    for (int row = thread(); row < G::kN; row += G::kThreads) {
      const int key = positions()[row];
      float value = 0.0f;
      if (key != kPastEnd) {
        const std::int64_t element = offset + key * p.bias.stride_column;
        value = p.bias_is_float ? static_cast<const float*>(p.bias.data)[element]
                                : to_float<kType>(static_cast<const std::uint16_t*>(p.bias.data)[element]);
      }
      value *= kLog2E;
      masks |= value == -INFINITY;
      key_bias()[row] = value;
    }
    if (masks) item().bias_masks = true;
  }

  // --- One query head ---

  __device__ __forceinline__ void process_head(int h, DkvAccumulator& d_k, DkvAccumulator& d_v) {
    // The previous head's last products may still read the buffers.
    __syncthreads();
    if (thread() == 0) start_head(item(), p, item().head_item * p.heads_per_item + h, G::kM, G::kN);
    __syncthreads();
    ColumnSums<G::kScoreN> bias_sums;
    if constexpr (kKeyBias) {
      bias_sums.clear();
      load_key_bias();
    }
    if (item().count > 0) {
      TileStep step = step_of(item(), 0);
      load_query(step.tile, 0);
      load_d_out(step.tile, 0);
      load_statistics(step.tile, 0);
      ptx::cp_async_commit_group();
      if constexpr (kTwoStages) arrive_loads();
      for (int i = 0; i < item().count; ++i) {
        const bool more = i + 1 < item().count;
        const TileStep next = more ? step_of(item(), i + 1) : step;
        if constexpr (!kSplitMasked)
          process_tile<MaskedPairs::some_steps>(step, next, more, i, d_k, d_v, bias_sums);
        else if (step.partial)
          process_tile<MaskedPairs::this_step>(step, next, more, i, d_k, d_v, bias_sums);
        else
          process_tile<MaskedPairs::none>(step, next, more, i, d_k, d_v, bias_sums);
        step = next;
      }
    }
    if constexpr (kKeyBias)
      if (p.d_bias_rows != nullptr) write_bias_rows(bias_sums);
  }

  /// One step.
  template <MaskedPairs kMasked>
  __device__ __forceinline__ void process_tile(const TileStep& step, const TileStep& next, bool more, int i,
                                               DkvAccumulator& d_k, DkvAccumulator& d_v,
                                               ColumnSums<G::kScoreN>& bias_sums) {
    const WarpShare share = score_share();
    const int first_query = step.tile * G::kM;
    const std::uint32_t query = shared_base_ + G::kQuery + (i % kQueryStages) * G::QueryTile::kBytes;
    const std::uint32_t d_out = shared_base_ + G::kDOut + (i % kDOutStages) * G::QueryTile::kBytes;
    const float* lse = statistics(i);
    const float* row_dot = lse + G::kM;

    if constexpr (!kTwoStages) arrive_loads();
    // The other stage of dO and the statistics was read before the last barrier, that of Q was not.
    if constexpr (kDOutStages == 2)
      if (more) load_d_out(next.tile, i + 1);
    if (more) load_statistics(next.tile, i + 1);
    if constexpr (kTwoStages) {
      // The first tile finds both stages free; before the others, dK of the tile before must have been computed by all
      // threads.
      if (i > 0)
        while (!ptx::mbarrier_test_wait_parity(shared_base_ + G::kQueryFree, query_free_phase_ ^ 1)) {
        }
    }
    if constexpr (kQueryStages == 2)
      if (more) load_query(next.tile, i + 1);
    ptx::cp_async_commit_group();

    // What the arithmetic needs from global memory is asked for before the product that hides its latency.
    std::uint32_t bias_pairs[kTileBias ? G::kScoreM : 1][kTileBias ? G::kScoreN : 1][2];
    if constexpr (kTileBias) load_bias_pairs(bias_pairs, first_query, share);
    std::uint64_t words[G::kScoreM][2];
    const bool bits = kMasked != MaskedPairs::none && step.partial && p.mask_words != nullptr;
    if (bits) read_mask_words(words, mask_head(), p.query_atoms, first_query, item().key_tile * G::kN, share);

    ScoreAccumulator probability;
    clear(probability);
    multiply_accumulate<kBf16, G::kD / 16>(
        probability,
        OperandA<typename G::QueryTile, Storage::reduction_along_columns>(query, share.lane, share.first_row),
        OperandB<typename G::KeyTile>(shared_base_ + G::kKey, share.lane, share.first_column));

    // dP's products hide the exponentials. 1 - tanh^2 of the softcap is kept packed: it multiplies what is rounded to
    // 16 bits right after.
    std::uint32_t slope[kSoftcap ? G::kScoreM : 1][kSoftcap ? G::kScoreN : 1][2];
    float row_lse[G::kScoreM][2];
    read_rows(row_lse, lse, share);
    const auto exponentiate_columns = [&](int step) {
      constexpr int kSteps = G::kD / 16;
#pragma unroll
      for (int n = 0; n < G::kScoreN; ++n)
        if (n * kSteps / G::kScoreN == step) exponentiate(probability, slope, bias_pairs, row_lse, n, share);
    };
    ScoreAccumulator d_score;
    float dot[G::kScoreM][2];
    if constexpr (!kReadDotLate) read_rows(dot, row_dot, share);
    RowStart<G::kScoreM> minus_dot;
#pragma unroll
    for (int m = 0; m < G::kScoreM; ++m)
#pragma unroll
      for (int e = 0; e < 4; ++e) minus_dot.values[m][e] = kStartFromMinusDot ? -dot[m][e / 2] : 0.0f;
    const OperandA<typename G::QueryTile, Storage::reduction_along_columns> d_out_rows(d_out, share.lane,
                                                                                       share.first_row);
    if constexpr (kValueInRegisters)
      multiply_accumulate<kBf16, G::kD / 16>(d_score, d_out_rows, value_, exponentiate_columns, minus_dot);
    else
      multiply_accumulate<kBf16, G::kD / 16>(
          d_score, d_out_rows, OperandB<typename G::KeyTile>(shared_base_ + G::kValue, share.lane, share.first_column),
          exponentiate_columns, minus_dot);
    if constexpr (kMasked != MaskedPairs::none) {
      if (step.partial) {
        if (bits) apply_mask_words(probability, words);
        apply_limits(probability, item().limits, positions(), first_query, share);
      }
      const bool bias_masks = kKeyBias && item().bias_masks;
      if (bias_masks) apply_bias_mask(probability, share);
      // A tile bias may mask any pair.
      if (step.partial || bias_masks || kTileBias) silence(d_score, slope, probability);
    }
    store_pairs(shared_base_ + G::kProbability, probability, share);
    if constexpr (kReadDotLate) read_rows(dot, row_dot, share);

    const auto differentiate_columns = [&](int step_of_product) {
      constexpr int kSteps = G::kM / 16;
#pragma unroll
      for (int n = 0; n < G::kScoreN; ++n)
        if (n * kSteps / G::kScoreN == step_of_product) differentiate(d_score, probability, dot, slope, n, share);
    };
    const WarpShare dkv = dkv_share();
    const OperandA<typename G::PairTile, Storage::reduction_along_rows> probabilities(shared_base_ + G::kProbability,
                                                                                      dkv.lane, dkv.first_row);
    const OperandBTransposed<typename G::QueryTile, G::kDkvN / 2> d_out_columns(d_out, dkv.lane, dkv.first_column);
    if constexpr (kTwoStages) {
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
    if constexpr (kDOutStages == 1 && kQueryStages == 2) {
      __syncthreads();
      if (more) load_d_out(next.tile, i + 1);
      ptx::cp_async_commit_group();
    }
    if constexpr (kDQueryFirst) reduce_d_query(step.tile);
    multiply_accumulate<kBf16, G::kM / 16>(
        d_k,
        OperandA<typename G::PairTile, Storage::reduction_along_rows>(shared_base_ + G::kDScore, dkv.lane,
                                                                      dkv.first_row),
        OperandBTransposed<typename G::QueryTile, G::kDkvN / 2>(query, dkv.lane, dkv.first_column));
    if constexpr (kTwoStages) {
      // Every thread arrives, not one for its warp: its own arrival orders its own reads of Q before the next copy. The
      // __syncwarp is there for the schedule only: without it ptxas 13.0 spills in sm90's kernels with 128 keys, head
      // dim 128, key bias and softcap.
      __syncwarp();
      ptx::mbarrier_arrive(shared_base_ + G::kQueryFree);
      query_free_phase_ ^= 1;
    }
    if constexpr (kQueryStages == 1) {
      __syncthreads();
      if (more) {
        load_query(next.tile, i + 1);
        if constexpr (kDOutStages == 1) load_d_out(next.tile, i + 1);
      }
      ptx::cp_async_commit_group();
    }
    if constexpr (!kDQueryFirst) reduce_d_query(step.tile);
  }

  // --- Scores ---

  __device__ __forceinline__ const std::uint64_t* mask_head() const {
    return p.mask_words +
           (item().batch * p.mask_batch_stride + item().head / p.mask_heads_per_head * p.mask_head_stride) * kMaskAtom;
  }

  template <class Pairs>
  __device__ __forceinline__ void load_bias_pairs(Pairs& pairs, int first_query, const WarpShare& share) const {
    const std::int64_t offset =
        item().batch * p.bias.stride_batch + (item().head / p.bias.heads_per_head) * p.bias.stride_head;
    const TileBias<kType> bias{static_cast<const std::uint16_t*>(p.bias.data) + offset,
                               p.bias.stride_row,
                               static_cast<int>(p.bias.stride_column),
                               p.bias_pairs_aligned,
                               item().sequence.length_q,
                               item().sequence.length_k};
#pragma unroll
    for (int m = 0; m < G::kScoreM; ++m)
#pragma unroll
      for (int n = 0; n < G::kScoreN; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          pairs[m][n][half] = bias.load(first_query + share.row(m, half), key_pair(share.column(n)));
  }

  /// Scores to probabilities, for one column block: softcap, bias, exponential.
  template <class Slope, class Pairs>
  __device__ __forceinline__ void exponentiate(ScoreAccumulator& s, Slope& slope, const Pairs& bias_pairs,
                                               const float (&row_lse)[G::kScoreM][2], int n,
                                               const WarpShare& share) const {
    const float to_log2 = (kSoftcap ? p.softcap : p.scale) * kLog2E;
    const float to_cap = kSoftcap ? p.scale / p.softcap : 0.0f;
    float2 column_bias = {0.0f, 0.0f};
    if constexpr (kKeyBias) column_bias = *reinterpret_cast<const float2*>(key_bias() + share.column(n));
#pragma unroll
    for (int m = 0; m < G::kScoreM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float2 offset = {-row_lse[m][half], -row_lse[m][half]};
        if constexpr (kKeyBias) offset = {column_bias.x + offset.x, column_bias.y + offset.y};
        if constexpr (kTileBias) {
          const float2 bias = unpack<kType>(bias_pairs[m][n][half]);
          offset = {fmaf(bias.x, kLog2E, offset.x), fmaf(bias.y, kLog2E, offset.y)};
        }
        float& x = s[m][n][half * 2];
        float& y = s[m][n][half * 2 + 1];
        if constexpr (kSoftcap) {
          x = tanh_accurate(x * to_cap);
          y = tanh_accurate(y * to_cap);
          slope[m][n][half] = pack<kType>(1.0f - x * x, 1.0f - y * y);
        }
        x = ptx::ex2(fmaf(x, to_log2, offset.x));
        y = ptx::ex2(fmaf(y, to_log2, offset.y));
        if constexpr (kTileBias) {
          // By selection: the score of a masked key may have overflowed.
          const float2 bias = unpack<kType>(bias_pairs[m][n][half]);
          if (bias.x == -INFINITY) x = 0.0f;
          if (bias.y == -INFINITY) y = 0.0f;
        }
      }
  }

  /// Clears the probabilities of keys whose bias is -inf, by selection: their scores may have overflowed.
  __device__ __forceinline__ void apply_bias_mask(ScoreAccumulator& probability, const WarpShare& share) const {
#pragma unroll
    for (int n = 0; n < G::kScoreN; ++n) {
      const float2 bias = *reinterpret_cast<const float2*>(key_bias() + share.column(n));
#pragma unroll
      for (int m = 0; m < G::kScoreM; ++m)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if ((e % 2 == 0 ? bias.x : bias.y) == -INFINITY) probability[m][n][e] = 0.0f;
    }
  }

  /// Makes what multiplies a P of 0 finite: a masked key may hold values whose products overflow, and 0 times that is
  /// not 0.
  template <class Slope>
  __device__ __forceinline__ void silence(ScoreAccumulator& d_score, Slope& slope,
                                          const ScoreAccumulator& probability) const {
#pragma unroll
    for (int m = 0; m < G::kScoreM; ++m)
#pragma unroll
      for (int n = 0; n < G::kScoreN; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (probability[m][n][e] == 0.0f) {
            d_score[m][n][e] = 0.0f;
            if constexpr (kSoftcap) slope[m][n][e / 2] &= e % 2 == 0 ? 0xffff0000u : 0x0000ffffu;
          }
  }

  /// dP to dS, for one column block: dS stays in the accumulators, and what dQ and dK need of it goes to shared
  /// memory.
  template <class Slope>
  __device__ __forceinline__ void differentiate(ScoreAccumulator& d_score, const ScoreAccumulator& probability,
                                                const float (&dot)[G::kScoreM][2], const Slope& slope, int n,
                                                const WarpShare& share) const {
#pragma unroll
    for (int m = 0; m < G::kScoreM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& x = d_score[m][n][half * 2];
        float& y = d_score[m][n][half * 2 + 1];
        x = probability[m][n][half * 2] * (kStartFromMinusDot ? x : x - dot[m][half]);
        y = probability[m][n][half * 2 + 1] * (kStartFromMinusDot ? y : y - dot[m][half]);
        float2 factor = {1.0f, 1.0f};
        if constexpr (kSoftcap) factor = unpack<kType>(slope[m][n][half]);
        store_pair(shared_base_ + G::kDScore, m, half, n, pack<kType>(x * factor.x, y * factor.y), share);
      }
  }

  /// Stores the packed elements (m, n, 2 half) and (m, n, 2 half + 1) into a tile of pairs.
  __device__ __forceinline__ void store_pair(std::uint32_t tile, int m, int half, int n, std::uint32_t packed,
                                             const WarpShare& share) const {
    using Tile = typename G::PairTile;
    const std::uint32_t address =
        tile + static_cast<std::uint32_t>(Tile::chunk_offset(share.first_row + share.lane / 4, share.first_column / 8) +
                                          share.lane % 4 * 4);
    ptx::st_shared_32(Tile::advance(address, m * 16 + half * 8, n), packed);
  }

  __device__ __forceinline__ void store_pairs(std::uint32_t tile, const ScoreAccumulator& values,
                                              const WarpShare& share) const {
#pragma unroll
    for (int m = 0; m < G::kScoreM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int n = 0; n < G::kScoreN; ++n)
          store_pair(tile, m, half, n, pack<kType>(values[m][n][half * 2], values[m][n][half * 2 + 1]), share);
  }

  // --- The bias's gradient ---

  __device__ __forceinline__ void add_bias_gradient(const ScoreAccumulator& d_score, ColumnSums<G::kScoreN>& sums,
                                                    int first_query, const WarpShare& share) const {
    if constexpr (kKeyBias) add_bias_columns(sums, d_score, share.lane);
    if constexpr (kTileBias) store_bias_gradient(d_score, first_query, share);
  }

  __device__ __forceinline__ void add_bias_columns(ColumnSums<G::kScoreN>& sums, const ScoreAccumulator& d_score,
                                                   int lane) const {
    float columns[G::kScoreN * 2];
#pragma unroll
    for (int n = 0; n < G::kScoreN; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float sum = 0.0f;
#pragma unroll
        for (int m = 0; m < G::kScoreM; ++m) sum += d_score[m][n][e] + d_score[m][n][e + 2];
        columns[n * 2 + e] = sum;
      }
    sums.add(columns, lane);
  }

  /// Adds up the warps along the queries in a fixed order and writes the head's row sums.
  __device__ __forceinline__ void write_bias_rows(const ColumnSums<G::kScoreN>& sums) {
    const WarpShare share = score_share();
    using Sums = ColumnSums<G::kScoreN>;
    for (int turn = 0; turn < G::kScoreWarpsM; ++turn) {
      __syncthreads();
      if (share.first_row == turn * G::kScoreRows && Sums::owns(share.lane)) {
#pragma unroll
        for (int i = 0; i < Sums::kKept; ++i) {
          float& target = key_bias()[share.first_column + Sums::column(share.lane, i)];
          target = turn == 0 ? sums.sum[i] : target + sums.sum[i];
        }
      }
    }
    __syncthreads();
    float* rows = p.d_bias_rows + (static_cast<std::int64_t>(item().batch) * p.heads + item().head) * p.seqlen_k;
    for (int row = thread(); row < G::kN; row += G::kThreads)
      if (positions()[row] != kPastEnd) rows[positions()[row]] = key_bias()[row];
    __syncthreads();
  }

  __device__ __forceinline__ void store_bias_gradient(const ScoreAccumulator& d_score, int first_query,
                                                      const WarpShare& share) const {
    if (p.bias_gradient == BiasGradient::none) return;
    const std::int64_t offset =
        item().batch * p.d_bias.stride_batch + (item().head / p.d_bias.heads_per_head) * p.d_bias.stride_head;
    void* data = p.bias_gradient == BiasGradient::store_16bit
                     ? static_cast<void*>(static_cast<std::uint16_t*>(p.d_bias.data) + offset)
                     : static_cast<void*>(static_cast<float*>(p.d_bias.data) + offset);
    const TileBiasGradient<kType> gradient{data,
                                           p.d_bias.stride_row,
                                           p.d_bias.stride_column,
                                           p.bias_gradient,
                                           item().sequence.length_q,
                                           item().sequence.length_k};
    const bool aligned =
        p.d_bias.stride_column == 1 && p.d_bias.stride_row % 2 == 0 && reinterpret_cast<std::uintptr_t>(data) % 4 == 0;
#pragma unroll
    for (int m = 0; m < G::kScoreM; ++m)
#pragma unroll
      for (int n = 0; n < G::kScoreN; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          gradient.add_pair(first_query + share.row(m, half), key_pair(share.column(n)), d_score[m][n][half * 2],
                            d_score[m][n][half * 2 + 1], aligned);
  }

  // --- dQ ---

  __device__ __forceinline__ void reduce_d_query(int tile) {
    const WarpShare share = share_of<G::kDqWarpsM, G::kDqRows, G::kDqColumns>();
    float d_q[G::kDqM][G::kDqN][4];
    clear(d_q);
    multiply_accumulate<kBf16, G::kN / 16>(
        d_q,
        OperandA<typename G::PairTile, Storage::reduction_along_columns>(shared_base_ + G::kDScore, share.lane,
                                                                         share.first_row),
        OperandBTransposed<typename G::KeyTile, G::kDqN / 2>(shared_base_ + G::kKey, share.lane, share.first_column));

    const std::int64_t row = item().d_q_row + tile * G::kM;
    std::int32_t* turn = p.d_q_turns == nullptr ? nullptr : p.d_q_turns + row / 32;
    int rank = 0;
    if (turn != nullptr) {
      rank = item().ranks[tile];
      if (thread() == 0)
        while (ptx::ld_acquire(turn) != rank) {
        }
      __syncthreads();
    }
    float* atoms = p.d_q_scratch + ((row + share.first_row) / 16 * (G::kD / 8) + share.first_column / 8) * kAtomFloats;
#pragma unroll
    for (int m = 0; m < G::kDqM; ++m)
#pragma unroll
      for (int n = 0; n < G::kDqN; ++n) {
        float* atom = atoms + (m * (G::kD / 8) + n) * kAtomFloats;
        if constexpr (kVectorReduction) {
#if __CUDA_ARCH__ >= 900
          ptx::red_add_v4(atom + atom_offset(true, share.lane, 0), d_q[m][n]);
#endif
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e) ptx::red_add(atom + atom_offset(false, share.lane, e), d_q[m][n][e]);
        }
      }
    if (turn != nullptr) {
      __threadfence();
      __syncthreads();
      if (thread() == 0) ptx::st_release(turn, rank + 1);
    }
  }

  // --- dK and dV ---

  __device__ __forceinline__ void write_gradients(DkvAccumulator& d_k, DkvAccumulator& d_v) {
#pragma unroll
    for (int m = 0; m < G::kDkvM; ++m)
#pragma unroll
      for (int n = 0; n < G::kDkvN; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) d_k[m][n][e] *= p.scale;
    if (p.d_k_partial != nullptr) {
      write_partial(p.d_k_partial, d_k);
      write_partial(p.d_v_partial, d_v);
      return;
    }
    stage(G::kKey, d_k);
    stage(G::kValueStaging, d_v);
    __syncthreads();
    write_rows(p.d_k, G::kKey);
    write_rows(p.d_v, G::kValueStaging);
  }

  /// float32 rows of this item's heads, which the postprocess kernel adds over the items of a KV head.
  __device__ __forceinline__ void write_partial(float* partial, const DkvAccumulator& values) const {
    const WarpShare share = dkv_share();
    float* rows = partial + (item().head_item * p.key_rows + item().sequence.key_row) * p.head_dim;
#pragma unroll
    for (int m = 0; m < G::kDkvM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = positions()[share.row(m, half)];
        if (key == kPastEnd) continue;
        float* row = rows + static_cast<std::int64_t>(key) * p.head_dim;
#pragma unroll
        for (int n = 0; n < G::kDkvN; ++n)
          if (share.column(n) < p.head_dim)
            *reinterpret_cast<float2*>(row + share.column(n)) = {values[m][n][half * 2], values[m][n][half * 2 + 1]};
      }
  }

  __device__ __forceinline__ void stage(int offset, const DkvAccumulator& values) {
    const WarpShare share = dkv_share();
#pragma unroll
    for (int m = 0; m < G::kDkvM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int n = 0; n < G::kDkvN; ++n)
          ptx::st_shared_32(shared_base_ + offset + G::KeyTile::offset(share.row(m, half), share.column(n)),
                            pack<kType>(values[m][n][half * 2], values[m][n][half * 2 + 1]));
  }

  __device__ __forceinline__ void write_rows(const TensorView& tensor, int offset) {
    const HeadView view = key_head(tensor);
    store_tile<typename G::KeyTile, G::kThreads>(shared_ + offset, const_cast<std::uint16_t*>(view.data),
                                                 tensor.stride_row, p.head_dim, thread(), key_of_row());
  }

  // --- Where things are ---

  static __device__ __forceinline__ int thread() {
    return ptx::fresh_thread_index();
  }
  static __device__ __forceinline__ int lane() {
    return thread() % 32;
  }
  /// The warp's share of a matrix of which `WarpsAlongRows` warps lie along the rows.
  template <int WarpsAlongRows, int Rows, int Columns>
  static __device__ __forceinline__ WarpShare share_of() {
    const int index = thread();
    const int warp = index / 32;
    return {index % 32, warp % WarpsAlongRows * Rows, warp / WarpsAlongRows * Columns};
  }
  static __device__ __forceinline__ WarpShare score_share() {
    return share_of<G::kScoreWarpsM, G::kScoreRows, G::kScoreColumns>();
  }
  static __device__ __forceinline__ WarpShare dkv_share() {
    return share_of<G::kDkvWarpsN, G::kDkvRows, G::kDkvColumns>();
  }
  __device__ __forceinline__ Item& item() const {
    return *reinterpret_cast<Item*>(shared_ + G::kState);
  }
  /// The keys of two neighbouring columns of the tile; kPastEnd past the end.
  __device__ __forceinline__ int2 key_pair(int column) const {
    return *reinterpret_cast<const int2*>(positions() + column);
  }
  __device__ __forceinline__ int* positions() const {
    return reinterpret_cast<int*>(shared_ + G::kPositions);
  }
  __device__ __forceinline__ float* key_bias() const {
    return reinterpret_cast<float*>(shared_ + G::kBias);
  }
  __device__ __forceinline__ const float* statistics(int step) const {
    return reinterpret_cast<const float*>(shared_ + G::kStatistics) + step % 2 * (2 * G::kM);
  }

  struct NoValue {};
  using ValueFragments = RegisterOperandB<G::kScoreN / 2, G::kD / 16>;

  const BackwardParameters& p;
  unsigned char* shared_;
  std::uint32_t shared_base_;
  int query_free_phase_ = 0;
  [[no_unique_address]] std::conditional_t<kValueInRegisters, ValueFragments, NoValue> value_;
};

}  // namespace flashdma_bwd::ampere
