// The kernels around the main one: each reads its input once, with 16 bytes a thread, and is bound by memory bandwidth.
#include <algorithm>

#include "common/fragments.hpp"
#include "common/launch_kernel.hpp"
#include "common/launch_order.cuh"
#include "common/load_kernels.hpp"
#include "common/numeric.cuh"
#include "common/side_kernels.hpp"
#include "common/transpose_quad.cuh"
#include "common/visibility.hpp"
#include "common/work_table.cuh"

namespace flashdma_bwd {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ std::int64_t row_offset(const TensorView& tensor, bool packed, int batch, std::int64_t row,
                                                   int head) {
  return (packed ? 0 : batch * tensor.stride_batch) + row * tensor.stride_row + head * tensor.stride_head;
}

/// Eight 16-bit elements of a row.
__device__ __forceinline__ uint4 load_eight(const TensorView& tensor, std::int64_t offset) {
  return __ldg(reinterpret_cast<const uint4*>(static_cast<const std::uint16_t*>(tensor.data) + offset));
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

/// A block of one (batch, head); the grid holds `blocks` for each.
struct HeadBlock {
  int batch;
  int head;
  int index;
};
__device__ __forceinline__ HeadBlock head_block(const BackwardParameters& p, int block, int blocks) {
  const int batch_head = block / blocks;
  return {batch_head / p.heads, batch_head % p.heads, block % blocks};
}

/// Rows of a block of the preprocess kernel.
constexpr int kRowsPerThread = 4;
template <int Lanes>
FLASHDMA_HOST_DEVICE constexpr int preprocess_rows() {
  return kThreads / Lanes * kRowsPerThread;
}
template <int Lanes>
FLASHDMA_HOST_DEVICE int preprocess_blocks(const BackwardParameters& p) {
  return static_cast<int>((padded_rows(p.seqlen_q) + preprocess_rows<Lanes>() - 1) / preprocess_rows<Lanes>());
}
FLASHDMA_HOST_DEVICE int convert_blocks(const BackwardParameters& p, int bucket) {
  constexpr int kWarps = kThreads / 32;
  return ((p.seqlen_q + 15) / 16 * (bucket / 32) + kWarps - 1) / kWarps;
}

/// Lanes lanes a row, eight elements a lane. The main kernel's tickets begin anew. `kTable`: the first block writes the
/// work table of the main kernel, which takes longer than a block of rows, and less than launching a kernel for it.
template <DataType Type, int Lanes, bool kTable>
__global__ void __launch_bounds__(kThreads)
    preprocess_kernel(const __grid_constant__ BackwardParameters p, int bucket) {
  let_successor_launch();
  // For the lists that the table is made of, and so that this kernel is not done before theirs, for which the main one
  // does not wait.
  if (blockIdx.x == 0) wait_for_predecessor();
  if (p.ticket != nullptr && blockIdx.x == 0 && threadIdx.x == 0) *p.ticket = 0;
  if constexpr (kTable) {
    static_assert(kThreads == kTableThreads);
    if (blockIdx.x == 0) {
      WorkTableWriter(p).run();
      return;
    }
  }
  if (preprocess_blocks<Lanes>(p) == 0) return;
  const HeadBlock block = head_block(p, static_cast<int>(blockIdx.x) - (kTable ? 1 : 0), preprocess_blocks<Lanes>(p));
  const int batch = block.batch;
  const int head = block.head;
  const SequenceRows sequence = sequence_of(p, batch);
  const int part = static_cast<int>(threadIdx.x) % Lanes;
  const int first_row = block.index * preprocess_rows<Lanes>() + static_cast<int>(threadIdx.x) / Lanes;
  const bool packed = p.cu_seqlens_q != nullptr;
  const auto padded = static_cast<int>(padded_rows(sequence.length_q));

  // All loads are started before the first is used.
  uint4 out[kRowsPerThread] = {};
  uint4 d_out[kRowsPerThread] = {};
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    const int row = first_row + i * (kThreads / Lanes);
    if (row < sequence.length_q && part * 8 < p.head_dim) {
      out[i] = load_eight(p.out, row_offset(p.out, packed, batch, sequence.row_q + row, head) + part * 8);
      d_out[i] = load_eight(p.d_out, row_offset(p.d_out, packed, batch, sequence.row_q + row, head) + part * 8);
    }
  }
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    const int row = first_row + i * (kThreads / Lanes);
    if (row >= padded) return;
    const std::int64_t scratch_row = head * p.scratch_rows + sequence.scratch_row + row;
    // Sixteen rows of dQ's scratch are as long as sixteen rows of dQ: clearing row by row clears all of it.
    auto* scratch = reinterpret_cast<float4*>(p.d_q_scratch + scratch_row * bucket);
    for (int c = part; c < bucket / 4; c += Lanes) scratch[c] = {0.0f, 0.0f, 0.0f, 0.0f};

    float sum = dot_eight<Type>(out[i], d_out[i]);
#pragma unroll
    for (int mask = Lanes / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    if (part != 0) continue;
    float lse = INFINITY;
    if (row < sequence.length_q)
      lse = p.lse[(packed ? 0 : batch * p.lse_stride_batch) + head * p.lse_stride_head +
                  (sequence.row_q + row) * p.lse_stride_row];
    // An empty row has no probability: exp2(s - inf) = 0, whatever O holds.
    // So has one whose scores are all near the lowest float.
    const float scaled = p.lse_base_two ? lse : lse * kLog2E;
    const bool empty = isinf(scaled);
    p.lse_log2[scratch_row] = empty ? INFINITY : scaled;
    p.row_dot[scratch_row] = empty ? 0.0f : sum;
  }
}

template <DataType Type, int Lanes>
cudaError_t launch_preprocess(const BackwardParameters& p, int bucket, bool early, cudaStream_t stream) {
  const unsigned blocks = static_cast<unsigned>(preprocess_blocks<Lanes>(p)) * static_cast<unsigned>(p.batch * p.heads);
  if (p.work != nullptr)
    return launch_kernel(preprocess_kernel<Type, Lanes, true>, Grid(blocks + 1).launched_early(early), kThreads, 0,
                         stream, p, bucket);
  if (blocks == 0 && p.ticket == nullptr) return cudaSuccess;
  return launch_kernel(preprocess_kernel<Type, Lanes, false>, Grid(std::max(blocks, 1u)).launched_early(early),
                       kThreads, 0, stream, p, bucket);
}

template <DataType Type>
cudaError_t launch_preprocess(const BackwardParameters& p, int bucket, bool early, cudaStream_t stream) {
  if (p.head_dim <= 32) return launch_preprocess<Type, 4>(p, bucket, early, stream);
  if (p.head_dim <= 64) return launch_preprocess<Type, 8>(p, bucket, early, stream);
  if (p.head_dim <= 128) return launch_preprocess<Type, 16>(p, bucket, early, stream);
  return launch_preprocess<Type, 32>(p, bucket, early, stream);
}

template <DataType Type, bool kTable>
cudaError_t load_preprocess_kernels() {
  return load_kernels(preprocess_kernel<Type, 4, kTable>, preprocess_kernel<Type, 8, kTable>,
                      preprocess_kernel<Type, 16, kTable>, preprocess_kernel<Type, 32, kTable>);
}

/// A warp converts four neighbouring atoms: 16 rows of 32 columns.
template <DataType Type>
__global__ void __launch_bounds__(kThreads)
    convert_d_query_kernel(const __grid_constant__ BackwardParameters p, int bucket) {
  wait_for_predecessor_of_all();
  const HeadBlock block = head_block(p, static_cast<int>(blockIdx.x), convert_blocks(p, bucket));
  const int batch = block.batch;
  const int head = block.head;
  const SequenceRows sequence = sequence_of(p, batch);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int groups = bucket / 32;
  const int index = block.index * (kThreads / 32) + static_cast<int>(threadIdx.x) / 32;
  const int first_row = index / groups * 16;
  const int group = index % groups;
  if (first_row >= sequence.length_q) return;

  const float* atoms =
      p.d_q_scratch +
      ((head * p.scratch_rows + sequence.scratch_row + first_row) / 16 * (bucket / 8) + group * 4) * kAtomFloats;
  std::uint32_t words[2][4];
#pragma unroll
  for (int atom = 0; atom < 4; ++atom) {
    float v[4];
    if (p.d_q_vectorised) {
      const float4 four = *reinterpret_cast<const float4*>(atoms + atom * kAtomFloats + atom_offset(true, lane, 0));
      v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e) v[e] = atoms[atom * kAtomFloats + atom_offset(false, lane, e)];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      words[half][atom] = pack<Type>(v[half * 2] * p.scale, v[half * 2 + 1] * p.scale);
  }
  const int column = group * 32 + lane % 4 * 8;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    transpose_quad(words[half], lane);
    const int row = first_row + half * 8 + lane / 4;
    if (row >= sequence.length_q || column >= p.head_dim) continue;
    auto* out = static_cast<std::uint16_t*>(p.d_q.data) +
                row_offset(p.d_q, p.cu_seqlens_q != nullptr, batch, sequence.row_q + row, head) + column;
    *reinterpret_cast<uint4*>(out) = {words[half][0], words[half][1], words[half][2], words[half][3]};
  }
}

