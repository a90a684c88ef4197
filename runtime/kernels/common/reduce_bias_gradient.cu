// dBias as the caller wants it, from float32 scratch: sums, or, where no elements are added, rounded values.
#include <algorithm>
#include <type_traits>

#include "common/launch_kernel.hpp"
#include "common/launch_order.cuh"
#include "common/load_kernels.hpp"
#include "common/numeric.cuh"
#include "common/side_kernels.cuh"

namespace flashdma_bwd {
namespace {

using namespace side;

/// Of a block of a reduction.
constexpr int kMostThreads = 512;

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

/// The distance of an element of dBias from its first.
__device__ __forceinline__ std::int64_t output_offset(const BiasGradientOutput& output, const PairIndex& i) {
  return i.batch * output.stride_batch + i.head * output.stride_head + i.row * output.stride_row +
         i.column * output.stride_column;
}

__device__ __forceinline__ void store_element(const BiasGradientOutput& output, std::int64_t offset, float value,
                                              DataType type) {
  if (output.is_float)
    static_cast<float*>(output.data)[offset] = value;
  else
    static_cast<std::uint16_t*>(output.data)[offset] =
        type == DataType::bf16 ? from_float<DataType::bf16>(value) : from_float<DataType::fp16>(value);
}

/// Columns of a row that a warp rounds.
constexpr int kRoundedColumns = 512;

/// Four neighbours, of which both places are aligned to four elements.
__device__ __forceinline__ void store_quad(const BiasGradientOutput& output, std::int64_t offset, const float4& v,
                                           DataType type) {
  if (output.is_float)
    *reinterpret_cast<float4*>(static_cast<float*>(output.data) + offset) = v;
  else
    *reinterpret_cast<uint2*>(static_cast<std::uint16_t*>(output.data) + offset) =
        type == DataType::bf16 ? uint2{pack<DataType::bf16>(v.x, v.y), pack<DataType::bf16>(v.z, v.w)}
                               : uint2{pack<DataType::fp16>(v.x, v.y), pack<DataType::fp16>(v.z, v.w)};
}

/// Whether rows of both begin at multiples of four elements, and have such a number of neighbours.
bool has_quads(const BiasGradientOutput& output) {
  const std::uintptr_t bytes = output.is_float ? 16 : 8;
  return output.stride_column == 1 && output.shape.columns % 4 == 0 && output.stride_batch % 4 == 0 &&
         output.stride_head % 4 == 0 && output.stride_row % 4 == 0 &&
         reinterpret_cast<std::uintptr_t>(output.data) % bytes == 0;
}

/// Where each element is the sum of one. `units`: the output, in a warp's columns of a row.
template <bool kQuads>
__device__ __forceinline__ void round_bias_gradient(const float* source, const PairShape& units,
                                                    const BiasGradientOutput& output, DataType type) {
  constexpr int kWidth = kQuads ? 4 : 1;
  constexpr int kLoads = kRoundedColumns / 32 / kWidth;
  using Load = std::conditional_t<kQuads, float4, float>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t unit = std::int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  if (unit >= units.size()) return;
  PairIndex to = pair_index(units, unit);
  to.column = to.column * kRoundedColumns + lane * kWidth;
  const std::int64_t row = (to.batch * units.heads + to.head) * units.rows + to.row;
  const float* from = source + row * output.shape.columns + to.column;
  const int columns_left = static_cast<int>(output.shape.columns - to.column);
  std::int64_t offset = output_offset(output, to);
  Load values[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i)
    if (i * 32 * kWidth < columns_left) values[i] = __ldcg(reinterpret_cast<const Load*>(from + i * 32 * kWidth));
#pragma unroll
  for (int i = 0; i < kLoads; ++i, offset += 32 * kWidth * output.stride_column) {
    if (i * 32 * kWidth >= columns_left) return;
    if constexpr (kQuads)
      store_quad(output, offset, values[i], type);
    else
      store_element(output, offset, values[i], type);
  }
}

template <bool kQuads>
__global__ void __launch_bounds__(kThreads)
    round_bias_gradient_kernel(const float* source, const __grid_constant__ PairShape units,
                               const __grid_constant__ BiasGradientOutput output, DataType type, bool first) {
  begin_behind_main(first);
  round_bias_gradient<kQuads>(source, units, output, type);
  end_behind_main(first);
}

cudaError_t round_bias_gradient(const float* source, const BiasGradientOutput& output, const BackwardParameters& p,
                                bool first, cudaStream_t stream) {
  const PairShape units{output.shape.batch, output.shape.heads, output.shape.rows,
                        (output.shape.columns + kRoundedColumns - 1) / kRoundedColumns};
  return launch_kernel(has_quads(output) ? round_bias_gradient_kernel<true> : round_bias_gradient_kernel<false>,
                       Grid(blocks_for(units.size() * 32)).launched_early(p.early_launches), kThreads, 0, stream,
                       source, units, output, p.data_type, first);
}

/// How the elements of a source [batch][heads][rows][columns] that an element of the output is the sum of are read.
enum class Reduction {
  /// A lane has eight columns of the output, and adds one row to them at a time: for few rows, or much output.
  wide,
  /// A lane has one column, and reads sixteen rows at once.
  narrow,
  /// The columns are added, too: a warp has one element, a lane every 32nd of those that are added to it.
  columns
};
__host__ __device__ constexpr int columns_of_lane(Reduction reduction) {
  return reduction == Reduction::narrow ? 1 : 8;
}
/// That a lane reads at once.
__host__ __device__ constexpr int terms_in_flight(Reduction reduction) {
  return reduction == Reduction::narrow ? 16 : 1;
}

constexpr int most_threads(Reduction reduction) {
  return reduction == Reduction::wide ? kThreads : kMostThreads;
}
/// Of a multiprocessor, for which there must be registers.
constexpr int warps_at_work(Reduction reduction) {
  return reduction == Reduction::wide ? 40 : 32;
}

/// What is added to an element or, where columns are kept, to a warp's columns: terms, which warps share out. Those at
/// equal distances are a run: the rows of all heads, or, where columns are added, too, their elements, 256 to a term.
/// Rows that are kept have a run for each head.
struct ReducedPairs {
  PairShape units;   ///< the output, in elements or a warp's columns of a row
  PairShape stride;  ///< between what they are the sums of; columns: a warp's
  int columns = 0;   ///< of the output
  int units_of_block = 1;
  int warps = 1;                   ///< of a unit
  int runs = 1;                    ///< of a batch entry
  std::int64_t terms = 0;          ///< of all batch entries
  std::int64_t run_terms = 0;      ///< of a run
  std::int64_t run_elements = 0;   ///< of a run, where columns are added
  std::int64_t term_stride = 0;    ///< between terms of a run
  std::int64_t to_next_run = 0;    ///< from what would be one term more of a run
  std::int64_t to_next_entry = 0;  ///< from what would be one run more of a batch entry
  /// From a warp's term to its next.
  std::int64_t step_terms = 0;
  std::int64_t step_elements = 0;
  int step_runs = 0;
};

Reduction reduction_of(const PairShape& from, const PairShape& to) {
  constexpr std::int64_t kFewestWideWarps = 4096;
  constexpr int kFewRows = 4;
  constexpr int kMostWideRows = 64;
  if (to.columns != from.columns) return Reduction::columns;
  const std::int64_t rows = from.size() / to.size();
  const bool fills_gpu = to.size() >= kFewestWideWarps * 32 * columns_of_lane(Reduction::wide);
  return rows <= kFewRows || (rows <= kMostWideRows && fills_gpu) ? Reduction::wide : Reduction::narrow;
}

ReducedPairs reduced_pairs(Reduction reduction, const PairShape& from, const PairShape& to) {
  const std::int64_t warp_columns = 32 * columns_of_lane(reduction);
  const bool adds_columns = reduction == Reduction::columns;
  const std::int64_t heads = from.heads / to.heads;
  const std::int64_t rows = from.rows / to.rows;
  const std::int64_t row = from.columns;
  const std::int64_t head_stride = from.rows * row;
  const std::int64_t batch_stride = from.heads * head_stride;
  const bool adds_rows = to.rows != from.rows || from.rows == 1;
  ReducedPairs r;
  r.units = {to.batch, to.heads, to.rows, adds_columns ? 1 : (row + warp_columns - 1) / warp_columns};
  r.stride = {from.batch / to.batch * batch_stride, heads * head_stride, rows * row, warp_columns};
  r.columns = static_cast<int>(to.columns);
  const std::int64_t run_rows = adds_rows ? heads * rows : 1;
  r.runs = static_cast<int>(adds_rows ? 1 : heads);
  const std::int64_t run_stride = adds_rows ? run_rows * row : head_stride;
  r.run_elements = run_rows * row;
  r.run_terms = adds_columns ? (r.run_elements + warp_columns - 1) / warp_columns : run_rows;
  r.term_stride = adds_columns ? warp_columns : row;
  r.to_next_run = run_stride - r.run_terms * r.term_stride;
  r.to_next_entry = batch_stride - r.runs * run_stride;
  r.terms = from.batch / to.batch * r.runs * r.run_terms;
  // Enough warps to keep the memory busy, of which each has some terms before its sums are added to the others'.
  constexpr std::int64_t kEnoughWarps = 16384;
  constexpr int kTermsOfWarp = 8;
  if (reduction != Reduction::wide)
    while (r.warps < kMostThreads / 32 && r.warps * kTermsOfWarp < r.terms && r.units.size() * r.warps < kEnoughWarps)
      r.warps *= 2;
  r.units_of_block = std::max(1, kThreads / 32 / r.warps);
  const std::int64_t step_runs = r.warps / r.run_terms;
  r.step_terms = r.warps % r.run_terms;
  r.step_runs = static_cast<int>(step_runs % r.runs);
  r.step_elements = r.step_terms * r.term_stride + r.step_runs * run_stride + step_runs / r.runs * batch_stride;
  return r;
}

/// A warp's terms, one after the other. `Index` numbers all of a unit's.
template <class Index>
class TermCursor {
 public:
  __device__ __forceinline__ TermCursor(const ReducedPairs& r, const float* first, int warp)
      : at_(first + warp * r.term_stride), term_(warp), run_terms_(static_cast<Index>(r.run_terms)) {
    while (term_ >= run_terms_) leave_run(r);
  }
  __device__ __forceinline__ const float* at() const { return at_; }
  /// In the run.
  __device__ __forceinline__ Index term() const { return term_; }
  __device__ __forceinline__ void advance(const ReducedPairs& r) {
    at_ += r.step_elements;
    term_ += static_cast<Index>(r.step_terms);
    run_ += r.step_runs;
    if (term_ >= run_terms_)
      leave_run(r);
    else if (run_ >= r.runs)
      leave_entry(r);
  }

