// D = rowsum(dO O), the LSE in log2, zeros for dQ and the work table: the kernel before the main one.
#include <algorithm>

#include "common/launch_kernel.hpp"
#include "common/launch_order.cuh"
#include "common/load_kernels.hpp"
#include "common/numeric.cuh"
#include "common/side_kernels.cuh"
#include "common/visibility.hpp"
#include "common/work_table.cuh"

namespace flashdma_bwd {
namespace {

using namespace side;

__device__ __forceinline__ const std::uint16_t* row_address(const TensorView& tensor, bool packed, int batch,
                                                            std::int64_t row, int head) {
  return static_cast<const std::uint16_t*>(tensor.data) + row_offset(tensor, packed, batch, row, head);
}

__device__ __forceinline__ uint4 load_eight(const std::uint16_t* elements) {
  return __ldg(reinterpret_cast<const uint4*>(elements));
}

template <DataType Type>
__device__ __forceinline__ float dot_eight(const uint4& a, const uint4& b) {
  const std::uint32_t left[4] = {a.x, a.y, a.z, a.w};
  const std::uint32_t right[4] = {b.x, b.y, b.z, b.w};
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 x = unpack<Type>(left[i]);
    const float2 y = unpack<Type>(right[i]);
    sum = fmaf(x.x, y.x, fmaf(x.y, y.y, sum));
  }
  return sum;
}

/// Rows of a block of the preprocess kernel.
constexpr int kRowsPerThread = 4;

/// The sum of `values[part % 4]` over the row's lanes: each exchange halves what is left to be added.
template <int Lanes>
__device__ __forceinline__ float sum_of_own_row(const float (&values)[kRowsPerThread], int part) {
  static_assert(kRowsPerThread == 4 && Lanes >= 4);
  const auto exchange = [](bool odd, float even_row, float odd_row, int mask) {
    return (odd ? odd_row : even_row) + __shfl_xor_sync(0xffffffffu, odd ? even_row : odd_row, mask);
  };
  const bool odd = (part & 1) != 0;
  const float low = exchange(odd, values[0], values[1], 1);
  const float high = exchange(odd, values[2], values[3], 1);
  float sum = exchange((part & 2) != 0, low, high, 2);
#pragma unroll
  for (int mask = 4; mask < Lanes; mask *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
  return sum;
}

/// How a block's threads share its rows: Lanes lanes a row, eight elements a lane, the same rows of Heads neighbouring
/// heads, which lie behind each other in memory as a rule. Where a row has 64 bytes only, one head's are so few bytes
/// of a DRAM page that they are read slowly.
template <int Lanes, int Heads>
struct RowShares {
  static constexpr int kLanes = Lanes;
  static constexpr int kHeads = Heads;
  static constexpr int kRowStep = kThreads / (Lanes * Heads);  ///< from one of a thread's rows to its next
  static constexpr int kRows = kRowStep * kRowsPerThread;      ///< of each head
  static_assert(kRows % 16 == 0);

  FLASHDMA_HOST_DEVICE static int blocks(const BackwardParameters& p) {
    return static_cast<int>((padded_rows(p.seqlen_q) + kRows - 1) / kRows);
  }
  /// Blocks beside each other take a head's next rows; of short rows the same rows of the next heads. `head` is the
  /// first of the block's.
  __device__ __forceinline__ static HeadBlock place(const BackwardParameters& p, int index) {
    if constexpr (Lanes >= 8) return head_block(p, index, blocks(p));
    const int head_groups = p.heads / Heads;
    const int batch_block = index / head_groups;
    return {batch_block / blocks(p), index % head_groups * Heads, batch_block % blocks(p)};
  }
};

/// Of up to 32 columns, where there are as many heads: 256 bytes of a row.
using ShortRowsOfHeads = RowShares<4, 4>;

/// `value` as the sum of three bf16, to 24 bits; an infinite value's first is infinite.
__device__ __forceinline__ void split_into_terms(float value, std::uint16_t (&terms)[4]) {
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    terms[i] = from_float<DataType::bf16>(value);
    const float rest = value - to_float<DataType::bf16>(terms[i]);
    value = isfinite(rest) ? rest : 0.0f;
  }
}

/// The rows of a block.
template <DataType Type, class Shares>
__device__ __forceinline__ void preprocess_block(const BackwardParameters& p, int bucket, int index) {
  constexpr int kLanes = Shares::kLanes;
  constexpr int kRowStep = Shares::kRowStep;
  const HeadBlock block = Shares::place(p, index);
  const int batch = block.batch;
  const int row_of_heads = static_cast<int>(threadIdx.x) / kLanes;
  const int head = block.head + row_of_heads % Shares::kHeads;
  const SequenceRows sequence = sequence_of(p, batch);
  const int part = static_cast<int>(threadIdx.x) % kLanes;
  const int first_row = block.index * Shares::kRows + row_of_heads / Shares::kHeads;
  const bool packed = p.cu_seqlens_q != nullptr;
  const auto padded = static_cast<int>(padded_rows(sequence.length_q));
  const std::int64_t scratch_row = head * p.scratch_rows + sequence.scratch_row;
  // Before the loads, whose registers it would need (NOTES.md of hopper/). Sixteen rows of dQ's scratch are as long as
  // sixteen rows of dQ, so that a head's rows are one range, whatever the order within it.
  if (p.d_q_scratch != nullptr) {
    constexpr int kMostQuads = Shares::kRows * 2 * kLanes;  // of 8 kLanes columns, a bucket's most
    static_assert(kMostQuads % kThreads == 0);
    const int block_row = block.index * Shares::kRows;
    const int quads = min(Shares::kRows, padded - block_row) * (bucket / 4);
#pragma unroll
    for (int of_block = 0; of_block < Shares::kHeads; ++of_block) {
      const std::int64_t range_row = (block.head + of_block) * p.scratch_rows + sequence.scratch_row + block_row;
      auto* scratch = reinterpret_cast<float4*>(p.d_q_scratch + range_row * bucket);
#pragma unroll
      for (int i = 0; i < kMostQuads / kThreads; ++i) {
        const int quad = static_cast<int>(threadIdx.x) + i * kThreads;
        if (quad < quads) scratch[quad] = {0.0f, 0.0f, 0.0f, 0.0f};
      }
    }
  }

  // Of the lanes that share the thread's rows, each of the first four loads and stores the statistics of one.
  const int own_row = first_row + part * kRowStep;
  const bool owns_row = part < kRowsPerThread && own_row < padded;

  // All loads are started before the first is used.
  uint4 out[kRowsPerThread] = {};
  uint4 d_out[kRowsPerThread] = {};
  const std::uint16_t* out_row = row_address(p.out, packed, batch, sequence.row_q + first_row, head) + part * 8;
  const std::uint16_t* d_out_row = row_address(p.d_out, packed, batch, sequence.row_q + first_row, head) + part * 8;
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    if (first_row + i * kRowStep < sequence.length_q && part * 8 < p.head_dim) {
      out[i] = load_eight(out_row);
      d_out[i] = load_eight(d_out_row);
    }
    out_row += kRowStep * p.out.stride_row;
    d_out_row += kRowStep * p.d_out.stride_row;
  }
  float lse = INFINITY;
  if (owns_row && own_row < sequence.length_q)
    lse = p.lse[(packed ? 0 : batch * p.lse_stride_batch) + head * p.lse_stride_head +
                (sequence.row_q + own_row) * p.lse_stride_row];

