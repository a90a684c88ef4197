// C++ expressions, with designated initialisers, so that the emitted code reads without the header beside it.
#include "emit/cpp_text.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "selection/kernel_family.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd::generator {
namespace {

/// Enumerators are called by the words of the tables.
std::string enumerator_name(auto value) {
  return std::string(word(value));
}
const char* boolean(bool value) {
  return value ? "true" : "false";
}

std::string bound(std::int64_t value) {
  return value == std::numeric_limits<std::int64_t>::max() ? "std::numeric_limits<std::int64_t>::max()"
                                                           : std::to_string(value);
}

}  // namespace

std::string cpp_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

std::string cpp_tile(const TileConfig& tile) {
  constexpr int kFieldsPerLine = 5;
  const auto address = [&](const TileField& field) {
    return field.number != nullptr ? static_cast<const void*>(&(tile.*field.number)) : &(tile.*field.flag);
  };
  std::vector<TileField> fields(tile_fields(tile.family).begin(), tile_fields(tile.family).end());
  // Designated initialisers stand in the order of declaration, which is that of the addresses.
  std::ranges::sort(fields, std::ranges::less{}, address);
  std::string text = "{\n    .family = KernelFamily::" + enumerator_name(tile.family);
  int count = 1;
  for (const TileField& field : fields) {
    text += count++ % kFieldsPerLine == 0 ? ",\n    ." : ", .";
    text += std::string(field.name) + " = ";
    text += field.number != nullptr ? std::to_string(tile.*field.number) : boolean(tile.*field.flag);
  }
  return text + '}';
}

std::string cpp_config(const KernelConfig& config, const std::string& tile) {
  return "KernelConfig{.architecture = Architecture::" + enumerator_name(config.architecture) +
         ", .head_dim = " + std::to_string(config.head_dim) +
         ", .data_type = DataType::" + enumerator_name(config.data_type) +
         ",\n                 .bias = BiasKind::" + enumerator_name(config.bias) +
         ", .softcap = " + boolean(config.softcap) + ", .tile = " + tile + '}';
}

std::string cpp_when(const When& when) {
  const When all;
  std::string text = "{.head_dim = " + std::to_string(when.head_dim);
  const auto set = [&](const char* name, std::uint32_t bits, std::uint32_t all_bits) {
    if (bits != all_bits) text += std::string(", .") + name + " = {" + std::to_string(bits) + '}';
  };
  const auto choice = [&](const char* name, Choice value) {
    if (value != Choice::any) text += std::string(", .") + name + " = Choice::" + (value == Choice::yes ? "yes" : "no");
  };
  const auto range = [&](const char* name, const Range& value, const Range& everything) {
    if (value != everything)
      text += std::string(", .") + name + " = {" + bound(value.low) + ", " + bound(value.high) + '}';
  };
  set("data_types", when.data_types.bits, all.data_types.bits);
  set("biases", when.biases.bits, all.biases.bits);
  set("layouts", when.layouts.bits, all.layouts.bits);
  choice("bias_copies", when.bias_copies);
  choice("softcap", when.softcap);
  choice("causal", when.causal);
  choice("deterministic", when.deterministic);
  choice("masked", when.masked);
  range("seqlen_q", when.seqlen_q, all.seqlen_q);
  range("seqlen_k", when.seqlen_k, all.seqlen_k);
  range("work_items_per_sm", when.work_items_per_sm, all.work_items_per_sm);
  range("mask_density", when.mask_density, all.mask_density);
  return text + '}';
}

}  // namespace flashdma_bwd::generator
