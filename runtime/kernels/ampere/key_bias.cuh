// A key-vector bias: its values for the item's keys, which keys it masks, and its gradient, dS summed over the queries.
#pragma once

#include "ampere/cta.cuh"
#include "common/key_bias_sum.cuh"
#include "common/numeric.cuh"

namespace flashdma_bwd::ampere {

/// Reads the bias of the head at work into shared memory, in units of log2. A bias of -inf masks its key.
template <KernelConfig kConfig>
__device__ __forceinline__ void load_key_bias(const Cta<kConfig>& cta) {
  using G = Geometry<kConfig>;
  const BackwardParameters& p = cta.p;
  const std::int64_t offset =
      cta.item().batch * p.bias.stride_batch + (cta.item().head / p.bias.heads_per_head) * p.bias.stride_head;
  bool masks = false;
  for (int row = cta.thread(); row < G::kN; row += G::kThreads) {
    const int key = cta.positions()[row];
    float value = 0.0f;
    if (key != kPastEnd) {
      const std::int64_t element = offset + key * p.bias.stride_column;
      value = p.bias_is_float ? static_cast<const float*>(p.bias.data)[element]
                              : to_float<kConfig.data_type>(static_cast<const std::uint16_t*>(p.bias.data)[element]);
    }
    value *= kLog2E;
    masks |= value == -INFINITY;
    cta.key_bias()[row] = value;
  }
  if (masks) cta.item().bias_masks = true;
}

/// Clears the probabilities of keys whose bias is -inf, by selection: their scores may have overflowed.
template <KernelConfig kConfig>
__device__ __forceinline__ void apply_bias_mask(const Cta<kConfig>& cta, ScoreAccumulator<kConfig>& probability,
                                                const WarpShare& share) {
  using G = Geometry<kConfig>;
#pragma unroll
  for (int n = 0; n < G::kScoreN; ++n) {
    const float2 bias = *reinterpret_cast<const float2*>(cta.key_bias() + share.column(n));
#pragma unroll
    for (int m = 0; m < G::kScoreM; ++m)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if ((e % 2 == 0 ? bias.x : bias.y) == -INFINITY) probability[m][n][e] = 0.0f;
  }
}

/// Sums over the queries of the tile, one key a lane, kept in registers through the loop: the gradient of a key-vector
/// bias. Each tile costs a butterfly that halves the values a lane carries at every step, so that no lane carries all
/// columns.
template <int NBlocks>
struct ColumnSums {
  static constexpr int kValues = NBlocks * 2;                   ///< columns of a lane before the butterfly
  static constexpr int kKept = kValues >= 8 ? kValues / 8 : 1;  ///< after it
  float sum[kKept];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kKept; ++i) sum[i] = 0.0f;
  }

  /// Adds the column sums of a tile; destroys `v`, whose value 2 n + e is the lane's sum over its rows of column (n,
  /// e).
  __device__ __forceinline__ void add(float (&v)[kValues], int lane) {
    int count = kValues;
#pragma unroll
    for (int mask = 16; mask >= 4; mask /= 2) {
      if (count > 1) {
        count /= 2;
        const bool upper = (lane & mask) != 0;
#pragma unroll
        for (int i = 0; i < kValues / 2; ++i)
          if (i < count) {
            const float mine = upper ? v[i + count] : v[i];
            const float other = upper ? v[i] : v[i + count];
            v[i] = mine + __shfl_xor_sync(0xffffffffu, other, mask);
          }
      } else {
        v[0] += __shfl_xor_sync(0xffffffffu, v[0], mask);
      }
    }
#pragma unroll
    for (int i = 0; i < kKept; ++i) sum[i] += v[i];
  }

  /// The column, relative to the warp's first, of `sum[i]`.
  static __device__ __forceinline__ int column(int lane, int i) {
    int value = i;
    int count = kValues;
#pragma unroll
    for (int mask = 16; mask >= 4; mask /= 2)
      if (count > 1) {
        count /= 2;
        if ((lane & mask) != 0) value += count;
      }
    return value / 2 * 8 + lane % 4 * 2 + value % 2;
  }
  /// Whether this lane is the one that owns its columns: with few columns several lanes hold the same sum.
  static __device__ __forceinline__ bool owns(int lane) {
    return kValues >= 8 || (lane & (kValues == 4 ? 4 : 12)) == 0;
  }
};

/// Adds dS of a tile to the sums of its columns.
template <int MBlocks, int NBlocks>
__device__ __forceinline__ void add_bias_columns(ColumnSums<NBlocks>& sums, const float (&d_score)[MBlocks][NBlocks][4],
                                                 int lane) {
  float columns[NBlocks * 2];
#pragma unroll
  for (int n = 0; n < NBlocks; ++n)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float sum = 0.0f;
#pragma unroll
      for (int m = 0; m < MBlocks; ++m) sum += d_score[m][n][e] + d_score[m][n][e + 2];
      columns[n * 2 + e] = sum;
    }
  sums.add(columns, lane);
}

/// Adds up the warps along the queries in a fixed order and writes the sums of the head's keys over the piece's rows.
template <KernelConfig kConfig>
__device__ __forceinline__ void write_bias_rows(const Cta<kConfig>& cta,
                                                const ColumnSums<Geometry<kConfig>::kScoreN>& sums) {
  using G = Geometry<kConfig>;
  using Sums = ColumnSums<G::kScoreN>;
  const BackwardParameters& p = cta.p;
  const WarpShare share = cta.score_share();
  for (int turn = 0; turn < G::kScoreWarpsM; ++turn) {
    __syncthreads();
    if (share.first_row == turn * G::kScoreRows && Sums::owns(share.lane)) {
#pragma unroll
      for (int i = 0; i < Sums::kKept; ++i) {
        float& target = cta.key_bias()[share.first_column + Sums::column(share.lane, i)];
        target = turn == 0 ? sums.sum[i] : target + sums.sum[i];
      }
    }
  }
  __syncthreads();
  const Item& item = cta.item();
  for (int row = cta.thread(); row < G::kN; row += G::kThreads)
    store_bias_sum(p, item, item.head, cta.positions()[row], cta.key_bias()[row]);
  __syncthreads();
}

}  // namespace flashdma_bwd::ampere
