// What belongs to a kernel family: the architectures that it runs on, the fields of its tiles and the biases they read.
#pragma once

#include <flashdma_bwd/kernel_resources.hpp>
#include <flashdma_bwd/kernel_table.hpp>
#include <span>
#include <string_view>

namespace flashdma_bwd {

/// wgmma and TMA, of which the Hopper family is made, are instructions of compute capability 9.0 and no other.
constexpr bool runs_on(KernelFamily family, Architecture architecture) {
  return family != KernelFamily::hopper || architecture == Architecture::sm90;
}

/// A field of TileConfig: a number or a flag.
struct TileField {
  std::string_view name;         ///< the member's, and the key of a table
  std::string_view name_prefix;  ///< in a tile's name: what stands before the number, or what stands there for true
  int TileConfig::*number = nullptr;
  bool TileConfig::*flag = nullptr;
};

/// In the order of a tile's name. Names are read and printed, tables are read and code is emitted by these lists.
inline constexpr TileField kAmpereTileFields[] = {
    {.name = "block_m", .name_prefix = "_m", .number = &TileConfig::block_m},
    {.name = "block_n", .name_prefix = "n", .number = &TileConfig::block_n},
    {.name = "warps", .name_prefix = "_w", .number = &TileConfig::warps},
    {.name = "score_warps_m", .name_prefix = "_s", .number = &TileConfig::score_warps_m},
    {.name = "dkv_warps_n", .name_prefix = "_kv", .number = &TileConfig::dkv_warps_n},
    {.name = "dq_warps_m", .name_prefix = "_dq", .number = &TileConfig::dq_warps_m},
    {.name = "q_stages", .name_prefix = "_q", .number = &TileConfig::q_stages},
    {.name = "do_stages", .name_prefix = "_do", .number = &TileConfig::do_stages},
    {.name = "value_in_registers", .name_prefix = "_vreg", .flag = &TileConfig::value_in_registers},
};
inline constexpr TileField kHopperTileFields[] = {
    {.name = "block_m", .name_prefix = "_m", .number = &TileConfig::block_m},
    {.name = "block_n", .name_prefix = "n", .number = &TileConfig::block_n},
    {.name = "consumer_warpgroups", .name_prefix = "_wg", .number = &TileConfig::consumer_warpgroups},
    {.name = "q_stages", .name_prefix = "_q", .number = &TileConfig::q_stages},
    {.name = "do_stages", .name_prefix = "_do", .number = &TileConfig::do_stages},
    {.name = "ds_stages", .name_prefix = "_ds", .number = &TileConfig::ds_stages},
    // Before what ends the name: no tile's name may be the beginning of another's, so that kernels sort as their files.
    {.name = "several_items", .name_prefix = "_items", .flag = &TileConfig::several_items},
    {.name = "skip_empty_halves", .name_prefix = "_halves", .flag = &TileConfig::skip_empty_halves},
    {.name = "producer_registers", .name_prefix = "_r", .number = &TileConfig::producer_registers},
    {.name = "consumer_registers", .name_prefix = "c", .number = &TileConfig::consumer_registers},
    {.name = "cta_pair", .name_prefix = "_pair", .flag = &TileConfig::cta_pair},
};

constexpr std::span<const TileField> tile_fields(KernelFamily family) {
  if (family == KernelFamily::hopper) return kHopperTileFields;
  return kAmpereTileFields;
}

/// The kernels of several_items, of skip_empty_halves and of transposed gradients have no tile bias.
constexpr bool reads(const TileConfig& tile, BiasKind bias) {
  if (bias != BiasKind::tile) return true;
  return !(tile.several_items || tile.skip_empty_halves || accumulates_transposed(tile));
}

}  // namespace flashdma_bwd