  float dots[kRowsPerThread];
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) dots[i] = dot_eight<Type>(out[i], d_out[i]);
  const float sum = sum_of_own_row<kLanes>(dots, part);
  if (!owns_row) return;
  // An empty row has no probability: exp2(s - inf) = 0, whatever O holds.
  // So has one whose scores are all near the lowest float.
  const float scaled = p.lse_base_two ? lse : lse * kLog2E;
  const bool empty = isinf(scaled);
  const float dot = empty ? 0.0f : sum;
  if (p.statistic_terms == nullptr) {
    p.lse_log2[scratch_row + own_row] = empty ? INFINITY : scaled;
    p.row_dot[scratch_row + own_row] = dot;
    return;
  }
  StatisticTerms terms{};
  split_into_terms(dot, terms.dot);
  if (p.softcap > 0.0f) {
    const float finite = empty ? kLargestTerm : fminf(fmaxf(scaled, -kLargestTerm), kLargestTerm);
    const std::uint32_t bits = with_finite_halves(__float_as_uint(finite));
    terms.lse[0] = static_cast<std::uint16_t>(bits);
    terms.lse[1] = static_cast<std::uint16_t>(bits >> 16);
  } else {
    const float score = empty ? copysignf(kLargestTerm, p.score_log2) : scaled / p.score_log2;
    split_into_terms(fminf(fmaxf(score, -kLargestTerm), kLargestTerm), terms.lse);
  }
  p.statistic_terms[scratch_row + own_row] = terms;
}

/// Of a multiprocessor at least: what ptxas takes as the bound of registers, which it would else set below what the
/// work table needs.
constexpr int kBlocks = 5;

