// A warp's share of a matrix product: accumulators in registers, operands from swizzled shared-memory tiles or
// registers.
#pragma once

#include "common/fragments.hpp"
#include "common/ptx.cuh"
#include "common/shared_tile.hpp"

namespace flashdma_bwd::ampere {

/// The warp's share of a matrix. Element (m, n, i) of its accumulators is row `first_row + 16 m + 8 (i / 2) + lane / 4`
/// and column `first_column + 8 n + 2 (lane % 4) + i % 2`.
struct WarpShare {
  int lane;
  int first_row;
  int first_column;
  __device__ __forceinline__ int row(int m, int half) const { return first_row + m * 16 + half * 8 + lane / 4; }
  __device__ __forceinline__ int column(int n) const { return first_column + n * 8 + lane % 4 * 2; }
};

/// Whether an operand lies in shared memory with the reduction dimension along its columns, or along its rows.
enum class Storage { reduction_along_columns, reduction_along_rows };

/// The A operand [rows][reduction] of a product: `Tile` is stored as [rows][reduction], or as [reduction][rows]. A
/// warp's rows start at `first_row`, a multiple of their number, which is a power of two.
template <class Tile, Storage kStorage>
struct OperandA {
  std::uint32_t address;  ///< of this lane's chunk of the first 16 x 16 block

  __device__ __forceinline__ OperandA(std::uint32_t tile, int lane, int first_row) {
    constexpr bool columns = kStorage == Storage::reduction_along_columns;
    const Coordinate c = ldmatrix_coordinate(columns ? MatrixOrder::rows_first : MatrixOrder::chunks_first, lane);
    address =
        tile + static_cast<std::uint32_t>(columns ? Tile::chunk_offset(c.row, c.column) + first_row * Tile::kRowBytes
                                                  : Tile::chunk_offset(c.row, c.column + first_row / 8));
  }

  /// The 16 x 16 block at rows 16 * `row_block`, reduction 16 * `step`.
  __device__ __forceinline__ void load(std::uint32_t (&fragment)[4], int row_block, int step) const {
    if constexpr (kStorage == Storage::reduction_along_columns)
      ptx::ldmatrix_x4(fragment, Tile::advance(address, row_block * 16, step * 2));
    else
      ptx::ldmatrix_x4_trans(fragment, Tile::advance(address, step * 16, row_block * 2));
  }
};

/// The B operand [reduction][columns] of a product, stored as [columns][reduction]. `first_column` is a multiple of 16.
template <class Tile>
struct OperandB {
  std::uint32_t address;

  __device__ __forceinline__ OperandB(std::uint32_t tile, int lane, int first_column) {
    const Coordinate c = ldmatrix_coordinate(MatrixOrder::chunks_first, lane);
    address = tile + static_cast<std::uint32_t>(Tile::chunk_offset(c.row, c.column) + first_column * Tile::kRowBytes);
  }

  /// Two neighbouring 16 x 8 blocks: columns 16 * `column_block`, reduction 16 * `step`.
  __device__ __forceinline__ void load(std::uint32_t (&fragment)[4], int column_block, int step) const {
    ptx::ldmatrix_x4(fragment, Tile::advance(address, column_block * 16, step * 2));
  }
};

/// The B operand [reduction][columns] of a product, stored as [reduction][columns]: a warp's 16 * `ColumnBlocks`
/// columns from `first_column`, a multiple of that. Unless their number is a power of two, the swizzle's XOR and the
/// sum of the two column offsets differ, and each block keeps an address of its own.
template <class Tile, int ColumnBlocks>
struct OperandBTransposed {
  static constexpr bool kOneAddress = (ColumnBlocks & (ColumnBlocks - 1)) == 0;
  std::uint32_t address[kOneAddress ? 1 : ColumnBlocks];

  __device__ __forceinline__ OperandBTransposed(std::uint32_t tile, int lane, int first_column) {
    const Coordinate c = ldmatrix_coordinate(MatrixOrder::rows_first, lane);
#pragma unroll
    for (int block = 0; block < (kOneAddress ? 1 : ColumnBlocks); ++block)
      address[block] =
          tile + static_cast<std::uint32_t>(Tile::chunk_offset(c.row, c.column + first_column / 8 + block * 2));
  }

