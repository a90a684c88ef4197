// The kernels around the main one: statistics before it, conversions and reductions after it.
#pragma once

#include <cuda_runtime_api.h>

#include "common/visibility.hpp"

namespace flashdma_bwd {

/// What comes before the main kernel: D = rowsum(dO O) and LSE in log2 into padded scratch, zeros into the dQ scratch
/// and into what the pieces of items count, which need the call's inputs only (rows); and the main kernel's work table
/// where there is one, which needs the tile lists.
enum class PreprocessPart : std::uint8_t { all, rows, table };

/// `beside_predecessor`: the kernel before in the stream is one of a chain (launch_order.cuh), beside which this one
/// may run, and the table is made of what it writes.
cudaError_t preprocess(const BackwardParameters& parameters, int bucket, PreprocessPart part, bool beside_predecessor,
                       cudaStream_t stream);

// Three kernels need the main one's results only. `first`: it is the first of these in the stream, and waits for the
// main one; the others run beside it.

/// dQ's scratch times scale, as 16-bit rows. And dK and dV of items whose pieces are summed later, as 16-bit rows.
cudaError_t convert_gradients(const BackwardParameters& parameters, int bucket, bool first, cudaStream_t stream);

/// dK and dV: the sum of the partial rows of the items of a KV head, as 16-bit rows.
cudaError_t reduce_d_key_value(const BackwardParameters& parameters, bool first, cudaStream_t stream);

/// Zeros into the rows of dK and dV that no item writes, in layouts whose items have active keys only; into all rows
/// where it is not known which those are.
cudaError_t clear_d_key_value(const BackwardParameters& parameters, cudaStream_t stream);

/// Zeros into the rows of dQ, dK and dV that belong to no sequence: those after the last one of a packed batch.
cudaError_t clear_packed_tails(const BackwardParameters& parameters, std::int64_t total_q, std::int64_t total_k,
                               cudaStream_t stream);

/// A float32 array [batch][heads][rows][columns], contiguous.
struct PairShape {
  std::int64_t batch = 0, heads = 0, rows = 0, columns = 0;
  FLASHDMA_HOST_DEVICE std::int64_t size() const { return batch * heads * rows * columns; }
};

/// dBias as the caller wants it.
struct BiasGradientOutput {
  void* data = nullptr;
  bool is_float = false;  ///< else the problem's type
  PairShape shape;
  std::int64_t stride_batch = 0, stride_head = 0, stride_row = 0, stride_column = 0;
};

/// Each element of the output is the sum, in a fixed order, of the elements of `source` that it is broadcast to.
cudaError_t reduce_bias_gradient(const float* source, const PairShape& source_shape, const BiasGradientOutput& output,
                                 const BackwardParameters& parameters, bool first, cudaStream_t stream);

/// The tiles of dBias that a main kernel stores whole: those of which the limits leave a pair.
struct StoredTiles {
  Limits limits;
  int block_m = 0;  ///< queries of a tile; 0: it stores no whole tiles
  int block_n = 0;
};

/// Zeros into all elements but those in these tiles, for main kernels that write visited tiles only.
cudaError_t clear_bias_gradient(const BiasGradientOutput& output, const StoredTiles& stored, cudaStream_t stream);

/// Loads these kernels into the current context, which lazy loading would otherwise do at their first launch.
cudaError_t load_side_kernels();

}  // namespace flashdma_bwd
