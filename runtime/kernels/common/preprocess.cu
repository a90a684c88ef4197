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

template <int Lanes>
FLASHDMA_HOST_DEVICE constexpr int preprocess_rows() {
  return kThreads / Lanes * kRowsPerThread;
}
template <int Lanes>
FLASHDMA_HOST_DEVICE int preprocess_blocks(const BackwardParameters& p) {
  return static_cast<int>((padded_rows(p.seqlen_q) + preprocess_rows<Lanes>() - 1) / preprocess_rows<Lanes>());
}

/// Blocks beside each other take a head's next rows; where a row has 64 bytes only, the same rows of the next head,
/// which lie behind this one's in memory as a rule: so few bytes of a DRAM page at a time are read slowly.
template <int Lanes>
__device__ __forceinline__ HeadBlock rows_of_block(const BackwardParameters& p, int index) {
  const int blocks = preprocess_blocks<Lanes>(p);
  if constexpr (Lanes >= 8) return head_block(p, index, blocks);
  const int batch_block = index / p.heads;
  return {batch_block / blocks, index % p.heads, batch_block % blocks};
}

/// `value` as the sum of three bf16, to 24 bits; an infinite value's first is infinite.
__device__ __forceinline__ void split_into_terms(float value, std::uint16_t (&terms)[4]) {
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    terms[i] = from_float<DataType::bf16>(value);
    const float rest = value - to_float<DataType::bf16>(terms[i]);
    value = isfinite(rest) ? rest : 0.0f;
  }
}

/// The rows of a block, Lanes lanes a row, eight elements a lane.
template <DataType Type, int Lanes>
__device__ __forceinline__ void preprocess_block(const BackwardParameters& p, int bucket, int index) {
  const HeadBlock block = rows_of_block<Lanes>(p, index);
  const int batch = block.batch;
  const int head = block.head;
  const SequenceRows sequence = sequence_of(p, batch);
  const int part = static_cast<int>(threadIdx.x) % Lanes;
  constexpr int kRowStep = kThreads / Lanes;  // from one of the thread's rows to its next
  const int first_row = block.index * preprocess_rows<Lanes>() + static_cast<int>(threadIdx.x) / Lanes;
  const bool packed = p.cu_seqlens_q != nullptr;
  const auto padded = static_cast<int>(padded_rows(sequence.length_q));
  const std::int64_t scratch_row = head * p.scratch_rows + sequence.scratch_row;
  // Before the loads, whose registers it would need (NOTES.md of hopper/). Sixteen rows of dQ's scratch are as long as
  // sixteen rows of dQ, so that the block's rows are one range, whatever the order within it.
  if (p.d_q_scratch != nullptr) {
    constexpr int kRows = preprocess_rows<Lanes>();
    constexpr int kMostQuads = kRows * 2 * Lanes;  // of 8 Lanes columns, a bucket's most
    const int block_row = block.index * kRows;
    auto* scratch = reinterpret_cast<float4*>(p.d_q_scratch + (scratch_row + block_row) * bucket);
    const int quads = min(kRows, padded - block_row) * (bucket / 4);
#pragma unroll
    for (int i = 0; i < kMostQuads / kThreads; ++i) {
      const int quad = static_cast<int>(threadIdx.x) + i * kThreads;
      if (quad < quads) scratch[quad] = {0.0f, 0.0f, 0.0f, 0.0f};
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
  const float sum = sum_of_own_row<Lanes>(dots, part);
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

/// The main kernel's tickets begin anew. `kTable`: the first block writes the work table of the main kernel, which
/// takes longer than a block of rows.
template <DataType Type, int Lanes, bool kTable>
__global__ void __launch_bounds__(kThreads, kBlocks)
    preprocess_kernel(const __grid_constant__ BackwardParameters p, int bucket) {
  let_successor_launch();
  if (p.ticket != nullptr && blockIdx.x == 0 && threadIdx.x == 0) *p.ticket = 0;
  if constexpr (kTable) {
    static_assert(kThreads == kTableThreads);
    if (blockIdx.x == 0) {
      WorkTableWriter(p).clear_slots();
      wait_for_predecessor();  // for the lists that the table is made of
      WorkTableWriter(p).run();
      return;
    }
  }
  if (preprocess_blocks<Lanes>(p) != 0)
    preprocess_block<Type, Lanes>(p, bucket, static_cast<int>(blockIdx.x) - (kTable ? 1 : 0));
  // So that this kernel is not done before its predecessor, for which the next one does not wait.
  if (!kTable && blockIdx.x == 0) wait_for_predecessor();
}

template <DataType Type, int Lanes>
cudaError_t launch_preprocess(const BackwardParameters& p, int bucket, PreprocessPart part, bool early,
                              cudaStream_t stream) {
  const unsigned blocks = part == PreprocessPart::table ? 0
                                                        : static_cast<unsigned>(preprocess_blocks<Lanes>(p)) *
                                                              static_cast<unsigned>(p.batch * p.heads);
  if (p.work != nullptr && part != PreprocessPart::rows)
    return launch_kernel(preprocess_kernel<Type, Lanes, true>, Grid(blocks + 1).launched_early(early), kThreads, 0,
                         stream, p, bucket);
  if (part == PreprocessPart::table || (blocks == 0 && p.ticket == nullptr)) return cudaSuccess;
  return launch_kernel(preprocess_kernel<Type, Lanes, false>, Grid(std::max(blocks, 1u)).launched_early(early),
                       kThreads, 0, stream, p, bucket);
}

template <DataType Type>
cudaError_t launch_preprocess(const BackwardParameters& p, int bucket, PreprocessPart part, bool early,
                              cudaStream_t stream) {
  if (bucket <= 32) return launch_preprocess<Type, 4>(p, bucket, part, early, stream);
  if (bucket <= 64) return launch_preprocess<Type, 8>(p, bucket, part, early, stream);
  if (bucket <= 128) return launch_preprocess<Type, 16>(p, bucket, part, early, stream);
  return launch_preprocess<Type, 32>(p, bucket, part, early, stream);
}

template <DataType Type, bool kTable>
cudaError_t load_preprocess_kernels() {
  return load_kernels(preprocess_kernel<Type, 4, kTable>, preprocess_kernel<Type, 8, kTable>,
                      preprocess_kernel<Type, 16, kTable>, preprocess_kernel<Type, 32, kTable>);
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
