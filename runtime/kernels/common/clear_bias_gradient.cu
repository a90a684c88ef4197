// Zeros into dBias, where a main kernel writes visited tiles only.
#include "common/launch_kernel.hpp"
#include "common/load_kernels.hpp"
#include "common/side_kernels.cuh"

namespace flashdma_bwd {
namespace {

using namespace side;

/// A warp clears this much of a row of dBias, 16 bytes a lane at a time.
constexpr int kClearedBytes = 4096;

__host__ __device__ std::int64_t bytes_of_row(const BiasGradientOutput& output) {
  return output.shape.columns * (output.is_float ? 4 : 2);
}
/// One more than it takes, for rows that begin between two multiples of 16 bytes.
__host__ __device__ std::int64_t parts_of_row(const BiasGradientOutput& output) {
  return (bytes_of_row(output) + 15 + kClearedBytes - 1) / kClearedBytes;
}

/// Whether the element lies in a tile that the main kernel stores.
__device__ __forceinline__ bool is_stored(const BiasGradientOutput& output, const StoredTiles& stored, std::int64_t row,
                                          std::int64_t column) {
  const auto columns = static_cast<int>(output.shape.columns);
  const int first = static_cast<int>(column) / stored.block_n * stored.block_n;
  const TileRange seen = visible_query_tiles(stored.limits, static_cast<int>(output.shape.rows), first,
                                             min(first + stored.block_n, columns) - 1, stored.block_m);
  const int tile = static_cast<int>(row) / stored.block_m;
  return tile >= seen.begin && tile < seen.end;
}

__global__ void __launch_bounds__(kThreads) clear_bias_gradient_kernel(BiasGradientOutput output, StoredTiles stored) {
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
    // Rows of whole tiles begin at multiples of 16 bytes.
    if (stored.block_m != 0 && at < end && is_stored(output, stored, r, (at - begin) / (output.is_float ? 4 : 2)))
      continue;
    if (at >= begin && at + 16 <= end)
      __stcs(reinterpret_cast<uint4*>(at), uint4{0, 0, 0, 0});
    else
      for (int byte = 0; byte < 16; byte += 2)
        if (at + byte >= begin && at + byte < end) *reinterpret_cast<std::uint16_t*>(at + byte) = 0;
  }
}

}  // namespace

cudaError_t clear_bias_gradient(const BiasGradientOutput& output, const StoredTiles& stored, cudaStream_t stream) {
  if (output.shape.size() == 0) return cudaSuccess;
  const std::int64_t rows = output.shape.batch * output.shape.heads * output.shape.rows;
  return launch_kernel(clear_bias_gradient_kernel, blocks_for(rows * parts_of_row(output) * 32), kThreads, 0, stream,
                       output, stored);
}

cudaError_t side::load_clear_bias_gradient() {
  return load_kernels(clear_bias_gradient_kernel);
}

}  // namespace flashdma_bwd