  __device__ __forceinline__ void load(std::uint32_t (&fragment)[4], int column_block, int step) const {
    if constexpr (kOneAddress)
      ptx::ldmatrix_x4_trans(fragment, Tile::advance(address[0], step * 16, column_block * 2));
    else
      ptx::ldmatrix_x4_trans(fragment, address[column_block] + static_cast<std::uint32_t>(step * 16 * Tile::kRowBytes));
  }
};

/// A B operand that stays in registers: all its fragments, loaded once.
template <int ColumnPairs, int Steps>
struct RegisterOperandB {
  std::uint32_t fragments[Steps][ColumnPairs][4];

  template <class Operand>
  __device__ __forceinline__ void fill(const Operand& operand) {
#pragma unroll
    for (int step = 0; step < Steps; ++step)
#pragma unroll
      for (int pair = 0; pair < ColumnPairs; ++pair) operand.load(fragments[step][pair], pair, step);
  }
  __device__ __forceinline__ void load(std::uint32_t (&fragment)[4], int pair, int step) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) fragment[i] = fragments[step][pair][i];
  }
};

struct NothingBetween {
  __device__ __forceinline__ void operator()(int) const {}
};

/// What the first products are added to: the accumulators themselves.
struct AccumulatorStart {
  template <class Accumulator>
  __device__ __forceinline__ auto& operator()(Accumulator& c, int m, int n) const {
    return c[m][n];
  }
};

/// The same values for all column blocks, instead of what the accumulators hold.
template <int MBlocks>
struct RowStart {
  float values[MBlocks][4];
  template <class Accumulator>
  __device__ __forceinline__ const float (&operator()(Accumulator&, int m, int) const)[4] {
    return values[m];
  }
};

/// c += A B over `Steps` k16 steps; c is MBlocks x NBlocks accumulator atoms of 16 x 8. With `Prefetch`, the fragments
/// of the next step are loaded before the products of this one, so that the loads' latency is hidden, at the price of
/// their registers. `between(step)` is independent arithmetic that the tensor cores hide. `start(c, m, n)` is the value
/// that atom (m, n) starts from.
template <bool Bf16, int Steps, bool Prefetch = true, int MBlocks, int NBlocks, class A, class B,
          class Between = NothingBetween, class Start = AccumulatorStart>
__device__ __forceinline__ void multiply_accumulate(float (&c)[MBlocks][NBlocks][4], const A& a, const B& b,
                                                    const Between& between = {}, const Start& start = {}) {
  static_assert(NBlocks % 2 == 0);
  constexpr int kBuffers = Prefetch ? 2 : 1;
  std::uint32_t fragment_a[kBuffers][MBlocks][4];
  std::uint32_t fragment_b[kBuffers][NBlocks / 2][4];
  const auto load = [&](int step) {
#pragma unroll
    for (int m = 0; m < MBlocks; ++m) a.load(fragment_a[step % kBuffers][m], m, step);
#pragma unroll
    for (int n = 0; n < NBlocks / 2; ++n) b.load(fragment_b[step % kBuffers][n], n, step);
  };
  if constexpr (Prefetch) load(0);
#pragma unroll
  for (int step = 0; step < Steps; ++step) {
    if (!Prefetch || step + 1 < Steps) load(Prefetch ? step + 1 : step);
#pragma unroll
    for (int m = 0; m < MBlocks; ++m)
#pragma unroll
      for (int n = 0; n < NBlocks; ++n) {
        const std::uint32_t b0 = fragment_b[step % kBuffers][n / 2][n % 2 * 2];
        const std::uint32_t b1 = fragment_b[step % kBuffers][n / 2][n % 2 * 2 + 1];
        if (step == 0)
          ptx::mma_m16n8k16<Bf16>(c[m][n], fragment_a[step % kBuffers][m], b0, b1, start(c, m, n));
        else
          ptx::mma_m16n8k16<Bf16>(c[m][n], fragment_a[step % kBuffers][m], b0, b1, c[m][n]);
      }
    between(step);
  }
}

template <int MBlocks, int NBlocks>
__device__ __forceinline__ void clear(float (&c)[MBlocks][NBlocks][4]) {
#pragma unroll
  for (int m = 0; m < MBlocks; ++m)
#pragma unroll
    for (int n = 0; n < NBlocks; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) c[m][n][i] = 0.0f;
}

}  // namespace flashdma_bwd::ampere