/// A key of any sequence.
struct KeyRow {
  int batch;
  std::int64_t row;  ///< of the tensor
  bool inside;
};
/// `scratch_row`: of the key scratch.
__device__ __forceinline__ KeyRow key_row(const BackwardParameters& p, std::int64_t scratch_row) {
  const bool packed = p.cu_seqlens_k != nullptr;
  KeyRow key;
  key.inside = scratch_row < (packed ? p.cu_seqlens_k[p.batch] : p.key_rows);
  key.batch = packed ? 0 : static_cast<int>(scratch_row / p.seqlen_k);
  key.row = packed ? scratch_row : scratch_row % p.seqlen_k;
  return key;
}

/// Whether an item writes the key: those of a reordered mask have active keys only.
__device__ __forceinline__ bool is_written(const BackwardParameters& p, const KeyRow& key, int head_item) {
  if (p.key_ends == nullptr) return true;
  const int mask = key.batch * p.compact_batch_stride + head_item * p.heads_per_item / p.mask_heads_per_head;
  return p.key_orders[mask].natural != 0 || p.key_ends[std::int64_t{mask} * p.seqlen_k + key.row] != 0;
}

/// A thread adds eight columns of a row.
template <DataType Type>
__device__ __forceinline__ void reduce_d_key_value(const BackwardParameters& p, bool value) {
  const int chunks = p.head_dim / 8;
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int column = static_cast<int>(index % chunks) * 8;
  const auto head = static_cast<int>(index / chunks % p.heads_kv);
  const std::int64_t scratch_row = index / chunks / p.heads_kv;
  const KeyRow key = key_row(p, scratch_row);
  if (!key.inside) return;
  const int items = p.heads / p.heads_kv / p.heads_per_item;
  const float* source = (value ? p.d_v_partial : p.d_k_partial) +
                        (std::int64_t{head} * items * p.key_rows + scratch_row) * p.head_dim + column;
  float sum[8] = {};
  for (int i = 0; i < items; ++i, source += p.key_rows * p.head_dim) {
    if (!is_written(p, key, head * items + i)) continue;
    const float4 low = __ldcg(reinterpret_cast<const float4*>(source));
    const float4 high = __ldcg(reinterpret_cast<const float4*>(source) + 1);
    sum[0] += low.x, sum[1] += low.y, sum[2] += low.z, sum[3] += low.w;
    sum[4] += high.x, sum[5] += high.y, sum[6] += high.z, sum[7] += high.w;
  }
  const TensorView& tensor = value ? p.d_v : p.d_k;
  auto* out = static_cast<std::uint16_t*>(tensor.data) +
              row_offset(tensor, p.cu_seqlens_k != nullptr, key.batch, key.row, head) + column;
  *reinterpret_cast<uint4*>(out) = {pack<Type>(sum[0], sum[1]), pack<Type>(sum[2], sum[3]), pack<Type>(sum[4], sum[5]),
                                    pack<Type>(sum[6], sum[7])};
}

