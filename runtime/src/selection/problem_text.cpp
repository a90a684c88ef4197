// Printing and parsing of problems and problem files.
#include "selection/problem_text.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <utility>

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
constexpr CountField kCounts[] = {{"b", &Problem::batch},     {"h", &Problem::heads},     {"hk", &Problem::heads_kv},
                                  {"sq", &Problem::seqlen_q}, {"sk", &Problem::seqlen_k}, {"window", &Problem::window}};

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
    "fp16",   "bf16",          "d",       "b",    "h",           "hk",     "sq",     "sk",     "window",
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
    if ((count != &Problem::heads_kv || p.heads_kv != p.heads) && (count != &Problem::window || p.window != 0))
      print_number(name, p.*count, put);
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

/// `where` is part of the text that is read.
struct Fault {
  FaultKind kind;
  std::string_view where;
  std::string why;
};
using MaybeFault = std::optional<Fault>;

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

/// Collects what a text has and where, and refuses what it has twice.
class Names {
 public:
  bool contains(std::string_view name) const { return find(name) != seen_.end(); }
  /// The whole part, or an empty text.
  std::string_view part(std::string_view name) const {
    const auto seen = find(name);
    return seen == seen_.end() ? std::string_view() : seen->second;
  }
  /// Whether it is there for the first time.
  bool add(std::string_view name, std::string_view part) {
    if (contains(name)) return false;
    seen_.emplace_back(name, part);
    return true;
  }

 private:
  using Seen = std::vector<std::pair<std::string_view, std::string_view>>;
  Seen::const_iterator find(std::string_view name) const {
    return std::find_if(seen_.begin(), seen_.end(), [&](const auto& seen) { return seen.first == name; });
  }
  Seen seen_;
};

constexpr std::string_view kDataType = "data type";

MaybeFault read_part(std::string_view part, Problem& problem, Names& names) {
  const bool has_value = part.find('=') != std::string_view::npos;
  std::string_view value = part;
  const std::string_view name = take_until(value, '=');
  if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames))
    return Fault{FaultKind::unknown_part, part, unknown(name)};
  const auto type = enumerator<DataType>(name);
  if (!names.add(type ? kDataType : name, part))
    return Fault{FaultKind::repeated_part, part, (type ? "the data type" : quoted(name)) + " is given twice"};

  const auto flag =
      std::find_if(std::begin(kFlags), std::end(kFlags), [&](const FlagField& field) { return field.name == name; });
  const bool wants_value = !type && flag == std::end(kFlags);
  if (has_value && !wants_value)
    return Fault{FaultKind::value_form, part, quoted(name) + " has no value: write " + quoted(name)};
  if (!has_value && wants_value)
    return Fault{FaultKind::value_form, part,
                 quoted(name) + " needs a value: write `" + std::string(name) + "=<value>`"};
  if (type)
    problem.data_type = *type;
  else if (flag != std::end(kFlags))
    problem.*flag->flag = true;
  else if (std::string error = read_named(name, value, problem); !error.empty())
    return Fault{name == "bias" || name == "layout" ? FaultKind::unknown_word : FaultKind::out_of_range, part,
                 std::string(name) + ": " + error};
  return {};
}

std::string missing(const Names& names) {
  if (!names.contains(kDataType)) return "the data type is missing: write `fp16` or `bf16`";
  for (const std::string_view name : {"d", "b", "h", "sq", "sk"})
    if (!names.contains(name)) return '`' + std::string(name) + "=<value>` is missing";
  return {};
}

