// dBias as the caller wants it: sums of float32 scratch, and zeros where a main kernel writes visited tiles only.
#include <algorithm>

#include "common/launch_kernel.hpp"
#include "common/launch_order.cuh"
#include "common/load_kernels.hpp"
#include "common/numeric.cuh"
#include "common/side_kernels.cuh"

namespace flashdma_bwd {
namespace {

using namespace side;

/// Of a block of a reduction.
constexpr int kMostThreads = 1024;

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

/// Loads that a thread has in flight.
constexpr int kInFlight = 8;

/// How the elements of a source [batch][heads][rows][columns] that an element of the output is the sum of are read.
enum class Reduction {
  /// A lane has kInFlight columns of the output, and adds one row to them at a time: for few rows.
  few_rows,
  /// A lane has one column, and reads kInFlight rows at once.
  many_rows,
  /// The columns are added, too: a warp has one element, a lane every 32nd column.
  columns
};
__host__ __device__ constexpr int columns_of_lane(Reduction reduction) {
  return reduction == Reduction::many_rows ? 1 : kInFlight;
}

/// What is added to an element or, where columns are kept, to a warp's columns: terms, each a row of the source or,
/// where columns are added, a part of one. Warps share them out. Each dimension is reduced whole or, the heads apart,
/// not at all.
struct ReducedPairs {
  PairShape units;           ///< the output, in elements or a warp's columns of a row
  PairShape terms;           ///< along each dimension; columns: parts of a row
  PairShape step;            ///< from a warp's term to its next: the number of warps, written in the base of the terms
  PairShape stride;          ///< of the source, in elements
  std::int64_t columns = 0;  ///< of the source
  int units_of_block = 1;
  int warps = 1;  ///< of a unit
};

/// The number `of` as digits in the base of `shape`, of which the first has no end.
__host__ __device__ PairShape digits(std::int64_t of, const PairShape& shape) {
  PairShape d;
  d.columns = of % shape.columns;
  of /= shape.columns;
  d.rows = of % shape.rows;
  of /= shape.rows;
  d.heads = of % shape.heads;
  d.batch = of / shape.heads;
  return d;
}

Reduction reduction_of(const PairShape& from, const PairShape& to) {
  constexpr int kFewRows = 4;
  if (to.columns != from.columns) return Reduction::columns;
  return from.size() / to.size() <= kFewRows ? Reduction::few_rows : Reduction::many_rows;
}

ReducedPairs reduced_pairs(Reduction reduction, const PairShape& from, const PairShape& to) {
  const std::int64_t warp_columns = 32 * columns_of_lane(reduction);
  const std::int64_t parts = (from.columns + warp_columns - 1) / warp_columns;
  const bool adds_columns = reduction == Reduction::columns;
  ReducedPairs r;
  r.units = {to.batch, to.heads, to.rows, adds_columns ? 1 : parts};
  r.terms = {from.batch / to.batch, from.heads / to.heads, from.rows / to.rows, adds_columns ? parts : 1};
  r.stride = {from.heads * from.rows * from.columns, from.rows * from.columns, from.columns, warp_columns};
  r.columns = from.columns;
  // A warp is to have a few terms before its sums are added to the others'; few rows are one warp's.
  constexpr int kTermsOfWarp = 8;
  constexpr int kMostWarps = kMostThreads / 32;
  if (reduction != Reduction::few_rows)
    while (r.warps < kMostWarps && r.warps * kTermsOfWarp < r.terms.size()) r.warps *= 2;
  r.units_of_block = std::max(1, kThreads / 32 / r.warps);
  r.step = digits(r.warps, r.terms);
  return r;
}

/// The term of a warp, and its next.
struct Term {
  PairShape at;
  __device__ __forceinline__ std::int64_t offset(const PairShape& stride) const {
    return at.batch * stride.batch + at.heads * stride.heads + at.rows * stride.rows + at.columns * stride.columns;
  }
  __device__ __forceinline__ void advance(const ReducedPairs& r) {
    at.columns += r.step.columns;
    at.rows += r.step.rows;
    at.heads += r.step.heads;
    at.batch += r.step.batch;
    if (at.columns >= r.terms.columns) at.columns -= r.terms.columns, ++at.rows;
    if (at.rows >= r.terms.rows) at.rows -= r.terms.rows, ++at.heads;
    if (at.heads >= r.terms.heads) at.heads -= r.terms.heads, ++at.batch;
  }
};

template <Reduction kReduction>
__device__ __forceinline__ void reduce_bias_gradient(const float* source, const ReducedPairs& r,
                                                     const BiasGradientOutput& output, DataType type) {
  constexpr bool kAddsColumns = kReduction == Reduction::columns;
  constexpr int kColumns = columns_of_lane(kReduction);
  constexpr int kTerms = kInFlight / kColumns;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int block_warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = kReduction == Reduction::few_rows ? 1 : r.warps;
  const int warp = block_warp % warps;
  const std::int64_t unit = std::int64_t{blockIdx.x} * r.units_of_block + block_warp / warps;
  const bool inside = unit < r.units.size();
  PairIndex to = pair_index(r.units, inside ? unit : 0);
  to.column = to.column * (32 * kColumns) + lane;

  float sums[kColumns] = {};
  const std::int64_t terms = inside ? r.terms.size() : 0;
  source += to.batch * r.terms.batch * r.stride.batch + to.head * r.terms.heads * r.stride.heads +
            to.row * r.terms.rows * r.stride.rows + to.column;
  Term term{digits(warp, r.terms)};
  for (std::int64_t index = warp; index < terms; index += kTerms * warps) {
    float values[kTerms][kColumns];
#pragma unroll
    for (int t = 0; t < kTerms; ++t, term.advance(r)) {
      const float* from = source + term.offset(r.stride);
      const std::int64_t column = to.column + term.at.columns * r.stride.columns;
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        values[t][c] = index + t * warps < terms && column + 32 * c < r.columns ? __ldcg(from + 32 * c) : 0.0f;
    }
#pragma unroll
    for (int t = 0; t < kTerms; ++t)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) sums[c] += values[t][c];
  }

