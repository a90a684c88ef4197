// Closed formulas for what a configuration needs: shared memory, threads, accumulator registers, divisibility.
//
// The generator checks tables with these formulas before nvcc sees anything; the kernels assert at compile time that
// their own storage has exactly these sizes. Units: bytes, 32-bit registers per thread, threads.
#pragma once

#include <algorithm>
#include <flashdma_bwd/kernel_table.hpp>

namespace flashdma_bwd {

inline constexpr int kWarpgroupThreads = 128;

/// Threads of a CTA.
constexpr int threads_per_block(const TileConfig& tile) {
  return tile.family == KernelFamily::hopper ? (1 + tile.consumer_warpgroups) * kWarpgroupThreads : tile.warps * 32;
}

/// Keys of a CTA: of its tile, or half of the tile that it shares with the other CTA of its cluster.
constexpr int keys_per_block(const TileConfig& tile) {
  return tile.cta_pair ? tile.block_n / 2 : tile.block_n;
}

/// CTAs that work at an item.
constexpr int blocks_per_item(const TileConfig& tile) {
  return tile.cta_pair ? 2 : 1;
}

/// Whether a Hopper kernel accumulates dK and dV transposed, with the head dim as the products' rows: 96 keys, which
/// are no multiple of these, so that a CTA holds both for a head dim of 192.
constexpr bool accumulates_transposed(const TileConfig& tile) {
  return tile.family == KernelFamily::hopper && tile.block_n == 96;
}

/// The parts of a CTA's shared memory in the Ampere family, in bytes, in the order in which they lie there.
struct AmpereSharedMemory {
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

constexpr AmpereSharedMemory ampere_shared_memory(const KernelConfig& config) {
  const TileConfig& tile = config.tile;
  AmpereSharedMemory layout;
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

/// Tiles of dS that the other CTA of cta_pair sends ahead: as many as the shared memory leaves room for.
constexpr int pair_other_d_score_stages(const KernelConfig& config) {
  return config.head_dim > 192 ? 1 : 2;
}

/// Columns of a warpgroup's share of dQ, half of the head dim, that transposed gradients send through a bulk buffer:
/// half of them, or where a second buffer of dO takes the room a quarter. The warpgroup adds the others itself.
constexpr int transposed_d_query_part(const KernelConfig& config) {
  return config.head_dim / (config.tile.do_stages > 1 ? 8 : 4);
}

/// Columns of a warpgroup's share of dQ, a quarter of the head dim, that a pair of CTAs sends through a bulk buffer:
/// half of them, or where a tile bias, or P with a softcap and a key bias, takes the room a quarter. The warpgroup adds
/// the others itself.
constexpr int pair_d_query_part(const KernelConfig& config) {
  const bool both = config.softcap && config.bias == BiasKind::key_vector;
  const bool no_room = config.head_dim > 192 && (both || config.bias == BiasKind::tile);
  return config.head_dim / (no_room ? 16 : 8);
}

/// Whether a kernel can leave dQ to one behind it, which multiplies the gradient of a tile bias by K: where that
/// gradient is dS. With fewer columns adding to dQ takes less than reading dS once more
/// (runtime/kernels/hopper/NOTES.md).
constexpr bool multiplies_bias_gradient(const KernelConfig& config) {
  return config.tile.family == KernelFamily::hopper && config.bias == BiasKind::tile && !config.softcap &&
         config.head_dim >= 128;
}

/// Whether a kernel's products subtract D and, without a softcap, LSE (runtime/kernels/common/statistic_terms.hpp). A
/// tile bias is bound elsewhere; with 32 columns, and with 96 and a softcap, or neither a bias nor several items,
/// nothing was gained (runtime/kernels/hopper/NOTES.md). With 128 columns two tiles of K, or four of dS, leave no room
/// beside a key bias.
constexpr bool has_statistic_terms(const KernelConfig& config) {
  const TileConfig& tile = config.tile;
  const bool key_bias = config.bias == BiasKind::key_vector;
  if (tile.family != KernelFamily::hopper || tile.cta_pair || config.bias == BiasKind::tile) return false;
  switch (config.head_dim) {
    case 64:
      return true;
    case 96:
      return !config.softcap && (key_bias || tile.several_items);
    case 128:
      return !key_bias || (!tile.several_items && tile.ds_stages <= 2);
    default:
      return false;
  }
}

/// Whether a softcap's weights P (1 - tanh^2), which are at most 1, are handed over as fp16, from one warpgroup of a
/// pair of CTAs to the other.
constexpr bool packs_weights(const KernelConfig& config) {
  const TileConfig& tile = config.tile;
  return tile.family == KernelFamily::hopper && config.softcap && config.bias == BiasKind::none && tile.cta_pair;
}
/// What they are multiplied by then, so that small ones keep its precision, and what tanh is, for the slopes.
inline constexpr float kPackedWeightScale = 16384.0f;
constexpr float tanh_scale(const KernelConfig& config) {
  return packs_weights(config) ? 128.0f : 1.0f;
}

/// What compute capability 9.0 gives a block.
inline constexpr int kHopperSharedMemoryBytes = 227 * 1024;
/// Buffers of the ring of dS with a tile bias, whose tiles are loaded into them: as many as there is room for, but no
/// more than `state` holds barriers of, and no fewer than leave one to load into while two are read.
inline constexpr int kMostTileBiasStages = 4;
inline constexpr int kFewestTileBiasStages = 3;
/// Buffers of a tile bias's own ring: with a softcap its gradient is not dS.
inline constexpr int kTileBiasRingStages = 2;

/// Buffers of Q and of dO of a pair of CTAs that leaves dQ to another kernel: as many as what dQ does not need leaves
/// room for, but no more than three of each.
constexpr int pair_buffers_without_d_query(const KernelConfig& config) {
  return config.head_dim > 192 ? 2 : 3;
}

/// The same for the Hopper family. The parts up to tile_bias, and `probability`, begin at multiples of 1024 bytes; the
/// kernels that have the latter place it before `mask`.
struct HopperSharedMemory {
  int key = 0;      ///< K tile: the CTA's keys x head_dim 16-bit, twice with several_items; cta_pair:
                    ///< and half the columns of the other's
  int value = 0;    ///< V tile: the CTA's keys x head_dim 16-bit
  int query = 0;    ///< Q tiles: q_stages x block_m x head_dim 16-bit
  int d_out = 0;    ///< dO tiles: do_stages x block_m x head_dim 16-bit
  int d_score = 0;  ///< dS tiles: ds_stages x block_m x the CTA's keys 16-bit; cta_pair: and one or two of the other's
  int d_query = 0;  ///< dQ on its way to global memory: block_m x head_dim float32; cta_pair: a quarter of it or an
                    ///< eighth; transposed gradients: half or a quarter
  int tile_bias = 0;    ///< what a tile bias adds to the ring of dS beyond ds_stages, or with a softcap its own ring
                        ///< behind that; cta_pair: block_m x the CTA's keys 16-bit, behind d_query
  int mask = 0;         ///< q_stages x block_m words of 64 keys for each 64 of the CTA's keys; none where there is no
                        ///< room, with several_items or a tile bias, nor with 128 columns without a bias: there
                        ///< consumers read their words from global memory
  int probability = 0;  ///< cta_pair: P from one warpgroup to the other, block_m x the CTA's keys 16-bit; with softcap
                        ///< and a key bias twice that; transposed gradients: before it P as an operand, as much
  int statistics = 0;   ///< LSE by the stages of Q and D by the stages of dO: block_m float32 each; as terms of
                        ///< products, both by the stages of Q: block_m x 8 16-bit
  int bias = 0;         ///< key-vector bias: a float32 for each of the CTA's keys, and two sums of dS for each
                        ///< thread of a consumer; where there is no room for these, one for each key;
                        ///< transposed gradients: one for each key and warp of a consumer
  int state = 0;        ///< barriers and what the warps tell each other
  constexpr int total() const {
    return key + value + query + d_out + d_score + d_query + tile_bias + mask + probability + statistics + bias + state;
  }
};

/// `adds_d_query` false: of a pair of CTAs that leaves dQ to another kernel, see multiplies_bias_gradient(), which has
/// none of the other CTA's keys and dS.
constexpr HopperSharedMemory hopper_shared_memory(const KernelConfig& config, bool adds_d_query = true) {
  const TileConfig& tile = config.tile;
  HopperSharedMemory layout;
  const int keys = keys_per_block(tile);
  layout.key = keys * config.head_dim * 2;
  layout.value = keys * config.head_dim * 2;
  layout.query = tile.q_stages * tile.block_m * config.head_dim * 2;
  layout.d_out = tile.do_stages * tile.block_m * config.head_dim * 2;
  layout.d_score = tile.ds_stages * tile.block_m * tile.block_n * 2;
  layout.statistics = (tile.q_stages + tile.do_stages) * tile.block_m * 4;
  layout.state = tile.cta_pair ? 768 : accumulates_transposed(tile) ? 1536 : 1024;
  const bool key_bias = config.bias == BiasKind::key_vector;
  if (tile.cta_pair) {
    layout.key += keys * (config.head_dim / 2) * 2;
    layout.d_score = (tile.ds_stages + pair_other_d_score_stages(config)) * tile.block_m * keys * 2;
    layout.d_query = 2 * tile.block_m * pair_d_query_part(config) * 4;
    if (config.bias == BiasKind::tile) {
      layout.tile_bias = tile.block_m * keys * 2;
      layout.state += 256;
    }
    layout.probability = tile.block_m * keys * (config.softcap && key_bias ? 4 : 2);
    if (key_bias) layout.bias = keys * 4 + kWarpgroupThreads * 8;
    if (!adds_d_query) {
      const int buffers = pair_buffers_without_d_query(config);
      layout.key = keys * config.head_dim * 2;
      layout.query = layout.d_out = buffers * tile.block_m * config.head_dim * 2;
      layout.d_score = tile.ds_stages * tile.block_m * keys * 2;
      layout.d_query = 0;
      layout.statistics = 2 * buffers * tile.block_m * 4;
    }
  } else if (accumulates_transposed(tile)) {
    layout.d_query = 2 * tile.block_m * transposed_d_query_part(config) * 4;
    layout.probability = tile.block_m * keys * (config.softcap && key_bias ? 6 : 4);
    if (key_bias) layout.bias = (1 + kWarpgroupThreads / 32) * keys * 4;
  } else {
    layout.d_query = tile.block_m * config.head_dim * 4;
    if (tile.several_items) layout.key *= 2;
    if (has_statistic_terms(config)) layout.statistics = tile.q_stages * tile.block_m * 16;
    if (config.bias == BiasKind::tile && config.softcap) {
      layout.tile_bias = kTileBiasRingStages * tile.block_m * tile.block_n * 2;
    } else if (config.bias == BiasKind::tile) {
      const int bytes = tile.block_m * tile.block_n * 2;
      const int room = (kHopperSharedMemoryBytes - layout.total()) / bytes;
      const int most = std::max(kMostTileBiasStages - tile.ds_stages, 0);
      const int fewest = std::max(kFewestTileBiasStages - tile.ds_stages, 0);
      layout.tile_bias = std::clamp(room, fewest, most) * bytes;
    } else if (key_bias) {
      layout.bias = tile.block_n * 4;
      const int sums_of_threads = tile.consumer_warpgroups * kWarpgroupThreads * 8;
      layout.bias += layout.total() + sums_of_threads <= kHopperSharedMemoryBytes ? sums_of_threads : tile.block_n * 4;
    }
  }
  // With 128 columns and no bias unmasked problems are 5 % slower for it (runtime/kernels/hopper/NOTES.md).
  const bool slower = config.head_dim == 128 && config.bias == BiasKind::none;
  const int words = tile.q_stages * tile.block_m * ((keys + 63) / 64) * 8;
  if (!tile.several_items && config.bias != BiasKind::tile && !slower &&
      layout.total() + words <= kHopperSharedMemoryBytes)
    layout.mask = words;
  return layout;
}

/// Bytes of shared memory that a CTA needs.
constexpr int shared_memory_bytes(const KernelConfig& config) {
  if (config.tile.family == KernelFamily::ampere) return ampere_shared_memory(config).total();
  const int bytes = hopper_shared_memory(config).total();
  const bool both = config.tile.cta_pair && multiplies_bias_gradient(config);
  return both ? std::max(bytes, hopper_shared_memory(config, false).total()) : bytes;
}

/// Threads among which the accumulators are spread.
constexpr int computing_threads(const TileConfig& tile) {
  return tile.family == KernelFamily::hopper ? tile.consumer_warpgroups * kWarpgroupThreads : threads_per_block(tile);
}

/// Accumulator registers a thread holds through the loop: dK and dV.
constexpr int resident_accumulator_registers(const KernelConfig& config) {
  return 2 * keys_per_block(config.tile) * config.head_dim / computing_threads(config.tile);
}

/// V fragments a thread holds through the loop when `value_in_registers`: the warps along the queries each keep a copy.
constexpr int resident_value_registers(const KernelConfig& config) {
  if (!config.tile.value_in_registers) return 0;
  return config.tile.block_n * config.head_dim * 2 * config.tile.score_warps_m / (threads_per_block(config.tile) * 4);
}

/// Accumulators of the step: S and dP together, or dQ, whichever is larger.
constexpr int step_accumulator_registers(const KernelConfig& config) {
  const int scores = 2 * config.tile.block_m * keys_per_block(config.tile) / computing_threads(config.tile);
  const int d_query =
      config.tile.block_m * config.head_dim / (computing_threads(config.tile) * blocks_per_item(config.tile));
  return scores > d_query ? scores : d_query;
}

/// Registers that the compiler needs beside accumulators: operand fragments (which Hopper reads from shared memory),
/// addresses, statistics. An estimate that rejects hopeless configurations early; the build's ptxas gate is the final
/// word.
constexpr int working_registers(const TileConfig& tile) {
  return tile.family == KernelFamily::hopper ? 40 : 48;
}

/// Estimated peak of registers per thread.
constexpr int estimated_registers(const KernelConfig& config) {
  return resident_accumulator_registers(config) + resident_value_registers(config) +
         step_accumulator_registers(config) + working_registers(config.tile);
}

/// Registers a thread may use when one CTA fills the multiprocessor's 65536 registers, at most 255. Hopper: those of a
/// consumer.
constexpr int available_registers(const TileConfig& tile) {
  if (tile.family == KernelFamily::hopper) return tile.consumer_registers;
  const int share = 65536 / threads_per_block(tile) / 8 * 8;
  return share > 255 ? 255 : share;
}

/// CTAs that a multiprocessor has room for at once, if each thread has all the registers that it may use.
constexpr int blocks_per_multiprocessor(const KernelConfig& config, const DeviceTraits& device) {
  if (config.tile.family == KernelFamily::hopper) return 1;
  // A CTA's share includes 1 KB of the system's, which is all that a multiprocessor has beyond one CTA's most.
  constexpr int kSystemBytes = 1024;
  const int by_memory = (device.shared_memory_per_block + kSystemBytes) / (shared_memory_bytes(config) + kSystemBytes);
  const int by_registers = 65536 / (threads_per_block(config.tile) * 256);
  const int blocks = by_memory < by_registers ? by_memory : by_registers;
  return blocks > 1 ? blocks : 1;
}

/// A violated rule of a Hopper tile, or nullptr.
constexpr const char* hopper_tile_violation(const TileConfig& tile, int head_dim) {
  if (tile.block_m != 64 && tile.block_m != 128) return "block_m must be 64 or 128";
  if (tile.consumer_warpgroups != 2) return "consumer_warpgroups must be 2";
  if (accumulates_transposed(tile)) {
    if (head_dim != 192)
      return "block_n must be 128 but where head_dim is 192: with 96 keys gradients are transposed, which are three of "
             "the products' 64 rows";
    if (tile.block_m != 64) return "block_m must be 64 with 96 keys";
    if (tile.cta_pair) return "cta_pair must be false with 96 keys: one block holds their gradients";
    if (tile.q_stages != 2) return "q_stages must be 2 with 96 keys";
    if (tile.do_stages + tile.ds_stages != 3 || tile.do_stages < 1 || tile.ds_stages < 1)
      return "do_stages and ds_stages must be 1 and 2, or 2 and 1, with 96 keys";
  } else {
    if (tile.cta_pair != (head_dim > 128))
      return "cta_pair must be true where head_dim is above 128, and only there: registers hold dK and dV of 64 keys";
  }
  if (tile.several_items && (tile.cta_pair || accumulates_transposed(tile)))
    return "several_items must be false with cta_pair or 96 keys: shared memory has no room for two tiles of K";
  if (tile.skip_empty_halves && (tile.cta_pair || accumulates_transposed(tile)))
    return "skip_empty_halves must be false with cta_pair or 96 keys: its halves are two warpgroups' keys";
  if (tile.block_n != 128 && !accumulates_transposed(tile)) return "block_n must be 128, or 96 where head_dim is 192";
  if (tile.block_m == 128 && head_dim > 64) return "block_m must be 64 where head_dim is above 64";
  if (tile.q_stages < 2 || tile.q_stages > 3) return "q_stages must be 2 or 3";
  if (tile.do_stages < (tile.cta_pair || accumulates_transposed(tile) ? 1 : 2) || tile.do_stages > 3)
    return "do_stages must be 2 or 3, or 1 with cta_pair or 96 keys";
  if (tile.ds_stages != 2 && (tile.ds_stages != 4 || tile.cta_pair) && !accumulates_transposed(tile))
    return "ds_stages must be 2, or 4 without cta_pair";
  if (tile.producer_registers % 8 != 0 || tile.producer_registers < 24)
    return "producer_registers must be a multiple of 8, at least 24";
  if (tile.consumer_registers % 8 != 0 || tile.consumer_registers > 256)
    return "consumer_registers must be a multiple of 8, at most 256";
  // What the launch gives each thread, in units of 8, is all that setmaxnreg can deal out: more would wait for ever.
  const int threads = threads_per_block(tile);
  if (tile.producer_registers + tile.consumer_warpgroups * tile.consumer_registers >
      65536 / threads / 8 * 8 * (threads / kWarpgroupThreads))
    return "producer_registers + consumer_warpgroups * consumer_registers must be at most what the launch gives";
  return nullptr;
}

/// A violated rule, or nullptr. The text names the rule in terms of the table's fields.
constexpr const char* tile_shape_violation(const TileConfig& tile, int head_dim) {
  if (tile.family == KernelFamily::hopper) return hopper_tile_violation(tile, head_dim);
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
