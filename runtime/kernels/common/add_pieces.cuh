// dK and dV of items whose pieces are summed later: the sum of their float32 rows.
#pragma once

#include "common/item.cuh"
#include "common/numeric.cuh"

namespace flashdma_bwd {

/// Blocks to a slot and gradient: each thread then has few loads to wait for, one after the other.
inline constexpr int kBlocksOfSlot = 4;

/// Blocks of a side kernel that add up all pieces, dK and dV.
FLASHDMA_HOST_DEVICE inline unsigned add_pieces_blocks(const BackwardParameters& p) {
  return 2 * kBlocksOfSlot * static_cast<unsigned>(later_slots(p));
}

/// A block's share: a part of the rows of dK or dV of the item whose piece lies in a slot, so that all pieces' blocks
/// together take all rows. The pieces are added in their order. A thread takes four columns of a row at a time.
template <DataType Type, int kThreads>
__device__ __forceinline__ void add_pieces(const BackwardParameters& p, int block) {
  const int entry = __ldcg(p.slot_entries + block / (2 * kBlocksOfSlot));
  if (entry < 0) return;
  const bool value = block / kBlocksOfSlot % 2 != 0;
  __shared__ KeyItem shared_item;
  if (threadIdx.x == 0) find_item(shared_item, p, p.whole_items + entry, p.block_n);
  __syncthreads();
  const KeyItem& item = shared_item;
  const int pieces = item.pieces;
  const int parts = pieces * kBlocksOfSlot;
  const int part = item.piece * kBlocksOfSlot + block % kBlocksOfSlot;
  const int first_row = item.keys * part / parts;
  const int end_row = item.keys * (part + 1) / parts;
  const int chunks = p.head_dim / 4;
  const std::int64_t next_piece = std::int64_t{2} * p.block_n * p.head_dim;
  for (int i = static_cast<int>(threadIdx.x); i < (end_row - first_row) * chunks; i += kThreads) {
    const int row = first_row + i / chunks;
    const int column = i % chunks * 4;
    const int key = position_of_row(item, row);
    if (key == kPastEnd) continue;
    const float* source = piece_rows(p, item, 0, value) + std::int64_t{row} * p.head_dim + column;
    float sum[4] = {};
#pragma unroll 8
    for (int piece = 0; piece < pieces; ++piece, source += next_piece) {
      const float4 four = __ldcg(reinterpret_cast<const float4*>(source));
      sum[0] += four.x, sum[1] += four.y, sum[2] += four.z, sum[3] += four.w;
    }
    *reinterpret_cast<uint2*>(key_row_address(p, item, value ? p.d_v : p.d_k, key) + column) = {
        pack<Type>(sum[0], sum[1]), pack<Type>(sum[2], sum[3])};
  }
}

}  // namespace flashdma_bwd