template <DataType Type>
__global__ void __launch_bounds__(kThreads) reduce_d_key_value_kernel(const __grid_constant__ BackwardParameters p) {
  let_successor_launch();
  reduce_d_key_value<Type>(p, blockIdx.y != 0);
  wait_for_predecessor();
}

/// Keys of a head that a warp of the clearing kernel looks at, one a lane.
constexpr int kKeysOfWarp = 32;

/// The warp finds the rows that nobody writes, then clears one after the other, of dK and dV together.
__global__ void __launch_bounds__(kThreads) clear_d_key_value_kernel(const __grid_constant__ BackwardParameters p) {
  let_successor_launch();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t warp = std::int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  const auto head = static_cast<int>(warp % p.heads_kv);
  const KeyRow own = key_row(p, warp / p.heads_kv * kKeysOfWarp + lane);
  const int chunks = p.head_dim / 8;
  unsigned rows = __ballot_sync(0xffffffffu, own.inside && (p.key_ends == nullptr || !is_written(p, own, head)));
  for (; rows != 0; rows &= rows - 1) {
    const int at = __ffs(static_cast<int>(rows)) - 1;
    const int batch = __shfl_sync(0xffffffffu, own.batch, at);
    const std::int64_t row = __shfl_sync(0xffffffffu, own.row, at);
    for (int chunk = lane; chunk < 2 * chunks; chunk += 32) {
      const bool value = chunk >= chunks;
      const TensorView& tensor = value ? p.d_v : p.d_k;
      auto* out = static_cast<std::uint16_t*>(tensor.data) +
                  row_offset(tensor, p.cu_seqlens_k != nullptr, batch, row, head) +
                  (value ? chunk - chunks : chunk) * 8;
      *reinterpret_cast<uint4*>(out) = {0, 0, 0, 0};
    }
  }
  wait_for_predecessor();
}

