// Values of every field type, out of tree nodes.
#include "config/map_reader.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <set>

#include "diagnostics/suggest.hpp"

namespace flashdma_bwd::generator {
namespace {

std::string quoted(std::string_view text) {
  constexpr std::size_t kLongestShown = 80;
  return '`' + std::string(text.substr(0, kLongestShown)) + (text.size() > kLongestShown ? "...`" : "`");
}

std::string_view describe(Node::Kind kind) {
  switch (kind) {
    case Node::Kind::null:
      return "nothing";
    case Node::Kind::scalar:
      return "a scalar";
    case Node::Kind::sequence:
      return "a list";
    case Node::Kind::map:
      return "a mapping";
  }
  return "";
}

std::vector<std::string_view> words_of(const Field& field) {
  return {field.words.begin(), field.words.end()};
}

/// "32, 64 or 128".
std::string listed(std::span<const std::int64_t> values) {
  std::string text;
  for (const std::int64_t& value : values)
    text += (text.empty() ? "" : &value == &values.back() ? " or " : ", ") + std::to_string(value);
  return text;
}

std::string describe(const Field& field) {
  switch (field.type) {
    case FieldType::integer:
      return field.values.empty() ? "an integer" : listed(field.values);
    case FieldType::number:
      return "a number";
    case FieldType::flag:
      return "`true` or `false`";
    case FieldType::text:
      return "a text of one line";
    case FieldType::date:
      return "a date, YYYY-MM-DD";
    case FieldType::word:
      return enumerate(words_of(field));
    case FieldType::words:
      return enumerate(words_of(field)) + ", or a list of them";
    case FieldType::flags:
      return "`true`, `false`, or a list of them";
    case FieldType::integers:
      return "a list of integers";
    case FieldType::texts:
      return "a list of texts";
    case FieldType::range:
      return "a range such as `0..4096`, `4096..` or `512`";
    case FieldType::map:
      return "a mapping";
    case FieldType::list_of_maps:
      return "a list of mappings";
  }
  return "";
}

bool is_digit(char c) {
  return '0' <= c && c <= '9';
}

/// A number and then letters or a percent sign: "4k", "163 KB", "50%", "3.6 ms".
bool has_unit(std::string_view text) {
  std::size_t i = text.starts_with('-') ? 1 : 0;
  const std::size_t first = i;
  while (i < text.size() && (is_digit(text[i]) || text[i] == '.' || text[i] == '_' || text[i] == ',')) ++i;
  if (i == first || i == text.size() || !is_digit(text[first])) return false;
  while (i < text.size() && text[i] == ' ') ++i;
  return i < text.size() && std::all_of(text.begin() + static_cast<std::ptrdiff_t>(i), text.end(), [](char c) {
           return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || c == '%' || c == '/';
         });
}

bool is_fraction(std::string_view text) {
  const std::size_t dot = text.find('.');
  return dot != std::string_view::npos && dot + 1 < text.size() &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_digit(c) || c == '.'; }) &&
         text.find('.', dot + 1) == std::string_view::npos;
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

template <class T>
bool parse_all(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool is_integer_literal(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

}  // namespace

MapReader::MapReader(const Node& node, const MapFields& fields, Diagnostics& diagnostics)
    : fields_(fields), diagnostics_(diagnostics), at_(node.at) {
  if (node.kind != Node::Kind::map) {
    diagnostics_.add(Rule::wrong_type, node.at,
                     std::string(fields.what) + " is a mapping, not " + std::string(describe(node.kind)));
    return;
  }
  entries_ = &node.entries;
  std::vector<std::string_view> names;
  for (const Field& known : fields.fields) names.push_back(known.name);
  std::set<std::string_view> seen;
  for (const Entry& entry : node.entries) {
    const Node& key = entry.key;
    if (key.kind != Node::Kind::scalar) {
      diagnostics_.add(Rule::wrong_type, key.at, "a key is a word, not " + std::string(describe(key.kind)));
      continue;
    }
    if (std::find(names.begin(), names.end(), key.text) == names.end()) {
      std::vector<std::string> notes = did_you_mean(key.text, names);
      if (notes.empty()) notes.push_back("a key is " + enumerate(names));
      diagnostics_.add(Rule::unknown_key, key.at, std::string(fields.what) + " has no key " + quoted(key.text), notes);
    } else if (!seen.insert(key.text).second) {
      const auto first = std::find_if(node.entries.begin(), node.entries.end(),
                                      [&](const Entry& other) { return other.key.text == key.text; });
      diagnostics_.add(Rule::duplicate_key, key.at, "the key " + quoted(key.text) + " is here twice",
                       {"first given at line " + std::to_string(first->key.at.line) + ", column " +
                        std::to_string(first->key.at.column)});
    }
  }
  for (const Field& known : fields.fields)
    if (known.required && !seen.contains(known.name))
      diagnostics_.add(Rule::missing_key, node.at, std::string(fields.what) + " needs the key " + quoted(known.name),
                       {quoted(known.name) + " is " + describe(known)});
}

const Node* MapReader::find(std::string_view key) const {
  if (entries_ == nullptr) return nullptr;
  for (const auto& [name, value] : *entries_)
    if (name.kind == Node::Kind::scalar && name.text == key) return &value;
  return nullptr;
}

Location MapReader::at(std::string_view key) const {
  const Node* node = find(key);
  return node != nullptr ? node->at : at_;
}

const Field& MapReader::field(std::string_view key) const {
  const auto found =
      std::find_if(fields_.fields.begin(), fields_.fields.end(), [&](const Field& f) { return f.name == key; });
  if (found == fields_.fields.end()) std::abort();  // a reader asks for a key that its own list does not have
  return *found;
}

void MapReader::refuse_type(const Node& node, const Field& f) const {
  std::vector<std::string> notes;
  if (node.kind == Node::Kind::scalar && node.quoted && f.type != FieldType::text)
    notes.push_back("quotes make it a text: remove them");
  if ((f.type == FieldType::flag || f.type == FieldType::flags) && node.kind == Node::Kind::scalar)
    notes.push_back("write `true` or `false`");
  const std::string given = node.kind == Node::Kind::scalar ? quoted(node.text) : std::string(describe(node.kind));
  diagnostics_.add(Rule::wrong_type, node.at, quoted(f.name) + " is " + describe(f) + ", not " + given, notes);
}

const Node* MapReader::scalar(std::string_view key) const {
  const Node* node = find(key);
  if (node == nullptr) return nullptr;
  if (node->kind == Node::Kind::scalar) return node;
  refuse_type(*node, field(key));
  return nullptr;
}

std::optional<std::int64_t> MapReader::bound_of(const Node& node, const Field& f, std::string_view digits) const {
  std::int64_t value = 0;
  if (!node.quoted && is_integer_literal(digits)) {
    if (!parse_all(digits, value) || value < f.low || value > f.high) {
      const bool open = f.high == kUnbounded && digits.starts_with('-');
      const std::string bounds = !f.values.empty() ? listed(f.values)
                                 : open            ? "at least " + std::to_string(f.low)
                                                   : std::to_string(f.low) + " to " + std::to_string(f.high);
      diagnostics_.add(Rule::out_of_range, node.at, quoted(f.name) + " is " + bounds + ", not " + std::string(digits));
      return std::nullopt;
    }
    return value;
  }
  if (!node.quoted && (has_unit(digits) || (!f.unit.empty() && is_fraction(digits)))) {
    diagnostics_.add(Rule::wrong_unit, node.at, quoted(f.name) + " is a plain integer, not " + quoted(digits),
                     {"unit: " + std::string(f.unit)});
    return std::nullopt;
  }
  refuse_type(node, f);
  return std::nullopt;
}

std::optional<std::int64_t> MapReader::integer_of(const Node& node, const Field& f) const {
  if (node.kind != Node::Kind::scalar) {
    refuse_type(node, f);
    return std::nullopt;
  }
  const std::optional<std::int64_t> value = bound_of(node, f, node.text);
  if (value && !f.values.empty() && std::find(f.values.begin(), f.values.end(), *value) == f.values.end()) {
    diagnostics_.add(Rule::out_of_range, node.at, quoted(f.name) + " is " + listed(f.values) + ", not " + node.text);
    return std::nullopt;
  }
  return value;
}

std::optional<std::int64_t> MapReader::integer(std::string_view key) const {
  const Node* node = find(key);
  return node != nullptr ? integer_of(*node, field(key)) : std::nullopt;
}

std::optional<double> MapReader::number(std::string_view key) const {
  const Node* node = scalar(key);
  if (node == nullptr) return std::nullopt;
  const Field& f = field(key);
  double value = 0;
  if (!node->quoted && parse_all(std::string_view(node->text), value) && std::isfinite(value)) {
    if (value >= 0) return value;
    diagnostics_.add(Rule::out_of_range, node->at, quoted(key) + " is at least 0, not " + node->text);
  } else if (!node->quoted && has_unit(node->text)) {
    diagnostics_.add(Rule::wrong_unit, node->at, quoted(key) + " is a plain number, not " + quoted(node->text),
                     {"unit: " + std::string(f.unit)});
  } else {
    refuse_type(*node, f);
  }
  return std::nullopt;
}

std::optional<bool> MapReader::flag_of(const Node& node, const Field& f) const {
  if (node.kind == Node::Kind::scalar && !node.quoted) {
    if (node.text == "true") return true;
    if (node.text == "false") return false;
  }
  refuse_type(node, f);
  return std::nullopt;
}

std::optional<bool> MapReader::flag(std::string_view key) const {
  const Node* node = find(key);
  return node != nullptr ? flag_of(*node, field(key)) : std::nullopt;
}

std::optional<std::string> MapReader::text(std::string_view key) const {
  const Node* node = scalar(key);
  if (node == nullptr) return std::nullopt;
  if (node->text.empty() || std::any_of(node->text.begin(), node->text.end(), is_control)) {
    diagnostics_.add(Rule::wrong_type, node->at,
                     quoted(key) + " is a text of one line, not " +
                         (node->text.empty() ? "an empty one" : "one with line ends or control characters"));
    return std::nullopt;
  }
  return node->text;
}

std::optional<std::string> MapReader::date(std::string_view key) const {
  const Node* node = scalar(key);
  if (node == nullptr) return std::nullopt;
  const std::string_view text = node->text;
  int year = 0, month = 0, day = 0;
  if (text.size() == 10 && text[4] == '-' && text[7] == '-' && parse_all(text.substr(0, 4), year) &&
      parse_all(text.substr(5, 2), month) && parse_all(text.substr(8, 2), day) && year > 0) {
    const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                           std::chrono::day(static_cast<unsigned>(day))};
    if (month > 0 && day > 0 && date.ok()) return node->text;
    diagnostics_.add(Rule::out_of_range, node->at, quoted(key) + " is a date, and " + node->text + " is none");
    return std::nullopt;
  }
  refuse_type(*node, field(key));
  return std::nullopt;
}

std::optional<Range> MapReader::range(std::string_view key) const {
  const Node* node = scalar(key);
  if (node == nullptr) return std::nullopt;
  const Field& f = field(key);
  const std::string_view text = node->text;
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) {
    const std::optional<std::int64_t> value = bound_of(*node, f, text);
    return value ? std::optional(Range{*value, *value}) : std::nullopt;
  }
  const std::string_view low = text.substr(0, dots), high = text.substr(dots + 2);
  if (low.empty() && high.empty()) {
    refuse_type(*node, f);
    return std::nullopt;
  }
  const std::optional<std::int64_t> first = low.empty() ? f.low : bound_of(*node, f, low);
  const std::optional<std::int64_t> last = high.empty() ? f.high : bound_of(*node, f, high);
  if (!first || !last) return std::nullopt;
  if (*first > *last) {
    diagnostics_.add(Rule::empty_range, node->at, "the range " + quoted(text) + " is empty",
                     {"both ends are included, the smaller one comes first"});
    return std::nullopt;
  }
  return Range{*first, *last};
}

