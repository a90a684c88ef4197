// Where the elements of mma.sync fragments lie: plain constexpr maps, checked on the host.
//
// Source: PTX ISA, "Matrix fragments for mma.m16n8k16" (accumulators) and "ldmatrix" (row addresses).
#pragma once

#include "common/host_device.hpp"

namespace flashdma_bwd {

struct Coordinate {
  int row;
  int column;
  friend constexpr bool operator==(const Coordinate&, const Coordinate&) = default;
};

/// Element `index` (0 ... 3) of lane `lane` in a 16 x 8 accumulator atom.
FLASHDMA_HOST_DEVICE constexpr Coordinate accumulator_coordinate(int lane, int index) {
  return {lane / 4 + index / 2 * 8, lane % 4 * 2 + index % 2};
}

/// The row and 16-byte chunk whose address a lane gives to ldmatrix.x4, for a 16 x 16 block. `kRowsFirst` is the order
/// in which matrices 0 ... 3 walk the block: A operands as stored and B operands transposed go down the rows first; A
/// operands transposed and B operands as stored go along the chunks first.
enum class MatrixOrder { rows_first, chunks_first };
FLASHDMA_HOST_DEVICE constexpr Coordinate ldmatrix_coordinate(MatrixOrder order, int lane) {
  return order == MatrixOrder::rows_first ? Coordinate{lane & 15, lane >> 4}
                                          : Coordinate{(lane & 7) + (lane >> 4) * 8, lane >> 3 & 1};
}

/// Floats of an accumulator atom in dQ's scratch.
inline constexpr int kAtomFloats = 16 * 8;

/// Offset in an atom of dQ's scratch of element `index` of lane `lane`. Vectorised: a lane's four are neighbours, one
/// 16-byte reduction; else a warp's reduction of one index covers 128 neighbouring bytes.
FLASHDMA_HOST_DEVICE constexpr int atom_offset(bool vectorised, int lane, int index) {
  return vectorised ? lane * 4 + index : index * 32 + lane;
}

}  // namespace flashdma_bwd