 private:
  __device__ __forceinline__ void leave_run(const ReducedPairs& r) {
    term_ -= run_terms_;
    at_ += r.to_next_run;
    if (++run_ >= r.runs) leave_entry(r);
  }
  __device__ __forceinline__ void leave_entry(const ReducedPairs& r) {
    run_ -= r.runs;
    at_ += r.to_next_entry;
  }

  const float* at_;
  Index term_;  ///< of the run
  Index run_terms_;
  int run_ = 0;  ///< of the batch entry
};

template <Reduction kReduction>
__device__ __forceinline__ void reduce_bias_gradient(const float* source, const ReducedPairs& r,
                                                     const BiasGradientOutput& output, DataType type) {
  constexpr bool kAddsColumns = kReduction == Reduction::columns;
  constexpr int kColumns = columns_of_lane(kReduction);
  constexpr int kTerms = terms_in_flight(kReduction);
  using Index = std::conditional_t<kReduction == Reduction::wide, int, std::int64_t>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int block_warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = kReduction == Reduction::wide ? 1 : r.warps;
  const int warp = block_warp % warps;
  const std::int64_t unit = std::int64_t{blockIdx.x} * r.units_of_block + block_warp / warps;
  const bool inside = unit < r.units.size();
  PairIndex to = pair_index(r.units, inside ? unit : 0);

  float sums[kColumns] = {};
  const Index terms = inside ? static_cast<Index>(r.terms) : 0;
  TermCursor<Index> cursor(r,
                           source + to.batch * r.stride.batch + to.head * r.stride.heads + to.row * r.stride.rows +
                               to.column * r.stride.columns + lane,
                           warp);
  to.column = to.column * (32 * kColumns) + lane;
  const int columns_left = r.columns - static_cast<int>(to.column);
  std::int64_t offset = output_offset(output, to);
  for (Index index = warp; index < terms; index += kTerms * warps) {
    float values[kTerms][kColumns];
#pragma unroll
    for (int t = 0; t < kTerms; ++t, cursor.advance(r)) {
      const int left =
          kAddsColumns
              ? static_cast<int>(min(r.run_elements - cursor.term() * (32 * kColumns), std::int64_t{32 * kColumns})) -
                    lane
              : columns_left;
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        values[t][c] = index + t * warps < terms && 32 * c < left ? __ldcg(cursor.at() + 32 * c) : 0.0f;
    }
#pragma unroll
    for (int t = 0; t < kTerms; ++t)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) sums[c] += values[t][c];
  }
  if constexpr (kReduction == Reduction::wide) {
    if (!inside) return;
#pragma unroll
    for (int c = 0; c < kColumns; ++c, offset += 32 * output.stride_column)
      if (32 * c < columns_left) store_element(output, offset, sums[c], type);
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
    if (warp != 0 || !inside || columns_left <= 0) return;
    for (int other = 1; other < warps; ++other) sum += warp_sums[threadIdx.x + 32 * other];
    store_element(output, offset, sum, type);
  }
}

template <Reduction kReduction>
__global__ void __launch_bounds__(most_threads(kReduction), warps_at_work(kReduction) * 32 / most_threads(kReduction))
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

}  // namespace