std::optional<std::uint8_t> MapReader::word_of(const Node& node, const Field& f) const {
  // `none` and so on; YAML reads an absent value and `null` alike.
  if (node.kind != Node::Kind::scalar) {
    refuse_type(node, f);
    return std::nullopt;
  }
  const auto found = std::find(f.words.begin(), f.words.end(), node.text);
  if (found != f.words.end()) return static_cast<std::uint8_t>(found - f.words.begin());
  std::vector<std::string> notes = did_you_mean(node.text, words_of(f));
  if (f.name == "architecture") {
    notes.push_back("an architecture is " + enumerate(words_of(f)));
    diagnostics_.add(Rule::unknown_architecture, node.at, "there is no architecture " + quoted(node.text), notes);
  } else {
    diagnostics_.add(Rule::unknown_value, node.at,
                     quoted(f.name) + " is " + enumerate(words_of(f)) + ", not " + quoted(node.text), notes);
  }
  return std::nullopt;
}

std::optional<std::uint8_t> MapReader::word(std::string_view key) const {
  const Node* node = find(key);
  return node != nullptr ? word_of(*node, field(key)) : std::nullopt;
}

bool MapReader::check_list(const Node& node, const Field& f) const {
  if (node.kind != Node::Kind::sequence) {
    refuse_type(node, f);
    return false;
  }
  if (node.items.empty()) {
    diagnostics_.add(Rule::empty_range, node.at, "the list of " + quoted(f.name) + " is empty");
    return false;
  }
  return true;
}

