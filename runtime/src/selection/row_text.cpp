// Printing and parsing of rows and table files.
#include "selection/row_text.hpp"

#include <charconv>
#include <flashdma_bwd/kernel_resources.hpp>
#include <limits>
#include <utility>

#include "selection/configuration_name.hpp"
#include "selection/kernel_family.hpp"
#include "selection/line_text.hpp"
#include "selection/number_text.hpp"
#include "selection/suggestion.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd {
namespace {

constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();

// --- printing
// ---------------------------------------------------------------------------------------------------------

template <class Enum>
void print_set(std::string& text, std::string_view name, EnumSet<Enum> set) {
  if ((set.bits & all_bits<Enum>()) == all_bits<Enum>()) return;
  text += ' ';
  text += name;
  text += '=';
  const auto words = words_of(Enum{});
  bool first = true;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!set.contains(static_cast<Enum>(i))) continue;
    if (!first) text += ',';
    text += words[i];
    first = false;
  }
}

void print_choice(std::string& text, std::string_view name, Choice choice) {
  if (choice == Choice::any) return;
  text += ' ';
  text += name;
  text += '=';
  text += word(choice);
}

void print_range(std::string& text, std::string_view name, const Range& range, const Range& everything) {
  if (range == everything) return;
  text += ' ';
  text += name;
  text += '=' + std::to_string(range.low) + "..";
  if (range.high != kUnbounded) text += std::to_string(range.high);
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\')
      result += "\\\\";
    else if (c == '\n')
      result += "\\n";
    else
      result += c;
  }
  return result;
}

// --- parsing
// ----------------------------------------------------------------------------------------------------------

/// Each returns what is wrong with `text`, or nothing.
template <class Enum>
std::string read(std::string_view text, EnumSet<Enum>& set) {
  set.bits = 0;
  do {
    const std::string_view name = take_until(text, ',');
    const auto value = enumerator<Enum>(name);
    if (!value) return quoted(name) + " is none of " + one_of(words_of(Enum{}));
    set.bits |= std::uint32_t{1} << static_cast<unsigned>(*value);
  } while (!text.empty());
  if (set.bits == all_bits<Enum>()) set = {};  // the one form of a set that admits everything
  return {};
}

std::string read(std::string_view text, Choice& choice) {
  const auto value = enumerator<Choice>(text);
  if (!value) return quoted(text) + " is none of " + one_of(kChoiceWords);
  choice = *value;
  return {};
}

std::string read(std::string_view text, int& bucket) {
  std::string_view rest = text;
  const auto number = take_number<int>(rest);
  if (!number || !rest.empty() || *number == 0 || head_dim_bucket(*number) != *number)
    return quoted(text) + " is none of the buckets 32, 64, 96, 128, 192, 256";
  bucket = *number;
  return {};
}

std::string read(std::string_view text, Range& range) {
  std::string_view rest = text;
  const auto low = take_number<std::int64_t>(rest);
  if (!low || !take_prefix(rest, "..")) return quoted(text) + " is no range: write `0..4096` or `4096..`";
  range.low = *low;
  range.high = kUnbounded;
  if (rest.empty()) return {};
  const auto high = take_number<std::int64_t>(rest);
  if (!high || !rest.empty()) return quoted(text) + " is no range: write `0..4096` or `4096..`";
  range.high = *high;
  return range.low <= range.high ? std::string() : "the range " + quoted(text) + " is empty";
}

constexpr std::string_view kConditionNames[] = {
    "head_dim",      "data_type", "bias",     "layout",   "bias_copies",       "softcap",     "causal",
    "deterministic", "masked",    "seqlen_q", "seqlen_k", "work_items_per_sm", "mask_density"};

std::string read_condition(std::string_view name, std::string_view value, When& when) {
  if (name == "head_dim") return read(value, when.head_dim);
  if (name == "data_type") return read(value, when.data_types);
  if (name == "bias") return read(value, when.biases);
  if (name == "layout") return read(value, when.layouts);
  if (name == "bias_copies") return read(value, when.bias_copies);
  if (name == "softcap") return read(value, when.softcap);
  if (name == "causal") return read(value, when.causal);
  if (name == "deterministic") return read(value, when.deterministic);
  if (name == "masked") return read(value, when.masked);
  if (name == "seqlen_q") return read(value, when.seqlen_q);
  if (name == "seqlen_k") return read(value, when.seqlen_k);
  if (name == "work_items_per_sm") return read(value, when.work_items_per_sm);
  if (name == "mask_density") return read(value, when.mask_density);
  const std::string_view near = nearest_of(name, {std::begin(kConditionNames), std::end(kConditionNames)});
  return quoted(name) + " is no condition" + (near.empty() ? "" : ", did you mean " + quoted(near) + '?');
}