  if constexpr (kReduction == Reduction::few_rows) {
    if (!inside) return;
#pragma unroll
    for (int c = 0; c < kColumns; ++c, to.column += 32)
      if (to.column < r.columns) store_pair(output, to, sums[c], type);
  } else {
    __shared__ float warp_sums[kMostThreads];
    float sum = sums[0];
#pragma unroll
    for (int c = 1; c < kColumns; ++c) sum += sums[c];
    if constexpr (kAddsColumns)
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffff, sum, distance);
    warp_sums[threadIdx.x] = sum;
    __syncthreads();
    if (warp != 0 || !inside || to.column >= (kAddsColumns ? 1 : r.columns)) return;
    for (int other = 1; other < warps; ++other) sum += warp_sums[threadIdx.x + 32 * other];
    store_pair(output, to, sum, type);
  }
}

template <Reduction kReduction>
__global__ void __launch_bounds__(kMostThreads)
    reduce_bias_gradient_kernel(const float* source, const __grid_constant__ ReducedPairs pairs,
                                const __grid_constant__ BiasGradientOutput output, DataType type, bool first) {
  begin_behind_main(first);
  reduce_bias_gradient<kReduction>(source, pairs, output, type);
  end_behind_main(first);
}

template <Reduction kReduction>
cudaError_t reduce_bias_gradient(const float* source, const PairShape& source_shape, const BiasGradientOutput& output,
                                 const BackwardParameters& p, bool first, cudaStream_t stream) {
  const ReducedPairs pairs = reduced_pairs(kReduction, source_shape, output.shape);
  const std::int64_t blocks = (pairs.units.size() + pairs.units_of_block - 1) / pairs.units_of_block;
  return launch_kernel(reduce_bias_gradient_kernel<kReduction>,
                       Grid(static_cast<unsigned>(blocks)).launched_early(p.early_launches),
                       static_cast<unsigned>(32 * pairs.warps * pairs.units_of_block), 0, stream, source, pairs, output,
                       p.data_type, first);
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
  if (source_shape.size() == 0) return clear_bias_gradient(output, stream);
  switch (reduction_of(source_shape, output.shape)) {
    case Reduction::few_rows:
      return reduce_bias_gradient<Reduction::few_rows>(source, source_shape, output, p, first, stream);
    case Reduction::many_rows:
      return reduce_bias_gradient<Reduction::many_rows>(source, source_shape, output, p, first, stream);
    case Reduction::columns:
      break;
  }
  return reduce_bias_gradient<Reduction::columns>(source, source_shape, output, p, first, stream);
}

cudaError_t clear_bias_gradient(const BiasGradientOutput& output, cudaStream_t stream) {
  if (output.shape.size() == 0) return cudaSuccess;
  const std::int64_t rows = output.shape.batch * output.shape.heads * output.shape.rows;
  return launch_kernel(clear_bias_gradient_kernel, blocks_for(rows * parts_of_row(output) * 32), kThreads, 0, stream,
                       output);
}

cudaError_t side::load_bias_gradient() {
  return load_kernels(reduce_bias_gradient_kernel<Reduction::few_rows>,
                      reduce_bias_gradient_kernel<Reduction::many_rows>,
                      reduce_bias_gradient_kernel<Reduction::columns>, clear_bias_gradient_kernel);
}

}  // namespace flashdma_bwd
