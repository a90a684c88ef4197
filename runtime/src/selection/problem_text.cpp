// Printing and parsing of problems and problem files.
#include "selection/problem_text.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>

#include "selection/line_text.hpp"
#include "selection/number_text.hpp"
#include "selection/suggestion.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd {
namespace {

constexpr std::int64_t kMostOfACount = std::numeric_limits<std::int32_t>::max();  // as the arguments have it

struct CountField {
  std::string_view name;
  std::int64_t Problem::*count;
};
constexpr CountField kCounts[] = {{"b", &Problem::batch},
                                  {"h", &Problem::heads},
                                  {"hk", &Problem::heads_kv},
                                  {"sq", &Problem::seqlen_q},
                                  {"sk", &Problem::seqlen_k}};

struct FlagField {
  std::string_view name;
  bool Problem::*flag;
};
constexpr FlagField kFlags[] = {{"causal", &Problem::causal},
                                {"deterministic", &Problem::deterministic},
                                {"softcap", &Problem::softcap},
                                {"bias_copies", &Problem::bias_copies},
                                {"masked", &Problem::masked}};

/// Every word or name that a problem can have.
constexpr std::string_view kNames[] = {
    "fp16",   "bf16",          "d",       "b",    "h",           "hk",     "sq",     "sk",
    "causal", "deterministic", "softcap", "bias", "bias_copies", "masked", "layout", "density"};

// --- printing
// ---------------------------------------------------------------------------------------------------------

/// `put` receives the parts of the text in order.
template <class Put>
void print_number(std::string_view name, std::int64_t number, Put&& put) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  put(" ");
  put(name);
  put("=");
  put(std::string_view(digits, static_cast<std::size_t>(end - digits)));
}

template <class Put>
void print_flag(std::string_view name, bool holds, Put&& put) {
  if (!holds) return;
  put(" ");
  put(name);
}

template <class Put>
void print_problem(const Problem& p, Put&& put) {
  put(word(p.data_type));
  print_number("d", p.head_dim, put);
  for (const auto& [name, count] : kCounts)
    if (count != &Problem::heads_kv || p.heads_kv != p.heads) print_number(name, p.*count, put);
  print_flag("causal", p.causal, put);
  print_flag("deterministic", p.deterministic, put);
  print_flag("softcap", p.softcap, put);
  if (p.bias != BiasKind::none) {
    put(" bias=");
    put(word(p.bias));
  }
  print_flag("bias_copies", p.bias_copies, put);
  print_flag("masked", p.masked, put);
  if (p.layout != KeyLayout::natural) {
    put(" layout=");
    put(word(p.layout));
  }
  if (p.mask_density != 1000) print_number("density", p.mask_density, put);
}

// --- parsing
// ----------------------------------------------------------------------------------------------------------

/// Each returns what is wrong with `text`, or nothing.
std::string read_number(std::string_view text, std::int64_t low, std::int64_t high, std::int64_t& number) {
  std::string_view rest = text;
  const auto value = take_number<std::int64_t>(rest);
  if (!value || !rest.empty() || *value < low || *value > high)
    return quoted(text) + " is no number in " + std::to_string(low) + " ... " + std::to_string(high);
  number = *value;
  return {};
}

std::string read_head_dim(std::string_view text, int& head_dim) {
  std::int64_t number = 0;
  if (!read_number(text, 8, kMaxHeadDim, number).empty() || number % 8 != 0)
    return quoted(text) + " is no multiple of 8 in 8 ... " + std::to_string(kMaxHeadDim);
  head_dim = static_cast<int>(number);
  return {};
}

std::string read_density(std::string_view text, int& density) {
  std::int64_t number = 0;
  if (std::string error = read_number(text, 0, 1000, number); !error.empty())
    return error + ": it counts active pairs per 1000";
  density = static_cast<int>(number);
  return {};
}

template <class Enum>
std::string read_word(std::string_view text, Enum& value) {
  const auto found = enumerator<Enum>(text);
  if (!found) return quoted(text) + " is none of " + one_of(words_of(Enum{}));
  value = *found;
  return {};
}

std::string unknown(std::string_view name) {
  const std::string_view near = nearest_of(name, {std::begin(kNames), std::end(kNames)});
  return quoted(name) + " is no part of a problem" + (near.empty() ? "" : ", did you mean " + quoted(near) + '?');
}

std::string read_named(std::string_view name, std::string_view value, Problem& problem) {
  for (const auto& [count_name, count] : kCounts)
    if (name == count_name) return read_number(value, 1, kMostOfACount, problem.*count);
  if (name == "d") return read_head_dim(value, problem.head_dim);
  if (name == "bias") return read_word(value, problem.bias);
  if (name == "layout") return read_word(value, problem.layout);
  return read_density(value, problem.mask_density);
}

