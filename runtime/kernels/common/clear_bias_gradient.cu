// Zeros into dBias, where a main kernel writes visited tiles only.
#include "common/launch_kernel.hpp"
#include "common/load_kernels.hpp"
#include "common/side_kernels.cuh"

namespace flashdma_bwd {
namespace {

using namespace side;

/// A warp clears this much of a row of dBias, 16 bytes a lane at a time, of so many rows.
constexpr int kClearedBytes = 4096;
constexpr int kClearedRows = 16;

__host__ __device__ int bytes_of_element(const BiasGradientOutput& output) {
  return output.is_float ? 4 : 2;
}
/// One more than it takes, for rows that begin between two multiples of 16 bytes.
__host__ __device__ std::int64_t parts_of_row(const BiasGradientOutput& output) {
  return (output.shape.columns * bytes_of_element(output) + 15 + kClearedBytes - 1) / kClearedBytes;
}
/// Of a head.
__host__ __device__ std::int64_t row_groups(const BiasGradientOutput& output) {
  return (output.shape.rows + kClearedRows - 1) / kClearedRows;
}

/// Whether the main kernel stores the tile of these keys with the row's queries; no, where there are no such keys.
__device__ __forceinline__ bool is_stored(const BiasGradientOutput& output, const StoredTiles& stored, std::int64_t row,
                                          int key_tile) {
  const auto columns = static_cast<int>(output.shape.columns);
  const int first = key_tile * stored.block_n;
  if (first >= columns) return false;
  const TileRange seen = visible_query_tiles(stored.limits, static_cast<int>(output.shape.rows), first,
                                             min(first + stored.block_n, columns) - 1, stored.block_m);
  const int tile = static_cast<int>(row) / stored.block_m;
  return tile >= seen.begin && tile < seen.end;
}

__global__ void __launch_bounds__(kThreads) clear_bias_gradient_kernel(BiasGradientOutput output, StoredTiles stored) {
  const std::int64_t parts = parts_of_row(output);
  const std::int64_t index = std::int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  const std::int64_t part = index % parts;
  const std::int64_t group = index / parts;
  const std::int64_t head = group / row_groups(output);  // of all batches
  if (head >= output.shape.batch * output.shape.heads) return;
  const std::int64_t first_row = group % row_groups(output) * kClearedRows;
  const std::int64_t end_row = min(first_row + kClearedRows, output.shape.rows);
  const int bytes = bytes_of_element(output);
  const int lane = threadIdx.x % 32;

  // The rows are of one tile, and the part's columns of no more tiles than a warp has lanes. Rows of whole tiles begin
  // at multiples of 16 bytes.
  unsigned stored_tiles = 0;
  int first_tile = 0;
  if (stored.block_m != 0) {
    first_tile = static_cast<int>(part * (kClearedBytes / bytes)) / stored.block_n;
    stored_tiles = __ballot_sync(0xffffffffu, is_stored(output, stored, first_row, first_tile + lane));
  }

  for (std::int64_t row = first_row; row < end_row; ++row) {
    const std::int64_t offset = head / output.shape.heads * output.stride_batch +
                                head % output.shape.heads * output.stride_head + row * output.stride_row;
    auto* begin = static_cast<unsigned char*>(output.data) + offset * bytes;
    unsigned char* end = begin + output.shape.columns * bytes;
    unsigned char* at = begin - reinterpret_cast<std::uintptr_t>(begin) % 16 + part * kClearedBytes + lane * 16;
#pragma unroll
    for (int i = 0; i < kClearedBytes / (32 * 16); ++i, at += 32 * 16) {
      if (stored_tiles != 0) {
        const int column = static_cast<int>(at - begin) / bytes;
        if ((stored_tiles >> (column / stored.block_n - first_tile) & 1) != 0) continue;
      }
      if (at >= begin && at + 16 <= end)
        __stcs(reinterpret_cast<uint4*>(at), uint4{0, 0, 0, 0});
      else
        for (int byte = 0; byte < 16; byte += 2)
          if (at + byte >= begin && at + byte < end) *reinterpret_cast<std::uint16_t*>(at + byte) = 0;
    }
  }
}

/// Whether every query sees every key.
bool stores_all(const BiasGradientOutput& output, const StoredTiles& stored) {
  if (stored.block_m == 0) return false;
  const auto rows = static_cast<int>(output.shape.rows);
  const TileRange whole =
      whole_query_tiles(stored.limits, rows, 0, static_cast<int>(output.shape.columns) - 1, stored.block_m);
  return whole.begin == 0 && whole.end * stored.block_m >= rows;
}

}  // namespace

cudaError_t clear_bias_gradient(const BiasGradientOutput& output, const StoredTiles& stored, cudaStream_t stream) {
  if (output.shape.size() == 0) return cudaSuccess;
  if (stores_all(output, stored)) return cudaSuccess;
  const std::int64_t warps = output.shape.batch * output.shape.heads * row_groups(output) * parts_of_row(output);
  return launch_kernel(clear_bias_gradient_kernel, blocks_for(warps * 32), kThreads, 0, stream, output, stored);
}

cudaError_t side::load_clear_bias_gradient() {
  return load_kernels(clear_bias_gradient_kernel);
}

}  // namespace flashdma_bwd
