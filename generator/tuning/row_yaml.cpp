// Keys in the order of config/fields.cpp, numbers in the columns of the shipped tables.
#include "tuning/row_yaml.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "selection/configuration_name.hpp"
#include "selection/kernel_family.hpp"
#include "selection/problem_text.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd::generator {
namespace {

/// `key: value` pairs of a mapping in one line.
class Pairs {
 public:
  void add(std::string_view key, const std::string& value) {
    text_ += (text_.empty() ? "" : ", ") + std::string(key) + ": " + value;
  }
  std::string text() const { return '{' + text_ + '}'; }

 private:
  std::string text_;
};

/// Three characters wide, as the sizes of tiles and heads stand in columns.
std::string padded(int value) {
  std::string text = std::to_string(value);
  while (text.size() < 3) text.insert(0, 1, ' ');
  return text;
}

std::string flag(bool value) {
  return value ? "true" : "false";
}

/// In double quotes, so that it is a text whatever it looks like.
std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

/// Four significant digits are more than times repeat to.
std::string milliseconds(double ms) {
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), ms, std::chars_format::general, 4);
  std::string text(buffer.data(), end.ptr);
  return text.find('e') == std::string::npos ? text : "0";  // less than a tenth of a nanosecond
}

template <class Enum>
void add_set(Pairs& when, std::string_view key, EnumSet<Enum> set) {
  if ((set.bits & all_bits<Enum>()) == all_bits<Enum>()) return;
  std::string words;
  int count = 0;
  for (std::size_t i = 0; i < words_of(Enum{}).size(); ++i)
    if (set.contains(static_cast<Enum>(i))) {
      words += (count++ == 0 ? "" : ", ") + std::string(words_of(Enum{})[i]);
    }
  when.add(key, count == 1 ? words : '[' + words + ']');
}

void add_choice(Pairs& when, std::string_view key, Choice choice) {
  if (choice != Choice::any) when.add(key, flag(choice == Choice::yes));
}

void add_range(Pairs& when, std::string_view key, const Range& range, const Range& everything) {
  if (range == everything) return;
  if (range.low == range.high) {
    when.add(key, std::to_string(range.low));
    return;
  }
  const std::string low = range.low == everything.low ? "" : std::to_string(range.low);
  const std::string high = range.high == everything.high ? "" : std::to_string(range.high);
  when.add(key, low + ".." + high);
}

std::string when_yaml(const When& when) {
  const When everything;
  Pairs pairs;
  pairs.add("head_dim", padded(when.head_dim));
  add_set(pairs, "data_type", when.data_types);
  add_set(pairs, "bias", when.biases);
  add_set(pairs, "layout", when.layouts);
  add_choice(pairs, "bias_copies", when.bias_copies);
  add_choice(pairs, "softcap", when.softcap);
  add_choice(pairs, "causal", when.causal);
  add_choice(pairs, "deterministic", when.deterministic);
  add_choice(pairs, "masked", when.masked);
  add_range(pairs, "seqlen_q", when.seqlen_q, everything.seqlen_q);
  add_range(pairs, "seqlen_k", when.seqlen_k, everything.seqlen_k);
  add_range(pairs, "work_items_per_sm", when.work_items_per_sm, everything.work_items_per_sm);
  add_range(pairs, "mask_density", when.mask_density, everything.mask_density);
  return pairs.text();
}

/// In the order of a tile's name, but flags, which are left out where they are false, last.
std::string use_yaml(const TileConfig& tile) {
  Pairs pairs;
  if (tile.family != KernelFamily::ampere) pairs.add("family", std::string(word(tile.family)));
  for (const TileField& field : tile_fields(tile.family))
    if (field.number != nullptr) {
      const bool in_columns = field.name == "block_m" || field.name == "block_n";
      pairs.add(field.name, in_columns ? padded(tile.*field.number) : std::to_string(tile.*field.number));
    }
  for (const TileField& field : tile_fields(tile.family))
    if (field.flag != nullptr && tile.*field.flag) pairs.add(field.name, "true");
  return pairs.text();
}

std::string measured_yaml(const TunedRow& row, const MeasuredWhere& where) {
  const MeasuredTile& won = *find_tile(*row.shown, row.use);
  Pairs pairs;
  pairs.add("gpu", quoted(where.gpu));
  pairs.add("sm_count", std::to_string(where.sm_count));
  pairs.add("toolkit", quoted(where.toolkit));
  pairs.add("driver", quoted(where.driver));
  pairs.add("date", row.shown->date);
  pairs.add("commit", quoted(where.commit));
  if (!where.source.empty()) pairs.add("source", quoted(where.source));
  pairs.add("problem", quoted(problem_text(row.shown->problem)));
  pairs.add("ms", milliseconds(won.cold.ms));
  pairs.add("spread_ms", milliseconds(won.cold.spread_ms));
  pairs.add("runner_up", tile_name(row.runner_up->tile));
  pairs.add("runner_up_ms", milliseconds(row.runner_up->cold.ms));
  pairs.add("problems", std::to_string(row.problems));
  pairs.add("worst_regret_percent", milliseconds(std::round(row.worst_regret * 1000) / 10));
  return pairs.text();
}

}  // namespace

std::string row_yaml(const TunedRow& row, const MeasuredWhere& where, std::size_t use_column) {
  std::string text = "- {when: " + when_yaml(row.when) + ',';
  text.resize(std::max(text.size() + 1, use_column), ' ');
  text += "use: " + use_yaml(row.use);
  if (!row.derived.empty()) text += ", derived: " + quoted(row.derived);
  return text + ", measured: " + measured_yaml(row, where) + '}';
}

}  // namespace flashdma_bwd::generator