/// A few CTAs walk the tail, which is empty where the caller gives the packed tensors their exact size.
constexpr int kTailBlocks = 64;

__global__ void __launch_bounds__(kThreads) clear_packed_tails_kernel(const __grid_constant__ BackwardParameters p,
                                                                      std::int64_t total_q, std::int64_t total_k) {
  const bool query = blockIdx.y == 0;
  const TensorView& tensor = query ? p.d_q : blockIdx.y == 1 ? p.d_k : p.d_v;
  const std::int64_t first = query ? p.cu_seqlens_q[p.batch] : p.cu_seqlens_k[p.batch];
  const std::int64_t total = query ? total_q : total_k;
  const int heads = query ? p.heads : p.heads_kv;
  const int chunks = p.head_dim / 8;
  const std::int64_t step = std::int64_t{kTailBlocks} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < (total - first) * heads * chunks;
       i += step) {
    const std::int64_t row = first + i / chunks / heads;
    auto* out = static_cast<std::uint16_t*>(tensor.data) +
                row_offset(tensor, true, 0, row, static_cast<int>(i / chunks % heads)) + i % chunks * 8;
    *reinterpret_cast<uint4*>(out) = {0, 0, 0, 0};
  }
}

/// Position of an element of a BiasGradientOutput.
struct PairIndex {
  std::int64_t batch, head, row, column;
};
/// With `Integer`, which holds the index, because 64-bit divisions take longer than all that follows them.
template <class Integer>
__device__ __forceinline__ PairIndex pair_index(const PairShape& shape, std::int64_t of) {
  const auto columns = static_cast<Integer>(shape.columns);
  const auto rows = static_cast<Integer>(shape.rows);
  const auto heads = static_cast<Integer>(shape.heads);
  auto index = static_cast<Integer>(of);
  PairIndex i;
  i.column = index % columns;
  index /= columns;
  i.row = index % rows;
  index /= rows;
  i.head = index % heads;
  i.batch = index / heads;
  return i;
}
__device__ __forceinline__ PairIndex pair_index(const PairShape& shape, std::int64_t index) {
  return shape.size() <= 0xffffffff ? pair_index<std::uint32_t>(shape, index) : pair_index<std::int64_t>(shape, index);
}

__device__ __forceinline__ void store_pair(const BiasGradientOutput& output, const PairIndex& i, float value,
                                           DataType type) {
  const std::int64_t offset = i.batch * output.stride_batch + i.head * output.stride_head + i.row * output.stride_row +
                              i.column * output.stride_column;
  if (output.is_float)
    static_cast<float*>(output.data)[offset] = value;
  else
    static_cast<std::uint16_t*>(output.data)[offset] =
        type == DataType::bf16 ? from_float<DataType::bf16>(value) : from_float<DataType::fp16>(value);
}

/// Elements of dBias of a block: neighbours, a lane each. The block's warps share out what is added for each.
constexpr int kReducedElements = 32;

/// How many elements of a source [batch][heads][rows][columns], and which, are added to one of the output's. Rows and
/// columns are reduced whole or not at all, so that those of a head that are added lie at equal distances.
struct ReducedPairs {
  PairShape from;                ///< the source
  PairShape terms;               ///< added along each dimension
  PairShape stride;              ///< of the source, in elements
  std::int64_t pair_stride = 0;  ///< between those of a head
};
ReducedPairs reduced_pairs(const PairShape& from, const PairShape& to) {
  ReducedPairs r;
  r.from = from;
  r.terms = {from.batch / to.batch, from.heads / to.heads, from.rows / to.rows, from.columns / to.columns};
  r.stride = {from.heads * from.rows * from.columns, from.rows * from.columns, from.columns, 1};
  r.pair_stride = r.terms.columns == from.columns ? 1 : from.columns;
  return r;
}