std::string read_conditions(std::string_view text, When& when) {
  std::vector<std::string_view> seen;
  while (!text.empty()) {
    std::string_view value = take_until(text, ' ');
    if (value.empty()) continue;
    if (value.find('=') == std::string_view::npos) return quoted(value) + " is no condition: write `name=value`";
    const std::string_view name = take_until(value, '=');
    for (const std::string_view other : seen)
      if (other == name) return quoted(name) + " is given twice";
    seen.push_back(name);
    if (std::string error = read_condition(name, value, when); !error.empty()) return std::string(name) + ": " + error;
  }
  if (when.head_dim == 0) return "`head_dim=<bucket>` is missing";
  return {};
}

std::string read_provenance(std::string_view text, OwnedRow& row) {
  std::string_view rest = text;
  const auto kind = enumerator<ProvenanceKind>(take_until(rest, ':'));
  if (!kind) return "expected `derived: <text>` or `measured: <text>` behind `;`, not " + quoted(text);
  take_prefix(rest, " ");
  row.row.provenance = *kind;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    if (rest[i] == '\\' && i + 1 < rest.size()) {
      ++i;
      row.provenance_text += rest[i] == 'n' ? '\n' : rest[i];
    } else {
      row.provenance_text += rest[i];
    }
  }
  return {};
}

std::string read_row(std::string_view line, OwnedRow& row) {
  const std::string_view architecture = take_until(line, ' ');
  const auto value = enumerator<Architecture>(architecture);
  if (!value) return quoted(architecture) + " is none of " + one_of(kArchitectureWords);
  row.row.architecture = *value;

  const std::size_t arrow = line.find("=> ");
  if (arrow == std::string_view::npos) return "` => <tile>` is missing";
  if (std::string error = read_conditions(line.substr(0, arrow), row.row.when); !error.empty()) return error;
  line.remove_prefix(arrow + 3);

  const std::string_view tile = take_until(line, ' ');
  Parsed<TileConfig> parsed = parse_tile_name(tile);
  if (!parsed) return "the tile " + quoted(tile) + ": " + parsed.error;
  row.row.use = *parsed.value;
  if (!runs_on(row.row.use.family, row.row.architecture))
    return "the tile " + quoted(tile) + ": kernels of its family do not run on " + std::string(architecture);
  if (const char* violation = tile_shape_violation(row.row.use, row.row.when.head_dim))
    return "the tile " + quoted(tile) + ": " + violation;
  if (!take_prefix(line, "; ")) return "` ; derived: <text>` or ` ; measured: <text>` is missing";
  return read_provenance(line, row);
}

}  // namespace

std::string row_text(const Row& row) {
  const When& when = row.when;
  const When everything;
  std::string text(word(row.architecture));
  text += " head_dim=" + std::to_string(when.head_dim);
  print_set(text, "data_type", when.data_types);
  print_set(text, "bias", when.biases);
  print_set(text, "layout", when.layouts);
  print_choice(text, "bias_copies", when.bias_copies);
  print_choice(text, "softcap", when.softcap);
  print_choice(text, "causal", when.causal);
  print_choice(text, "deterministic", when.deterministic);
  print_choice(text, "masked", when.masked);
  print_range(text, "seqlen_q", when.seqlen_q, everything.seqlen_q);
  print_range(text, "seqlen_k", when.seqlen_k, everything.seqlen_k);
  print_range(text, "work_items_per_sm", when.work_items_per_sm, everything.work_items_per_sm);
  print_range(text, "mask_density", when.mask_density, everything.mask_density);
  text += " => " + tile_name(row.use) + " ; ";
  text += word(row.provenance);
  return text + ": " + escaped(row.provenance_text);
}

Parsed<OwnedRow> parse_row(std::string_view line) {
  OwnedRow row;
  if (std::string error = read_row(line, row); !error.empty()) return Parsed<OwnedRow>::failure(error);
  return row;
}

std::string TableFile::read(std::string_view text, std::string path) {
  path_ = std::move(path);
  texts_.clear();
  rows_.clear();
  int line_number = 0;
  const auto failure = [&](const std::string& why) { return path_ + ':' + std::to_string(line_number) + ": " + why; };
  while (!text.empty() || line_number == 0) {
    std::string_view line = take_until(text, '\n');
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line_number == 1) {
      if (line != kTableFileHeader) return failure("the first line must be " + quoted(kTableFileHeader));
      continue;
    }
    if (line.empty() || line[0] == '#') continue;
    Parsed<OwnedRow> parsed = parse_row(line);
    if (!parsed) return failure(parsed.error);
    OwnedRow& owned = *parsed.value;
    texts_.push_back(std::move(owned.provenance_text));
    owned.row.provenance_text = texts_.back();
    owned.row.file = path_;
    owned.row.line = line_number;
    rows_.push_back(owned.row);
  }
  return {};
}

}  // namespace flashdma_bwd
