// The canonical name of a kernel configuration: its identity in files, symbols, logs, overrides and benchmarks.
//
//     bwd_<architecture>_d<bucket>_<fp16|bf16>_<tile>_<nobias|keybias|tilebias>[_softcap]
//     tile:
//     ampere_m<block_m>n<block_n>_w<warps>_s<score_warps_m>_kv<dkv_warps_n>_dq<dq_warps_m>_q<q_stages>_do<do_stages>[_vreg]
//     hopper_m<block_m>n<block_n>_wg<consumer_warpgroups>_q<q_stages>_do<do_stages>_ds<ds_stages>[_items]
//           _r<producer_registers>c<consumer_registers>[_pair]
//
// A name is a C identifier. Printing and parsing are symmetric: parse_configuration_name(configuration_name(c)) == c,
// and only canonical texts are parsed.
#pragma once

#include <array>
#include <cstddef>
#include <flashdma_bwd/kernel_table.hpp>
#include <string>
#include <string_view>

#include "selection/parsed.hpp"

namespace flashdma_bwd {

std::string tile_name(const TileConfig& tile);
std::string configuration_name(const KernelConfig& config);

Parsed<TileConfig> parse_tile_name(std::string_view text);
Parsed<KernelConfig> parse_configuration_name(std::string_view text);

/// A canonical name without an allocation. Names of configurations that pass `tile_shape_violation` fit.
class NameBuffer {
 public:
  explicit NameBuffer(const KernelConfig& config);
  std::string_view view() const { return {text_.data(), size_}; }

 private:
  std::array<char, 128> text_;
  std::size_t size_ = 0;
};

}  // namespace flashdma_bwd
