// 16-bit tiles in shared memory as TMA writes and wgmma reads them, and the descriptors by which wgmma finds them.
//
// Plain constexpr maps, checked on the host. Source: PTX ISA, "Asynchronous warpgroup level matrix shared memory
// layout" and "Matrix descriptor format"; CUDA driver API, CUtensorMapSwizzle.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"

namespace flashdma_bwd::hopper {

/// The widest panels of which `columns` columns are a multiple.
FLASHDMA_HOST_DEVICE constexpr int widest_panel(int columns) {
  return columns % 64 == 0 ? 64 : columns % 32 == 0 ? 32 : 16;
}

/// [Rows][Columns] 16-bit elements as panels of 64, 32 or 16 columns, one behind the other; the 16-byte chunks of a
/// panel's rows are permuted by the row's number (128-, 64- or 32-byte swizzle). The tile is aligned to 1024 bytes.
template <int Rows, int Columns, int PanelColumns = widest_panel(Columns)>
struct PanelTile {
  static_assert(Rows % 8 == 0 && Columns % PanelColumns == 0);
  static_assert(PanelColumns == 64 || PanelColumns == 32 || PanelColumns == 16);
  static constexpr int kRows = Rows;
  static constexpr int kColumns = Columns;
  static constexpr int kPanelColumns = PanelColumns;
  static constexpr int kPanels = Columns / kPanelColumns;
  static constexpr int kRowBytes = kPanelColumns * 2;  ///< of a panel; also the width of the swizzle
  static constexpr int kPanelBytes = Rows * kRowBytes;
  static constexpr int kBytes = kPanels * kPanelBytes;

  /// The value that is XORed into a chunk's number within its row.
  FLASHDMA_HOST_DEVICE static constexpr int row_swizzle(int row) {
    return kRowBytes == 128 ? row & 7 : kRowBytes == 64 ? row >> 1 & 3 : row >> 2 & 1;
  }

  /// Byte offset of the 16-byte chunk `chunk` of a row; chunks count through the panels.
  FLASHDMA_HOST_DEVICE static constexpr int chunk_offset(int row, int chunk) {
    constexpr int kChunks = kRowBytes / 16;
    return chunk / kChunks * kPanelBytes + row * kRowBytes + (chunk % kChunks ^ row_swizzle(row)) * 16;
  }
  FLASHDMA_HOST_DEVICE static constexpr int offset(int row, int column) {
    return chunk_offset(row, column / 8) + column % 8 * 2;
  }

  // A descriptor is 64 bits, of which only the lower half differs between the operands of a kernel's products, and
  // there, after the leading byte offset, only the address, in units of 16 bytes: positions are added to it.

  /// Bits 32 ... 63: stride byte offset (from eight rows to the next eight) and the swizzle.
  static constexpr std::uint32_t kDescriptorHigh =
      static_cast<std::uint32_t>(8 * kRowBytes >> 4) | (kRowBytes == 128  ? 1u
                                                        : kRowBytes == 64 ? 2u
                                                                          : 3u)
                                                           << 30;
  /// Bits 16 ... 29: leading byte offset, from a panel to the next. Read only where columns are M or N.
  static constexpr std::uint32_t kDescriptorLow = static_cast<std::uint32_t>(kPanelBytes >> 4) << 16;

  /// Address units from the tile's start to the step-th 16 columns: the reduction runs along the columns.
  FLASHDMA_HOST_DEVICE static constexpr std::uint32_t column_step(int step) {
    return static_cast<std::uint32_t>((step * 16 / kPanelColumns * kPanelBytes + step * 16 % kPanelColumns * 2) >> 4);
  }
  /// The same to the step-th 16 rows: the reduction runs along the rows.
  FLASHDMA_HOST_DEVICE static constexpr std::uint32_t row_step(int step) {
    return static_cast<std::uint32_t>(step * 16 * kRowBytes >> 4);
  }
  /// The lower half for the tile at a shared address, of which bits 24 and up are the CTA's number in its cluster.
  FLASHDMA_HOST_DEVICE static constexpr std::uint32_t descriptor(std::uint32_t address) {
    return ((address & 0x3ffffu) >> 4) + kDescriptorLow;
  }
  FLASHDMA_HOST_DEVICE static constexpr std::uint64_t descriptor_of(std::uint32_t low) {
    return static_cast<std::uint64_t>(kDescriptorHigh) << 32 | low;
  }
};

}  // namespace flashdma_bwd::hopper
