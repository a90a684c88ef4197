// Printing and parsing of canonical names.
#include "selection/configuration_name.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "selection/kernel_family.hpp"
#include "selection/number_text.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd {
namespace {

constexpr std::string_view kSoftcap = "_softcap";
constexpr std::string_view kBiasSuffixes[] = {"_nobias", "_keybias", "_tilebias"};

/// `put` receives the parts of the name in order.
template <class Put>
void print_number(int number, Put&& put) {
  char digits[16];
  const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  put(std::string_view(digits, static_cast<std::size_t>(end - digits)));
}

template <class Put>
void print_tile(const TileConfig& tile, Put&& put) {
  put(word(tile.family));
  for (const TileField& field : tile_fields(tile.family)) {
    if (field.number != nullptr || tile.*field.flag) put(field.name_prefix);
    if (field.number != nullptr) print_number(tile.*field.number, put);
  }
}

template <class Put>
void print_configuration(const KernelConfig& config, Put&& put) {
  put("bwd_");
  put(word(config.architecture));
  put("_d");
  print_number(config.head_dim, put);
  put("_");
  put(word(config.data_type));
  put("_");
  print_tile(config.tile, put);
  put(kBiasSuffixes[static_cast<std::size_t>(config.bias)]);
  if (config.softcap) put(kSoftcap);
}

/// Takes one of the words of Enum off the front of `text`.
template <class Enum>
std::optional<Enum> take_word(std::string_view& text) {
  const auto words = words_of(Enum{});
  for (std::size_t i = 0; i < words.size(); ++i)
    if (take_prefix(text, words[i])) return static_cast<Enum>(i);
  return std::nullopt;
}

std::string expected(std::string_view what, std::string_view at) {
  return "expected " + std::string(what) + (at.empty() ? " at the end" : " at `" + std::string(at) + "`");
}

/// Takes a tile off the front of `text`; returns what is wrong with it, or nothing.
std::string take_tile(std::string_view& text, TileConfig& tile) {
  const auto family = take_word<KernelFamily>(text);
  if (!family) return expected("a kernel family, `ampere` or `hopper`,", text);
  tile.family = *family;
  for (const TileField& field : tile_fields(*family)) {
    const std::string_view before = text;
    const bool found = take_prefix(text, field.name_prefix);
    if (field.flag != nullptr) {
      tile.*field.flag = found;
      continue;
    }
    const std::optional<int> number = found ? take_number<int>(text) : std::nullopt;
    if (!number) return expected("`" + std::string(field.name_prefix) + "<number>`", before);
    tile.*field.number = *number;
  }
  return {};
}

}  // namespace

std::string tile_name(const TileConfig& tile) {
  std::string name;
  print_tile(tile, [&](std::string_view part) { name += part; });
  return name;
}

std::string configuration_name(const KernelConfig& config) {
  std::string name;
  print_configuration(config, [&](std::string_view part) { name += part; });
  return name;
}

NameBuffer::NameBuffer(const KernelConfig& config) {
  print_configuration(config, [this](std::string_view part) {
    const std::size_t size = std::min(part.size(), text_.size() - size_);
    std::copy_n(part.begin(), size, text_.begin() + static_cast<std::ptrdiff_t>(size_));
    size_ += size;
  });
}

Parsed<TileConfig> parse_tile_name(std::string_view text) {
  TileConfig tile;
  if (std::string error = take_tile(text, tile); !error.empty()) return Parsed<TileConfig>::failure(error);
  if (!text.empty()) return Parsed<TileConfig>::failure("`" + std::string(text) + "` follows the tile");
  return tile;
}

Parsed<KernelConfig> parse_configuration_name(std::string_view text) {
  const auto failure = [](std::string_view what, std::string_view at) {
    return Parsed<KernelConfig>::failure(expected(what, at));
  };
  KernelConfig config;
  if (!take_prefix(text, "bwd_")) return failure("`bwd_`", text);
  const auto architecture = take_word<Architecture>(text);
  if (!architecture) return failure("an architecture such as `sm80`", text);
  config.architecture = *architecture;
  if (!take_prefix(text, "_d")) return failure("`_d<head dim>`", text);
  const auto head_dim = take_number<int>(text);
  if (!head_dim) return failure("a head dim", text);
  config.head_dim = *head_dim;
  if (!take_prefix(text, "_")) return failure("`_`", text);
  const auto data_type = take_word<DataType>(text);
  if (!data_type) return failure("`fp16` or `bf16`", text);
  config.data_type = *data_type;
  if (!take_prefix(text, "_")) return failure("`_`", text);
  if (std::string error = take_tile(text, config.tile); !error.empty()) return Parsed<KernelConfig>::failure(error);
  const auto* suffix = std::find_if(std::begin(kBiasSuffixes), std::end(kBiasSuffixes),
                                    [&](std::string_view bias) { return text.starts_with(bias); });
  if (suffix == std::end(kBiasSuffixes)) return failure("`_nobias`, `_keybias` or `_tilebias`", text);
  config.bias = static_cast<BiasKind>(suffix - std::begin(kBiasSuffixes));
  text.remove_prefix(suffix->size());
  config.softcap = take_prefix(text, kSoftcap);
  if (!text.empty()) return Parsed<KernelConfig>::failure("`" + std::string(text) + "` follows the name");
  return config;
}

}  // namespace flashdma_bwd
