// What leaves with an item: dK or dV of its 96 keys from accumulators whose rows are the head dim.
#pragma once

#include "common/item.cuh"
#include "common/numeric.cuh"
#include "hopper/key_gradient.cuh"
#include "hopper/ptx.cuh"

namespace flashdma_bwd::hopper::transposed {

/// A lane's share of a gradient: of each 64 rows of the head dim `8 half + lane / 4` of its warp's 16, for two of every
/// 8 keys.
template <int kRowBlocks, int kCount>
using RowBlocks = float[kRowBlocks][kCount];

/// The warp's columns of float32 rows, which are added up later.
template <int kRowBlocks, int kCount>
__device__ __forceinline__ void write_float_columns(const BackwardParameters& p, const KeyItem& item, bool value,
                                                    const RowBlocks<kRowBlocks, kCount>& values, int warp) {
  const int lane = ptx::fresh_thread_index() % 32;
  const int first_column = warp * 16 + lane / 4;
  float* rows = float_rows(p, item, value) + first_column;
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int index = float_row(item, j * 8 + lane % 4 * 2 + e);
      if (index == kPastEnd) continue;
      float* row = rows + static_cast<std::int64_t>(index) * p.head_dim;
#pragma unroll
      for (int block = 0; block < kRowBlocks; ++block)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          if (const int column = block * 64 + half * 8; first_column + column < p.head_dim)
            row[column] = values[block][j * 4 + half * 2 + e];
    }
}

/// 16-bit rows, by way of the warp's columns of the tile `staging` in shared memory, which nobody else uses any more.
/// Rows of neighbours leave by `map` when all of the warpgroup have met at `barrier`, but for pieces: there the warps
/// are independent of each other, for a piece may be the last for some of them only.
template <class Tile, DataType kType, int kRowBlocks, int kCount>
__device__ __forceinline__ void write_rows(const BackwardParameters& p, const KeyItem& item, const TensorView& tensor,
                                           const CUtensorMap& map, const RowBlocks<kRowBlocks, kCount>& values,
                                           std::uint32_t staging, int warp, int barrier) {
  constexpr int kKeys = kCount * 2;
  static_assert(Tile::kRows >= kKeys && Tile::kColumns == kRowBlocks * 64);
  const int lane = ptx::fresh_thread_index() % 32;
  __syncwarp();
#pragma unroll
  for (int block = 0; block < kRowBlocks; ++block)
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      std::uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        packed[i] = pack<kType>(values[block][k * 8 + i * 2], values[block][k * 8 + i * 2 + 1]);
      // Matrices of 8 rows of the head dim x 8 keys, stored with the keys as rows.
      const int key = k * 16 + lane / 16 * 8 + lane % 8;
      ptx::stmatrix_x4_trans(staging + Tile::chunk_offset(key, block * 8 + warp * 2 + lane / 8 % 2), packed);
    }
  if (item.active == nullptr && item.pieces == 1) {
    ptx::fence_proxy_async();
    ptx::barrier_sync(barrier, kWarpgroupThreads);
    if (warp == 0 && lane == 0) {
      start_gradient_store<Tile>(p, item, map, staging, 0);
      // Shared memory must outlive the copies.
      ptx::cp_async_bulk_wait_group_read();
    }
    return;
  }
  __syncwarp();
  std::uint16_t* const rows = key_row_address(p, item, tensor, 0);
  const std::int64_t stride = tensor.stride_row;
  const std::int32_t* const active = item.active;
  const int first_position = item.first_position;
  const int keys = item.keys;
  const int columns = p.head_dim;
  constexpr int kChunks = kRowBlocks * 2;  // of a key, of the warp
  static_assert(kKeys * kChunks % 32 == 0);
#pragma unroll 2
  for (int i = 0; i < kKeys * kChunks / 32; ++i) {
    const int row = (lane + i * 32) / kChunks;
    const int own = (lane + i * 32) % kChunks;
    const int chunk = own / 2 * 8 + warp * 2 + own % 2;
    if (row >= keys || chunk * 8 >= columns) continue;
    const int key = active != nullptr ? active[row] : first_position + row;
    if (key == kPastEnd) continue;
    *reinterpret_cast<uint4*>(rows + key * stride + chunk * 8) =
        ptx::ld_shared_v4(staging + Tile::chunk_offset(row, chunk));
  }
}

}  // namespace flashdma_bwd::hopper::transposed