/// Collects what a text has and refuses what it has twice.
class Names {
 public:
  bool contains(std::string_view name) const { return std::find(seen_.begin(), seen_.end(), name) != seen_.end(); }
  /// Whether it is there for the first time.
  bool add(std::string_view name) {
    if (contains(name)) return false;
    seen_.push_back(name);
    return true;
  }

 private:
  std::vector<std::string_view> seen_;
};

constexpr std::string_view kDataType = "data type";

std::string read_part(std::string_view part, Problem& problem, Names& names) {
  const bool has_value = part.find('=') != std::string_view::npos;
  std::string_view value = part;
  const std::string_view name = take_until(value, '=');
  if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) return unknown(name);
  const auto type = enumerator<DataType>(name);
  if (!names.add(type ? kDataType : name)) return (type ? "the data type" : quoted(name)) + " is given twice";

  const auto flag =
      std::find_if(std::begin(kFlags), std::end(kFlags), [&](const FlagField& field) { return field.name == name; });
  const bool wants_value = !type && flag == std::end(kFlags);
  if (has_value && !wants_value) return quoted(name) + " has no value: write " + quoted(name);
  if (!has_value && wants_value) return quoted(name) + " needs a value: write `" + std::string(name) + "=<value>`";
  if (type)
    problem.data_type = *type;
  else if (flag != std::end(kFlags))
    problem.*flag->flag = true;
  else if (std::string error = read_named(name, value, problem); !error.empty())
    return std::string(name) + ": " + error;
  return {};
}

std::string missing(const Names& names) {
  if (!names.contains(kDataType)) return "the data type is missing: write `fp16` or `bf16`";
  for (const std::string_view name : {"d", "b", "h", "sq", "sk"})
    if (!names.contains(name)) return '`' + std::string(name) + "=<value>` is missing";
  return {};
}

/// Rules between parts.
std::string violation(const Problem& p, const Names& names) {
  if (p.heads % p.heads_kv != 0)
    return "h=" + std::to_string(p.heads) + " is no multiple of hk=" + std::to_string(p.heads_kv) +
           ": each KV head serves the same number of heads";
  std::int64_t rows = 0;
  if (__builtin_mul_overflow(p.batch * p.heads, std::max(p.seqlen_q, p.seqlen_k), &rows))
    return "b, h and the longer of sq and sk have a product that 64 bits cannot hold";
  if (p.bias_copies && p.bias != BiasKind::tile) return "`bias_copies` without `bias=tile`: no other bias is copied";
  for (const std::string_view name : {"layout", "density"})
    if (names.contains(name) && !p.masked) return quoted(name) + " without `masked`: it describes a mask";
  return {};
}

std::string read_problem(std::string_view text, Problem& problem) {
  Names names;
  while (!text.empty()) {
    const std::string_view part = take_until(text, ' ');
    if (part.empty()) continue;
    if (std::string error = read_part(part, problem, names); !error.empty()) return error;
  }
  if (std::string error = missing(names); !error.empty()) return error;
  if (!names.contains("hk")) problem.heads_kv = problem.heads;
  return violation(problem, names);
}

}  // namespace

std::string problem_text(const Problem& problem) {
  std::string text;
  print_problem(problem, [&](std::string_view part) { text += part; });
  return text;
}

ProblemTextBuffer::ProblemTextBuffer(const Problem& problem) {
  print_problem(problem, [this](std::string_view part) {
    const std::size_t size = std::min(part.size(), text_.size() - 1 - size_);
    std::copy_n(part.begin(), size, text_.begin() + static_cast<std::ptrdiff_t>(size_));
    size_ += size;
  });
}

Parsed<Problem> parse_problem_text(std::string_view text) {
  Problem problem;
  if (std::string error = read_problem(text, problem); !error.empty()) return Parsed<Problem>::failure(error);
  return problem;
}

Parsed<std::vector<Problem>> parse_problem_file(std::string_view text, const std::string& path) {
  std::vector<Problem> problems;
  int line_number = 0;
  const auto failure = [&](const std::string& why) {
    return Parsed<std::vector<Problem>>::failure(path + ':' + std::to_string(line_number) + ": " + why);
  };
  while (!text.empty() || line_number == 0) {
    std::string_view line = take_until(text, '\n');
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line_number == 1) {
      if (line != kProblemFileHeader) return failure("the first line must be " + quoted(kProblemFileHeader));
      continue;
    }
    if (line.empty() || line[0] == '#') continue;
    Parsed<Problem> parsed = parse_problem_text(line);
    if (!parsed) return failure(parsed.error);
    problems.push_back(*parsed.value);
  }
  return problems;
}

}  // namespace flashdma_bwd
