// What leaves with an item: dK or dV of a warpgroup's 64 keys, and the sums of dS that are a key bias's gradient.
#pragma once

#include "common/item.cuh"
#include "common/numeric.cuh"
#include "hopper/ptx.cuh"

namespace flashdma_bwd::hopper {

/// float32 rows of the item's heads, which are added over the items of a KV head later. `first_row`: of the item, the
/// warp's first of 16.
template <int kHalf>
__device__ __forceinline__ void write_partial_key_gradient(const BackwardParameters& p, const KeyItem& item,
                                                           float* partial, const float (&values)[kHalf],
                                                           int first_row) {
  const int lane = ptx::fresh_thread_index() % 32;
  float* rows = partial + (item.head_item * p.key_rows + item.sequence.key_row) * p.head_dim;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = position_of_row(item, first_row + lane / 4 + half * 8);
    if (key == kPastEnd) continue;
    float* row = rows + static_cast<std::int64_t>(key) * p.head_dim + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kHalf / 4; ++j)
      if (j * 8 < p.head_dim)
        *reinterpret_cast<float2*>(row + j * 8) = {values[j * 4 + half * 2], values[j * 4 + half * 2 + 1]};
  }
}

/// 16-bit rows of the warp's 16 keys, by way of rows `staging_row` on of the tile `staging` in shared memory, which
/// nobody else uses any more. `first_row`: of the item.
template <class Tile, DataType kType, int kHalf>
__device__ __forceinline__ void write_key_gradient_rows(const BackwardParameters& p, const KeyItem& item,
                                                        const TensorView& tensor, const float (&values)[kHalf],
                                                        std::uint32_t staging, int staging_row, int first_row) {
  const int lane = ptx::fresh_thread_index() % 32;
  __syncwarp();
#pragma unroll
  for (int c = 0; c < kHalf / 8; ++c) {
    const Coordinate at = ldmatrix_coordinate(MatrixOrder::rows_first, lane);
    std::uint32_t packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) packed[i] = pack<kType>(values[c * 8 + i * 2], values[c * 8 + i * 2 + 1]);
    ptx::stmatrix_x4(staging + Tile::chunk_offset(staging_row + at.row, c * 2 + at.column), packed);
  }
  __syncwarp();
  // What is the same for all rows is found once: divisions take longer than the stores.
  std::uint16_t* const rows = key_row_address(p, item, tensor, 0);
  const std::int64_t stride = tensor.stride_row;
  const std::int32_t* const active = item.active;
  const int first_position = item.first_position;
  const int keys = item.keys;
  const int columns = p.head_dim;
  constexpr int kChunks = kHalf / 4;
  static_assert(16 * kChunks % 32 == 0);
#pragma unroll 2
  for (int i = 0; i < 16 * kChunks / 32; ++i) {
    const int row = (lane + i * 32) / kChunks;
    const int chunk = (lane + i * 32) % kChunks;
    if (first_row + row >= keys || chunk * 8 >= columns) continue;
    const int key = active != nullptr ? active[first_row + row] : first_position + first_row + row;
    *reinterpret_cast<uint4*>(rows + key * stride + chunk * 8) =
        ptx::ld_shared_v4(staging + Tile::chunk_offset(staging_row + row, chunk));
  }
}

/// Adds a key's sum of dS over the quad of lanes that share it, and writes it as that of (item, head).
__device__ __forceinline__ void write_bias_sum(const BackwardParameters& p, const KeyItem& item, int head, int key,
                                               float sum, int lane) {
  if (p.d_bias_rows == nullptr) return;
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  if (lane % 4 == 0 && key != kPastEnd)
    p.d_bias_rows[(static_cast<std::int64_t>(item.batch) * p.heads + head) * p.seqlen_k + key] = sum;
}

}  // namespace flashdma_bwd::hopper