cudaError_t reduce_bias_gradient(const float* source, const PairShape& source_shape, const BiasGradientOutput& output,
                                 const BackwardParameters& p, bool first, cudaStream_t stream) {
  if (output.shape.size() == 0) return cudaSuccess;
  if (source_shape.size() == 0) return clear_bias_gradient(output, {}, stream);
  if (source_shape.size() == output.shape.size()) return round_bias_gradient(source, output, p, first, stream);
  switch (reduction_of(source_shape, output.shape)) {
    case Reduction::wide:
      return reduce_bias_gradient<Reduction::wide>(source, source_shape, output, p, first, stream);
    case Reduction::narrow:
      return reduce_bias_gradient<Reduction::narrow>(source, source_shape, output, p, first, stream);
    case Reduction::columns:
      break;
  }
  return reduce_bias_gradient<Reduction::columns>(source, source_shape, output, p, first, stream);
}

cudaError_t side::load_reduce_bias_gradient() {
  return load_kernels(round_bias_gradient_kernel<false>, round_bias_gradient_kernel<true>,
                      reduce_bias_gradient_kernel<Reduction::wide>, reduce_bias_gradient_kernel<Reduction::narrow>,
                      reduce_bias_gradient_kernel<Reduction::columns>);
}

}  // namespace flashdma_bwd
