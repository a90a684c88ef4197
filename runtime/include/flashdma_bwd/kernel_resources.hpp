// Closed formulas for what a configuration needs: shared memory, threads, accumulator registers, divisibility.
//
// The generator checks tables with these formulas before nvcc sees anything; the kernels assert at compile time that
// their own storage has exactly these sizes. Units: bytes, 32-bit registers per thread, threads.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>

namespace flashdma_bwd {

/// Threads of a CTA.
constexpr int threads_per_block(const TileConfig& tile) {
  return tile.warps * 32;
}

/// The parts of a CTA's shared memory, in bytes, in the order in which they lie there.
struct SharedMemoryLayout {
  int key = 0;          ///< K tile: block_n x head_dim 16-bit
  int value = 0;        ///< V tile, 0 if it stays in registers
  int query = 0;        ///< Q tiles: q_stages x block_m x head_dim 16-bit
  int d_out = 0;        ///< dO tiles: do_stages x block_m x head_dim 16-bit
  int probability = 0;  ///< P tile: block_m x block_n 16-bit
  int d_score = 0;      ///< dS tile: block_m x block_n 16-bit
  int statistics = 0;   ///< LSE and D of the query tiles: 2 x 2 x block_m float32
  int positions = 0;    ///< key positions: block_n int32
  int bias = 0;         ///< key-vector bias: block_n float32
  int state = 0;        ///< what the CTA knows about its item
  constexpr int total() const {
    return key + value + query + d_out + probability + d_score + statistics + positions + bias + state;
  }
};

constexpr SharedMemoryLayout shared_memory_layout(const KernelConfig& config) {
  const TileConfig& tile = config.tile;
  SharedMemoryLayout layout;
  layout.key = tile.block_n * config.head_dim * 2;
  layout.value = tile.value_in_registers ? 0 : tile.block_n * config.head_dim * 2;
  layout.query = tile.q_stages * tile.block_m * config.head_dim * 2;
  layout.d_out = tile.do_stages * tile.block_m * config.head_dim * 2;
  layout.probability = tile.block_m * tile.block_n * 2;
  layout.d_score = tile.block_m * tile.block_n * 2;
  layout.statistics = 2 * 2 * tile.block_m * 4;
  layout.positions = tile.block_n * 4;
  layout.bias = tile.block_n * 4;
  layout.state = 256;
  return layout;
}

/// Bytes of shared memory that a CTA needs.
constexpr int shared_memory_bytes(const KernelConfig& config) {
  return shared_memory_layout(config).total();
}

/// Accumulator registers a thread holds through the loop: dK and dV.
constexpr int resident_accumulator_registers(const KernelConfig& config) {
  return 2 * config.tile.block_n * config.head_dim / threads_per_block(config.tile);
}

/// V fragments a thread holds through the loop when `value_in_registers`: the warps along the queries each keep a copy.
constexpr int resident_value_registers(const KernelConfig& config) {
  if (!config.tile.value_in_registers) return 0;
  return config.tile.block_n * config.head_dim * 2 * config.tile.score_warps_m / (threads_per_block(config.tile) * 4);
}

/// Accumulators of the step: S and dP together, or dQ, whichever is larger.
constexpr int step_accumulator_registers(const KernelConfig& config) {
  const int scores = 2 * config.tile.block_m * config.tile.block_n / threads_per_block(config.tile);
  const int d_query = config.tile.block_m * config.head_dim / threads_per_block(config.tile);
  return scores > d_query ? scores : d_query;
}

/// Registers that the compiler needs beside accumulators: operand fragments, addresses, statistics. An estimate that
/// rejects hopeless configurations early; the build's ptxas gate is the final word.
inline constexpr int kWorkingRegisters = 48;

/// Estimated peak of registers per thread.
constexpr int estimated_registers(const KernelConfig& config) {
  return resident_accumulator_registers(config) + resident_value_registers(config) +
         step_accumulator_registers(config) + kWorkingRegisters;
}

/// Registers a thread may use when one CTA fills the multiprocessor's 65536 registers, at most 255.
constexpr int available_registers(const TileConfig& tile) {
  const int share = 65536 / threads_per_block(tile) / 8 * 8;
  return share > 255 ? 255 : share;
}

/// A violated divisibility rule, or nullptr. The text names the rule in terms of the table's fields.
constexpr const char* tile_shape_violation(const TileConfig& tile, int head_dim) {
  if (tile.block_m != 32 && tile.block_m != 64 && tile.block_m != 128) return "block_m must be 32, 64 or 128";
  if (tile.block_n != 32 && tile.block_n != 64 && tile.block_n != 128) return "block_n must be 32, 64 or 128";
  if (tile.warps != 4 && tile.warps != 8) return "warps must be 4 or 8";
  if (tile.q_stages != 1 && tile.q_stages != 2) return "q_stages must be 1 or 2";
  if (tile.do_stages != 1 && tile.do_stages != 2) return "do_stages must be 1 or 2";
  if (tile.score_warps_m < 1 || tile.warps % tile.score_warps_m != 0) return "score_warps_m must divide warps";
  if (tile.dkv_warps_n < 1 || tile.warps % tile.dkv_warps_n != 0) return "dkv_warps_n must divide warps";
  if (tile.dq_warps_m < 1 || tile.warps % tile.dq_warps_m != 0) return "dq_warps_m must divide warps";
  if (tile.block_m % (16 * tile.score_warps_m) != 0) return "block_m must be a multiple of 16 * score_warps_m";
  if (tile.block_n % (16 * (tile.warps / tile.score_warps_m)) != 0)
    return "block_n must be a multiple of 16 * warps / score_warps_m";
  if (tile.block_n / (tile.warps / tile.score_warps_m) > 64)
    return "block_n * score_warps_m / warps must be at most 64";
  if (tile.block_n % (16 * tile.dkv_warps_n) != 0) return "block_n must be a multiple of 16 * dkv_warps_n";
  if (head_dim % (16 * (tile.warps / tile.dkv_warps_n)) != 0)
    return "head_dim must be a multiple of 16 * warps / dkv_warps_n";
  if (tile.block_m % (16 * tile.dq_warps_m) != 0) return "block_m must be a multiple of 16 * dq_warps_m";
  if (head_dim % (16 * (tile.warps / tile.dq_warps_m)) != 0)
    return "head_dim must be a multiple of 16 * warps / dq_warps_m";
  if (tile.value_in_registers && tile.block_n * head_dim > (tile.q_stages + tile.do_stages) * tile.block_m * head_dim)
    return "value_in_registers needs block_n <= (q_stages + do_stages) * block_m, V is loaded through their buffers";
  return nullptr;
}

}  // namespace flashdma_bwd