/// Rules between parts. `text` is the whole.
MaybeFault violation(std::string_view text, const Problem& p, const Names& names) {
  if (p.heads % p.heads_kv != 0)
    return Fault{FaultKind::out_of_range, names.part("hk"),
                 "h=" + std::to_string(p.heads) + " is no multiple of hk=" + std::to_string(p.heads_kv) +
                     ": each KV head serves the same number of heads"};
  std::int64_t rows = 0;
  if (__builtin_mul_overflow(p.batch * p.heads, std::max(p.seqlen_q, p.seqlen_k), &rows))
    return Fault{FaultKind::out_of_range, text,
                 "b, h and the longer of sq and sk have a product that 64 bits cannot hold"};
  if (p.bias_copies && p.bias != BiasKind::tile)
    return Fault{FaultKind::missing_part, names.part("bias_copies"),
                 "`bias_copies` without `bias=tile`: no other bias is copied"};
  if (names.contains("window") && !p.causal)
    return Fault{FaultKind::missing_part, names.part("window"),
                 "`window` without `causal`, which says that there are limits"};
  if (names.contains("window") && p.masked)
    return Fault{FaultKind::out_of_range, names.part("window"),
                 "`window` with `masked`, whose density says how many pairs there are"};
  if (names.contains("window") && p.window >= p.seqlen_q)
    return Fault{FaultKind::out_of_range, names.part("window"),
                 "window=" + std::to_string(p.window) + " is no fewer than sq=" + std::to_string(p.seqlen_q) +
                     ": leave out a window that leaves all queries"};
  for (const std::string_view name : {"layout", "density"})
    if (names.contains(name) && !p.masked)
      return Fault{FaultKind::missing_part, names.part(name), quoted(name) + " without `masked`: it describes a mask"};
  return {};
}

MaybeFault read_problem(std::string_view text, Problem& problem) {
  Names names;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = take_until(rest, ' ');
    if (part.empty()) continue;
    if (MaybeFault fault = read_part(part, problem, names)) return fault;
  }
  if (std::string error = missing(names); !error.empty()) return Fault{FaultKind::missing_part, text, std::move(error)};
  if (!names.contains("hk")) problem.heads_kv = problem.heads;
  return violation(text, problem, names);
}

/// Takes the next line off `text`, without its end.
std::string_view take_line(std::string_view& text) {
  std::string_view line = take_until(text, '\n');
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

/// The file but for whether its last line is finished.
ProblemFile read_lines(std::string_view text) {
  ProblemFile file;
  if (const std::string_view header = take_line(text); header != kProblemFileHeader) {
    file.faults.push_back(
        {FaultKind::header, "the first line must be " + quoted(kProblemFileHeader), 1, 0, header.size()});
    return file;
  }
  for (int number = 2; !text.empty(); ++number) {
    const std::string_view line = take_line(text);
    if (line.empty() || line[0] == '#') continue;
    Problem problem;
    if (MaybeFault fault = read_problem(line, problem))
      file.faults.push_back({fault->kind, std::move(fault->why), number,
                             static_cast<std::size_t>(fault->where.data() - line.data()), fault->where.size()});
    else
      file.problems.push_back(problem);
  }
  return file;
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
  if (const MaybeFault fault = read_problem(text, problem)) return Parsed<Problem>::failure(fault->why);
  return problem;
}

std::optional<ProblemFault> unfinished_line(std::string_view text) {
  if (text.empty() || text.ends_with('\n')) return {};
  const auto line = static_cast<int>(1 + std::count(text.begin(), text.end(), '\n'));
  text.remove_prefix(text.rfind('\n') + 1);  // npos + 1 is 0
  return ProblemFault{FaultKind::unfinished,
                      "the last line has no end, so it may be cut short: complete it with a newline, or remove it",
                      line, take_line(text).size(), 0};
}

ProblemFile read_problem_file(std::string_view text) {
  ProblemFile file = read_lines(text);
  const bool is_other_file = !file.faults.empty() && file.faults.front().kind == FaultKind::header;
  if (std::optional<ProblemFault> fault = unfinished_line(text); fault && !is_other_file)
    file.faults.push_back(*std::move(fault));
  return file;
}

Parsed<std::vector<Problem>> parse_problem_file(std::string_view text, const std::string& path) {
  ProblemFile file = read_lines(text);
  if (file.faults.empty()) return std::move(file.problems);
  const ProblemFault& first = file.faults.front();
  return Parsed<std::vector<Problem>>::failure(path + ':' + std::to_string(first.line) + ": " + first.why);
}

}  // namespace flashdma_bwd
