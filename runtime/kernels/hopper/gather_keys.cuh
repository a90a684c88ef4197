// Loading rows of K or V that a compacted mask scatters, which the copy engine cannot.
#pragma once

#include "common/item.cuh"
#include "common/ptx.cuh"
#include "hopper/ptx.cuh"

namespace flashdma_bwd::hopper {

/// Starts to load rows `first_row` on of the item, columns `first_column` on, into rows `tile_row` on of a tile at
/// `address`; zeros past the keys' end and past the head dim. kThreads threads, of which this is the `thread`-th.
template <class Tile, int kThreads, int kRows = Tile::kRows>
__device__ __forceinline__ void gather_key_rows(const BackwardParameters& p, const KeyItem& item,
                                                const TensorView& tensor, int first_row, int first_column,
                                                std::uint32_t address, int tile_row = 0,
                                                int thread = static_cast<int>(threadIdx.x)) {
  constexpr int kChunks = Tile::kColumns / 8;
  const std::uint16_t* const rows = key_row_address(p, item, tensor, 0);
  const std::int64_t stride = tensor.stride_row;
  const std::int32_t* const active = item.active;
  const int keys = item.keys;
  const int columns = p.head_dim;
  const auto key_of = [&](int index) {
    const int row = first_row + index / kChunks;
    return row < keys ? active[row] : kPastEnd;
  };
  // A key is read before the copy for the one before it is issued, which it would wait for else. All of a thread's at
  // once, in an array, are as fast here, but ptxas then orders the consumers' loops otherwise (NOTES.md).
  int next = key_of(thread);
#pragma unroll 8
  for (int index = thread; index < kRows * kChunks; index += kThreads) {
    const int key = next;
    next = key_of(index + kThreads);
    const int row = index / kChunks;
    const int chunk = index % kChunks;
    const int column = first_column + chunk * 8;
    const bool inside = key != kPastEnd && column < columns;
    ptx::cp_async_16(address + Tile::chunk_offset(tile_row + row, chunk), inside ? rows + key * stride + column : rows,
                     inside);
  }
}

/// Waits until the thread's rows are there, for wgmma, too.
__device__ __forceinline__ void finish_gathering() {
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<0>();
  ptx::fence_proxy_async();
}

}  // namespace flashdma_bwd::hopper
