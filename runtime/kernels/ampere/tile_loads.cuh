// Asynchronous copies of tiles from global memory into swizzled shared memory, and back.
#pragma once

#include "common/parameters.hpp"
#include "common/ptx.cuh"

namespace flashdma_bwd::ampere {

/// One head of a 16-bit tensor: rows of `head_dim` elements.
struct HeadView {
  const std::uint16_t* data;
  int stride_row;  ///< in elements; offsets inside a head fit in 32 bits, which the host has checked
};

__device__ __forceinline__ HeadView head_view(const TensorView& tensor, int batch, int head, std::int64_t first_row,
                                              bool packed) {
  const std::int64_t offset =
      (packed ? 0 : batch * tensor.stride_batch) + first_row * tensor.stride_row + head * tensor.stride_head;
  return {static_cast<const std::uint16_t*>(tensor.data) + offset, static_cast<int>(tensor.stride_row)};
}

/// Starts the copy of a tile. `row_of(i)` is the source row of the tile's row i, negative for a row of zeros; columns
/// from `head_dim` on are zeros too.
template <class Tile, int Threads, class RowOf>
__device__ __forceinline__ void load_tile(std::uint32_t tile, const HeadView& source, int head_dim, int thread,
                                          const RowOf& row_of) {
  constexpr int kChunks = Tile::kColumns / 8;
  constexpr int kCopies = Tile::kRows * kChunks;
  const auto copy = [&](int row, int chunk, std::uint32_t destination) {
    const int source_row = row_of(row);
    const bool valid = source_row >= 0 && chunk * 8 < head_dim;
    ptx::cp_async_16(destination, source.data + (valid ? source_row * source.stride_row + chunk * 8 : 0), valid);
  };
  if constexpr (Threads % (8 * kChunks) == 0) {
    // A thread's rows are a multiple of 8 apart: one swizzled address serves all of them.
    constexpr int kRowStep = Threads / kChunks;
    const int row = thread / kChunks;
    const int chunk = thread % kChunks;
    const std::uint32_t destination = tile + static_cast<std::uint32_t>(Tile::chunk_offset(row, chunk));
#pragma unroll
    for (int i = 0; i < Tile::kRows / kRowStep; ++i)
      copy(row + i * kRowStep, chunk, destination + static_cast<std::uint32_t>(i * kRowStep * Tile::kRowBytes));
  } else {
#pragma unroll
    for (int i = 0; i < (kCopies + Threads - 1) / Threads; ++i) {
      const int index = i * Threads + thread;
      if (kCopies % Threads != 0 && index >= kCopies) break;
      const int row = index / kChunks;
      const int chunk = index % kChunks;
      copy(row, chunk, tile + static_cast<std::uint32_t>(Tile::chunk_offset(row, chunk)));
    }
  }
}

/// Stores a tile's rows with 16-byte stores; `row_of(i)` is the destination row, negative for none.
template <class Tile, int Threads, class RowOf>
__device__ __forceinline__ void store_tile(const unsigned char* tile, std::uint16_t* destination,
                                           std::int64_t stride_row, int head_dim, int thread, const RowOf& row_of) {
  constexpr int kChunks = Tile::kColumns / 8;
  constexpr int kCopies = Tile::kRows * kChunks;
#pragma unroll 4
  for (int copy = thread; copy < kCopies; copy += Threads) {
    const int row = copy / kChunks;
    const int chunk = copy % kChunks;
    const int destination_row = row_of(row);
    if (destination_row < 0 || chunk * 8 >= head_dim) continue;
    *reinterpret_cast<uint4*>(destination + destination_row * stride_row + chunk * 8) =
        *reinterpret_cast<const uint4*>(tile + Tile::chunk_offset(row, chunk));
  }
}

}  // namespace flashdma_bwd::ampere
