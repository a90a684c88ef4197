// A 16-bit tile in shared memory, swizzled so that ldmatrix and fragment stores meet no bank conflict.
//
// Plain constexpr maps: the host tests check that they are bijective and conflict-free.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"

namespace flashdma_bwd {

/// [Rows][Columns] 16-bit elements, row-major, 16-byte chunks of a row permuted by the row's number. Columns is a
/// multiple of 32. Rows of a multiple of 128 bytes swap the eight chunks of each 128-byte block by row mod 8; rows of
/// an odd multiple of 64 bytes already alternate between bank halves, and swap the four chunks of each 64-byte block by
/// row / 2 mod 4.
template <int Rows, int Columns>
struct SharedTile {
  static_assert(Columns % 32 == 0);
  static constexpr int kRows = Rows;
  static constexpr int kColumns = Columns;
  static constexpr int kRowBytes = Columns * 2;
  static constexpr int kBytes = Rows * kRowBytes;
  static constexpr bool kWide = kRowBytes % 128 == 0;
  static constexpr int kChunkMask = kWide ? 7 : 3;  ///< chunk bits that the swizzle changes

  /// The value that is XORed into a chunk number of this row. The same for rows that differ by a multiple of 8.
  FLASHDMA_HOST_DEVICE static constexpr int row_swizzle(int row) { return kWide ? row & 7 : row >> 1 & 3; }

  /// Byte offset of the 16-byte chunk `chunk` of row `row`.
  FLASHDMA_HOST_DEVICE static constexpr int chunk_offset(int row, int chunk) {
    return row * kRowBytes + (chunk ^ row_swizzle(row)) * 16;
  }

  /// Byte offset of an element.
  FLASHDMA_HOST_DEVICE static constexpr int offset(int row, int column) {
    return chunk_offset(row, column / 8) + column % 8 * 2;
  }

  /// `address` of the chunk (row, chunk), advanced by `rows` (a multiple of 8) and `chunks` (a multiple of 2, while
  /// `chunk` is 0 or 1): the loops over a tile cost one XOR instead of a new address. The tile is aligned to 128 bytes.
  FLASHDMA_HOST_DEVICE static constexpr std::uint32_t advance(std::uint32_t address, int rows, int chunks) {
    return (address ^ static_cast<std::uint32_t>((chunks & kChunkMask) * 16)) +
           static_cast<std::uint32_t>((chunks & ~kChunkMask) * 16 + rows * kRowBytes);
  }
};

}  // namespace flashdma_bwd