void MapReader::report_twice(const Node& node) const {
  diagnostics_.add(Rule::duplicate_name, node.at, quoted(node.text) + " is in this list twice");
}

std::optional<std::uint32_t> MapReader::words(std::string_view key) const {
  const Node* node = find(key);
  if (node == nullptr) return std::nullopt;
  const Field& f = field(key);
  if (node->kind == Node::Kind::scalar) {
    const std::optional<std::uint8_t> one = word_of(*node, f);
    return one ? std::optional(std::uint32_t{1} << *one) : std::nullopt;
  }
  if (!check_list(*node, f)) return std::nullopt;
  std::uint32_t bits = 0;
  for (const Node& item : node->items)
    if (const std::optional<std::uint8_t> one = word_of(item, f)) {
      if ((bits >> *one & 1u) != 0) report_twice(item);
      bits |= std::uint32_t{1} << *one;
    }
  return bits;
}

std::optional<std::uint32_t> MapReader::flags(std::string_view key) const {
  const Node* node = find(key);
  if (node == nullptr) return std::nullopt;
  const Field& f = field(key);
  if (node->kind == Node::Kind::scalar) {
    const std::optional<bool> one = flag_of(*node, f);
    return one ? std::optional(std::uint32_t{1} << (*one ? 1 : 0)) : std::nullopt;
  }
  if (!check_list(*node, f)) return std::nullopt;
  std::uint32_t bits = 0;
  for (const Node& item : node->items)
    if (const std::optional<bool> one = flag_of(item, f)) {
      if ((bits >> (*one ? 1 : 0) & 1u) != 0) report_twice(item);
      bits |= std::uint32_t{1} << (*one ? 1 : 0);
    }
  return bits;
}