/// The main kernel's tickets begin anew, and what the pieces of items count. `kTable`: the first block writes the work
/// table of the main kernel, which takes longer than a block of rows.
template <DataType Type, class Shares, bool kTable>
__global__ void __launch_bounds__(kThreads, kBlocks)
    preprocess_kernel(const __grid_constant__ BackwardParameters p, int bucket) {
  let_successor_launch();
  if (p.ticket != nullptr && blockIdx.x == 0 && threadIdx.x == 0) *p.ticket = 0;
  static_assert(kThreads == kTableThreads);
  if constexpr (kTable) {
    if (blockIdx.x == 0) {
      WorkTableWriter(p).clear_arrivals();
      WorkTableWriter(p).clear_slots();
      wait_for_predecessor();  // for the lists that the table is made of
      WorkTableWriter(p).run();
      return;
    }
  }
  if (Shares::blocks(p) != 0)
    preprocess_block<Type, Shares>(p, bucket, static_cast<int>(blockIdx.x) - (kTable ? 1 : 0));
  if (!kTable && blockIdx.x == 0) {
    if (p.piece_arrivals != nullptr) WorkTableWriter(p).clear_arrivals();
    // So that this kernel is not done before its predecessor, for which the next one does not wait.
    wait_for_predecessor();
  }
}

template <DataType Type, class Shares>
cudaError_t launch_preprocess(const BackwardParameters& p, int bucket, PreprocessPart part, bool early,
                              cudaStream_t stream) {
  const unsigned blocks = part == PreprocessPart::table ? 0
                                                        : static_cast<unsigned>(Shares::blocks(p)) *
                                                              static_cast<unsigned>(p.batch * p.heads / Shares::kHeads);
  if (p.work != nullptr && part != PreprocessPart::rows)
    return launch_kernel(preprocess_kernel<Type, Shares, true>, Grid(blocks + 1).launched_early(early), kThreads, 0,
                         stream, p, bucket);
  if (part == PreprocessPart::table || (blocks == 0 && p.ticket == nullptr && p.piece_arrivals == nullptr))
    return cudaSuccess;
  return launch_kernel(preprocess_kernel<Type, Shares, false>, Grid(std::max(blocks, 1u)).launched_early(early),
                       kThreads, 0, stream, p, bucket);
}

template <DataType Type>
cudaError_t launch_preprocess(const BackwardParameters& p, int bucket, PreprocessPart part, bool early,
                              cudaStream_t stream) {
  if (bucket <= 32 && p.heads % ShortRowsOfHeads::kHeads == 0)
    return launch_preprocess<Type, ShortRowsOfHeads>(p, bucket, part, early, stream);
  if (bucket <= 32) return launch_preprocess<Type, RowShares<4, 1>>(p, bucket, part, early, stream);
  if (bucket <= 64) return launch_preprocess<Type, RowShares<8, 1>>(p, bucket, part, early, stream);
  if (bucket <= 128) return launch_preprocess<Type, RowShares<16, 1>>(p, bucket, part, early, stream);
  return launch_preprocess<Type, RowShares<32, 1>>(p, bucket, part, early, stream);
}

template <DataType Type, bool kTable>
cudaError_t load_preprocess_kernels() {
  return load_kernels(
      preprocess_kernel<Type, ShortRowsOfHeads, kTable>, preprocess_kernel<Type, RowShares<4, 1>, kTable>,
      preprocess_kernel<Type, RowShares<8, 1>, kTable>, preprocess_kernel<Type, RowShares<16, 1>, kTable>,
      preprocess_kernel<Type, RowShares<32, 1>, kTable>);
}

}  // namespace

cudaError_t preprocess(const BackwardParameters& p, int bucket, PreprocessPart part, bool beside_predecessor,
                       cudaStream_t stream) {
  const bool early = beside_predecessor && p.early_launches;
  return p.data_type == DataType::bf16 ? launch_preprocess<DataType::bf16>(p, bucket, part, early, stream)
                                       : launch_preprocess<DataType::fp16>(p, bucket, part, early, stream);
}

cudaError_t side::load_preprocess() {
  constexpr DataType bf16 = DataType::bf16;
  constexpr DataType fp16 = DataType::fp16;
  for (const auto load : {load_preprocess_kernels<bf16, false>, load_preprocess_kernels<bf16, true>,
                          load_preprocess_kernels<fp16, false>, load_preprocess_kernels<fp16, true>})
    if (const cudaError_t error = load(); error != cudaSuccess) return error;
  return cudaSuccess;
}

}  // namespace flashdma_bwd
