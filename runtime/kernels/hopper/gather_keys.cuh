// Loading rows of K or V that a compacted mask scatters, which the copy engine cannot.
#pragma once

#include "common/item.cuh"
#include "hopper/ptx.cuh"

namespace flashdma_bwd::hopper {

/// Rows `first_row` on of the item, columns `first_column` on, into a tile at `address`; zeros past the keys' end and
/// past the head dim. All threads of the CTA.
template <class Tile, int kThreads>
__device__ __forceinline__ void gather_key_rows(const BackwardParameters& p, const KeyItem& item,
                                                const TensorView& tensor, int first_row, int first_column,
                                                std::uint32_t address) {
  constexpr int kChunks = Tile::kColumns / 8;
  for (int index = static_cast<int>(threadIdx.x); index < Tile::kRows * kChunks; index += kThreads) {
    const int row = index / kChunks;
    const int chunk = index % kChunks;
    const int key = position_of_row(item, first_row + row);
    const int column = first_column + chunk * 8;
    uint4 values = {0, 0, 0, 0};
    if (key != kPastEnd && column < p.head_dim)
      values = __ldg(reinterpret_cast<const uint4*>(key_row_address(p, item, tensor, key) + column));
    ptx::st_shared_v4(address + Tile::chunk_offset(row, chunk), values);
  }
}

}  // namespace flashdma_bwd::hopper