__device__ __forceinline__ void reduce_bias_gradient(const float* source, const ReducedPairs& r,
                                                     const BiasGradientOutput& output, DataType type) {
  constexpr int kWarps = kThreads / 32;
  constexpr int kInFlight = 8;  ///< loads of a thread
  __shared__ float sums[kWarps][kReducedElements];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t index = std::int64_t{blockIdx.x} * kReducedElements + lane;
  const bool inside = index < output.shape.size();
  const PairIndex to = pair_index(output.shape, inside ? index : 0);
  const std::int64_t pairs = r.terms.rows * r.terms.columns;
  const std::int64_t terms = r.terms.heads * pairs;
  const float* first = source + to.batch * r.terms.batch * r.stride.batch + to.head * r.terms.heads * r.stride.heads +
                       to.row * r.terms.rows * r.stride.rows + to.column * r.terms.columns;
  float sum = 0.0f;
  for (std::int64_t b = 0; b < r.terms.batch; ++b, first += r.stride.batch) {
    std::int64_t head = 0;
    std::int64_t pair = warp;
    for (; pair >= pairs; pair -= pairs) ++head;
    for (std::int64_t term = warp; term < terms; term += kInFlight * kWarps) {
      float values[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const bool there = inside && term + i * kWarps < terms;
        values[i] = there ? __ldcg(first + head * r.stride.heads + pair * r.pair_stride) : 0.0f;
        for (pair += kWarps; pair >= pairs; pair -= pairs) ++head;
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) sum += values[i];
    }
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || !inside) return;
  for (int other = 1; other < kWarps; ++other) sum += sums[other][lane];
  store_pair(output, to, sum, type);
}

__global__ void __launch_bounds__(kThreads)
    reduce_bias_gradient_kernel(const float* source, const __grid_constant__ ReducedPairs pairs,
                                const __grid_constant__ BiasGradientOutput output, DataType type) {
  let_successor_launch();
  reduce_bias_gradient(source, pairs, output, type);
  wait_for_predecessor();
}

/// A warp clears this much of a row of dBias, 16 bytes a lane at a time.
constexpr int kClearedBytes = 4096;

__host__ __device__ std::int64_t bytes_of_row(const BiasGradientOutput& output) {
  return output.shape.columns * (output.is_float ? 4 : 2);
}
/// One more than it takes, for rows that begin between two multiples of 16 bytes.
__host__ __device__ std::int64_t parts_of_row(const BiasGradientOutput& output) {
  return (bytes_of_row(output) + 15 + kClearedBytes - 1) / kClearedBytes;
}

__global__ void __launch_bounds__(kThreads) clear_bias_gradient_kernel(BiasGradientOutput output) {
  const std::int64_t parts = parts_of_row(output);
  const std::int64_t index = std::int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  std::int64_t row = index / parts;
  if (row >= output.shape.batch * output.shape.heads * output.shape.rows) return;
  const std::int64_t r = row % output.shape.rows;
  row /= output.shape.rows;
  const std::int64_t offset = row / output.shape.heads * output.stride_batch +
                              row % output.shape.heads * output.stride_head + r * output.stride_row;
  auto* begin = static_cast<unsigned char*>(output.data) + offset * (output.is_float ? 4 : 2);
  unsigned char* end = begin + bytes_of_row(output);
  unsigned char* at =
      begin - reinterpret_cast<std::uintptr_t>(begin) % 16 + index % parts * kClearedBytes + threadIdx.x % 32 * 16;
#pragma unroll
  for (int i = 0; i < kClearedBytes / (32 * 16); ++i, at += 32 * 16) {
    if (at >= begin && at + 16 <= end)
      __stcs(reinterpret_cast<uint4*>(at), uint4{0, 0, 0, 0});
    else
      for (int byte = 0; byte < 16; byte += 2)
        if (at + byte >= begin && at + byte < end) *reinterpret_cast<std::uint16_t*>(at + byte) = 0;
  }
}

unsigned blocks_for(std::int64_t elements) {
  return static_cast<unsigned>((elements + kThreads - 1) / kThreads);
}