std::optional<std::vector<std::int64_t>> MapReader::integers(std::string_view key) const {
  const Node* node = find(key);
  if (node == nullptr || !check_list(*node, field(key))) return std::nullopt;
  std::vector<std::int64_t> result;
  for (const Node& item : node->items)
    if (const std::optional<std::int64_t> value = integer_of(item, field(key))) {
      if (std::find(result.begin(), result.end(), *value) != result.end()) report_twice(item);
      result.push_back(*value);
    }
  return result;
}

std::optional<std::vector<std::string>> MapReader::texts(std::string_view key) const {
  const Node* node = find(key);
  if (node == nullptr || !check_list(*node, field(key))) return std::nullopt;
  std::vector<std::string> result;
  for (const Node& item : node->items) {
    if (item.kind != Node::Kind::scalar || item.text.empty() ||
        std::any_of(item.text.begin(), item.text.end(), is_control)) {
      refuse_type(item, field(key));
      continue;
    }
    if (std::find(result.begin(), result.end(), item.text) != result.end()) report_twice(item);
    result.push_back(item.text);
  }
  return result;
}

const std::vector<Node>* MapReader::list(std::string_view key) const {
  const Node* node = find(key);
  return node != nullptr && check_list(*node, field(key)) ? &node->items : nullptr;
}

}  // namespace flashdma_bwd::generator
