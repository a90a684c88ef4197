// What leaves with an item: dK or dV of a warpgroup's 64 keys, and the sums of dS that are a key bias's gradient.
#pragma once

#include "common/item.cuh"
#include "common/key_bias_sum.cuh"
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
    if (key == kPastEnd) continue;
    *reinterpret_cast<uint4*>(rows + key * stride + chunk * 8) =
        ptx::ld_shared_v4(staging + Tile::chunk_offset(staging_row + row, chunk));
  }
  // What is stored there next must not come before another lane's last row has been read.
  __syncwarp();
}

/// A warp's part of an item that is split: 16 keys' rows of dK or dV, or of both, one after the other.
template <int kHalf>
struct PieceRows {
  static constexpr int kFloats = kHalf * 32;
  static constexpr int kChunks = kHalf / 4;  ///< of a lane

  static __device__ __forceinline__ void store(float4* part, const float (&values)[kHalf]) {
    part += ptx::fresh_thread_index() % 32;
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
      __stcg(part + c * 32, float4{values[c * 4], values[c * 4 + 1], values[c * 4 + 2], values[c * 4 + 3]});
  }
  static __device__ __forceinline__ void add(const float4* part, float (&values)[kHalf]) {
    part += ptx::fresh_thread_index() % 32;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const float4 four = __ldcg(part + c * 32);
      values[c * 4] += four.x, values[c * 4 + 1] += four.y, values[c * 4 + 2] += four.z, values[c * 4 + 3] += four.w;
    }
  }
};

/// Whether the warp is the last of the item's pieces' warps with the same part, whose rows can all be read then.
__device__ __forceinline__ bool is_last_piece(const BackwardParameters& p, const KeyItem& item, int part) {
  // The lanes' rows have been written before lane 0 says so, and are read after it has heard of the others'.
  __syncwarp();
  int earlier = 0;
  if (ptx::fresh_thread_index() % 32 == 0) earlier = ptx::atom_add_acq_rel(piece_arrivals(p, item, part), 1);
  earlier = __shfl_sync(0xffffffffu, earlier, 0);
  __syncwarp();
  return earlier == item.pieces - 1;
}

/// Adds up the pieces' rows of the warp's part of `parts`, in the order of the pieces, so that the sum does not depend
/// on who is last. Returns whether this is the last piece, which then has the sums.
template <int kHalf, class... Values>
__device__ __forceinline__ bool add_pieces(const BackwardParameters& p, const KeyItem& item, int part, int parts,
                                           Values&... values) {
  constexpr int kFloats = PieceRows<kHalf>::kFloats * static_cast<int>(sizeof...(Values));
  float4* own = piece_part<kFloats>(p, item, item.piece, part, parts);
  ((PieceRows<kHalf>::store(own, values), own += PieceRows<kHalf>::kFloats / 4), ...);
  if (!is_last_piece(p, item, part)) return false;
  const auto clear = [](float(&all)[kHalf]) {
#pragma unroll
    for (float& value : all) value = 0.0f;
  };
  (clear(values), ...);
#pragma unroll 1
  for (int piece = 0; piece < item.pieces; ++piece) {
    const float4* rows = piece_part<kFloats>(p, item, piece, part, parts);
    ((PieceRows<kHalf>::add(rows, values), rows += PieceRows<kHalf>::kFloats / 4), ...);
  }
  return true;
}

/// store_bias_sum() of sums that are first added over the quad of lanes that share the key.
__device__ __forceinline__ void write_bias_sum(const BackwardParameters& p, const KeyItem& item, int head, int key,
                                               float sum, int lane) {
  if (p.d_bias_rows == nullptr) return;
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  if (lane % 4 == 0) store_bias_sum(p, item, head, key, sum);
}

}  // namespace flashdma_bwd::hopper
