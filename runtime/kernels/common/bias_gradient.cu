// dBias as the caller wants it: sums of float32 scratch, and zeros where a main kernel writes visited tiles only.
#include "common/launch_kernel.hpp"
#include "common/launch_order.cuh"
#include "common/load_kernels.hpp"
#include "common/numeric.cuh"
#include "common/side_kernels.cuh"

namespace flashdma_bwd {
namespace {

using namespace side;

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
  PairShape terms;               ///< added along each dimension
  PairShape stride;              ///< of the source, in elements
  std::int64_t pair_stride = 0;  ///< between those of a head
};
ReducedPairs reduced_pairs(const PairShape& from, const PairShape& to) {
  ReducedPairs r;
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
                                const __grid_constant__ BiasGradientOutput output, DataType type, bool first) {
  begin_behind_main(first);
  reduce_bias_gradient(source, pairs, output, type);
  end_behind_main(first);
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

}  // namespace

cudaError_t reduce_bias_gradient(const float* source, const PairShape& source_shape, const BiasGradientOutput& output,
                                 const BackwardParameters& p, bool first, cudaStream_t stream) {
  if (output.shape.size() == 0) return cudaSuccess;
  return launch_kernel(reduce_bias_gradient_kernel,
                       Grid(static_cast<unsigned>((output.shape.size() + kReducedElements - 1) / kReducedElements))
                           .launched_early(p.early_launches),
                       kThreads, 0, stream, source, reduced_pairs(source_shape, output.shape), output, p.data_type,
                       first);
}

cudaError_t clear_bias_gradient(const BiasGradientOutput& output, cudaStream_t stream) {
  if (output.shape.size() == 0) return cudaSuccess;
  const std::int64_t rows = output.shape.batch * output.shape.heads * output.shape.rows;
  return launch_kernel(clear_bias_gradient_kernel, blocks_for(rows * parts_of_row(output) * 32), kThreads, 0, stream,
                       output);
}

cudaError_t side::load_bias_gradient() {
  return load_kernels(reduce_bias_gradient_kernel, clear_bias_gradient_kernel);
}

}  // namespace flashdma_bwd
