// C++ expressions, with designated initialisers, so that the emitted code reads without the header beside it.
#include "emit/cpp_text.hpp"

#include <limits>

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

std::string cpp_tile(const TileConfig& t) {
  const auto integer = [](const char* name, int value) {
    return std::string(", .") + name + " = " + std::to_string(value);
  };
  return "{\n    .family = KernelFamily::" + enumerator_name(t.family) + integer("block_m", t.block_m) +
         integer("block_n", t.block_n) + integer("warps", t.warps) + integer("score_warps_m", t.score_warps_m) +
         ",\n    " + integer("dkv_warps_n", t.dkv_warps_n).substr(2) + integer("dq_warps_m", t.dq_warps_m) +
         integer("q_stages", t.q_stages) + integer("do_stages", t.do_stages) +
         ", .value_in_registers = " + boolean(t.value_in_registers) + '}';
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
