// Which layout is made of a mask that asks for none, and which rule says so: the library, the generator's explain and
// the tuner go by it.
#pragma once

#include <cstdint>
#include <flashdma_bwd/kernel_table.hpp>
#include <string>

namespace flashdma_bwd {

/// With fewer keys the launches that reorder them cost more than tiles.
inline constexpr std::int64_t kFewestReorderedKeys = 2048;

/// The rule that decided a layout.
enum class LayoutRule : std::uint8_t {
  asked_for,
  tile_bias,  ///< its fast kernels need the keys' own order
  one_row,    ///< all queries share their keys
  few_keys,
  each_mask,  ///< reordered, but for the masks that, counted on the device, gain nothing by it
};

struct LayoutChoice {
  KeyLayout layout = KeyLayout::natural;
  LayoutRule rule = LayoutRule::asked_for;
  friend constexpr bool operator==(const LayoutChoice&, const LayoutChoice&) = default;
};

/// Of a mask whose layout nobody asks for. The first rule that holds decides.
constexpr LayoutChoice automatic_layout(bool one_row, bool tile_bias, std::int64_t seqlen_k) {
  if (tile_bias) return {KeyLayout::natural, LayoutRule::tile_bias};
  if (one_row) return {KeyLayout::compacted, LayoutRule::one_row};
  if (seqlen_k < kFewestReorderedKeys) return {KeyLayout::natural, LayoutRule::few_keys};
  return {KeyLayout::reordered, LayoutRule::each_mask};
}

/// The rule in words.
inline std::string layout_rule_text(LayoutRule rule) {
  switch (rule) {
    case LayoutRule::asked_for:
      return "asked for";
    case LayoutRule::one_row:
      return "one row: all queries share their keys";
    case LayoutRule::tile_bias:
      return "tile bias: its fast kernels need the keys' own order";
    case LayoutRule::few_keys:
      return "fewer than " + std::to_string(kFewestReorderedKeys) + " keys";
    case LayoutRule::each_mask:
      break;
  }
  return "each mask decides on the device, and keeps the keys' own order where another would save no tiles";
}

}  // namespace flashdma_bwd