/// Whether kernels behind the conversion of dQ may be launched early: without queries there is no conversion, which has
/// waited for the main kernel.
bool early_behind_conversion(const BackwardParameters& p) {
  return p.early_launches && p.seqlen_q > 0;
}

}  // namespace

cudaError_t preprocess(const BackwardParameters& p, int bucket, bool after_lists, cudaStream_t stream) {
  const bool early = after_lists && p.early_launches;
  return p.data_type == DataType::bf16 ? launch_preprocess<DataType::bf16>(p, bucket, early, stream)
                                       : launch_preprocess<DataType::fp16>(p, bucket, early, stream);
}

cudaError_t convert_d_query(const BackwardParameters& p, int bucket, cudaStream_t stream) {
  const unsigned blocks = static_cast<unsigned>(convert_blocks(p, bucket)) * static_cast<unsigned>(p.batch * p.heads);
  if (blocks == 0) return cudaSuccess;
  const Grid grid = Grid(blocks).launched_early(p.early_launches);
  if (p.data_type == DataType::bf16)
    return launch_kernel(convert_d_query_kernel<DataType::bf16>, grid, kThreads, 0, stream, p, bucket);
  return launch_kernel(convert_d_query_kernel<DataType::fp16>, grid, kThreads, 0, stream, p, bucket);
}

cudaError_t reduce_d_key_value(const BackwardParameters& p, cudaStream_t stream) {
  const unsigned blocks = blocks_for(p.key_rows * p.heads_kv * (p.head_dim / 8));
  if (blocks == 0) return cudaSuccess;
  const Grid grid = Grid(dim3(blocks, 2)).launched_early(early_behind_conversion(p));
  if (p.data_type == DataType::bf16)
    return launch_kernel(reduce_d_key_value_kernel<DataType::bf16>, grid, kThreads, 0, stream, p);
  return launch_kernel(reduce_d_key_value_kernel<DataType::fp16>, grid, kThreads, 0, stream, p);
}

cudaError_t clear_d_key_value(const BackwardParameters& p, cudaStream_t stream) {
  const unsigned blocks = blocks_for((p.key_rows + kKeysOfWarp - 1) / kKeysOfWarp * 32 * p.heads_kv);
  if (blocks == 0) return cudaSuccess;
  return launch_kernel(clear_d_key_value_kernel, Grid(blocks).launched_early(p.early_launches), kThreads, 0, stream, p);
}

cudaError_t clear_packed_tails(const BackwardParameters& p, std::int64_t total_q, std::int64_t total_k,
                               cudaStream_t stream) {
  return launch_kernel(clear_packed_tails_kernel, dim3(kTailBlocks, 3), kThreads, 0, stream, p, total_q, total_k);
}

cudaError_t reduce_bias_gradient(const float* source, const PairShape& source_shape, const BiasGradientOutput& output,
                                 const BackwardParameters& p, cudaStream_t stream) {
  if (output.shape.size() == 0) return cudaSuccess;
  return launch_kernel(reduce_bias_gradient_kernel,
                       Grid(static_cast<unsigned>((output.shape.size() + kReducedElements - 1) / kReducedElements))
                           .launched_early(early_behind_conversion(p)),
                       kThreads, 0, stream, source, reduced_pairs(source_shape, output.shape), output, p.data_type);
}

cudaError_t clear_bias_gradient(const BiasGradientOutput& output, cudaStream_t stream) {
  if (output.shape.size() == 0) return cudaSuccess;
  const std::int64_t rows = output.shape.batch * output.shape.heads * output.shape.rows;
  return launch_kernel(clear_bias_gradient_kernel, blocks_for(rows * parts_of_row(output) * 32), kThreads, 0, stream,
                       output);
}

cudaError_t load_side_kernels() {
  constexpr DataType bf16 = DataType::bf16;
  constexpr DataType fp16 = DataType::fp16;
  for (const auto load : {load_preprocess_kernels<bf16, false>, load_preprocess_kernels<bf16, true>,
                          load_preprocess_kernels<fp16, false>, load_preprocess_kernels<fp16, true>})
    if (const cudaError_t error = load(); error != cudaSuccess) return error;
  return load_kernels(convert_d_query_kernel<bf16>, convert_d_query_kernel<fp16>, reduce_d_key_value_kernel<bf16>,
                      reduce_d_key_value_kernel<fp16>, clear_d_key_value_kernel, clear_packed_tails_kernel,
                      reduce_bias_gradient_kernel, clear_bias_gradient_kernel);
}

}  // namespace flashdma_bwd
