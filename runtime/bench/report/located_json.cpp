// Reading JSON with places. See located_json.hpp.
#include "report/located_json.hpp"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

namespace flashdma_bwd::bench {
namespace {

constexpr std::size_t kDeepest = 32;  // brackets in brackets; results have four

Place place_at(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const std::size_t line_begin = before.rfind('\n');
  return {1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')),
          line_begin == std::string_view::npos ? offset + 1 : offset - line_begin};
}

/// Walks over a text and leaves where it is in `consumed`.
class Cursor {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Cursor(const char* at, std::size_t* consumed) : at_(at), consumed_(consumed) {}
  reference operator*() const { return *at_; }
  Cursor& operator++() {
    ++at_;
    ++*consumed_;
    return *this;
  }
  friend bool operator==(const Cursor& a, const Cursor& b) { return a.at_ == b.at_; }
  friend bool operator!=(const Cursor& a, const Cursor& b) { return a.at_ != b.at_; }

 private:
  const char* at_;
  std::size_t* consumed_;
};

/// Builds the tree from the parser's events.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(std::string_view text, const std::size_t& consumed) : text_(text), consumed_(consumed) {}

  bool null() override { return add({}); }
  bool boolean(bool value) override {
    JsonValue node;
    node.kind = JsonKind::boolean;
    node.boolean = value;
    return add(std::move(node));
  }
  bool number_integer(number_integer_t value) override { return add_number(static_cast<double>(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add_number(static_cast<double>(value)); }
  bool number_float(number_float_t value, const string_t&) override { return add_number(value); }
  bool string(string_t& value) override {
    JsonValue node;
    node.kind = JsonKind::string;
    node.string = value;
    return add(std::move(node));
  }
  bool binary(binary_t&) override { return false; }  // not in a text
  bool start_object(std::size_t) override { return open(JsonKind::object); }
  bool start_array(std::size_t) override { return open(JsonKind::array); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    const std::vector<std::string>& names = open_.back()->names;
    if (std::find(names.begin(), names.end(), name) != names.end()) return fail("\"" + name + "\" is given twice");
    open_.back()->names.push_back(name);
    seen_ = consumed_;
    return true;
  }
  bool parse_error(std::size_t position, const std::string& token, const nlohmann::json::exception&) override {
    const bool at_end = consumed_ >= text_.size() && position >= text_.size();
    error_ = place_text(place_at(text_, position > 0 ? position - 1 : 0)) + "not JSON" +
             (at_end ? ": the text ends where more must follow; is the file complete?" : " from `" + token + "` on");
    return false;
  }

  const std::string& error() const { return error_; }
  JsonValue take_root() { return std::move(root_); }

 private:
  // The place of the value that was read last: the first character behind what was read before that is no separator.
  Place here() {
    while (scanned_ < seen_) step();
    while (scanned_ + 1 < consumed_ && std::string_view(" \t\r\n:,").find(text_[scanned_]) != std::string_view::npos)
      step();
    seen_ = consumed_;
    return {line_, scanned_ - line_begin_ + 1};
  }
  void step() {
    if (text_[scanned_] == '\n') {
      ++line_;
      line_begin_ = scanned_ + 1;
    }
    ++scanned_;
  }

  bool fail(const std::string& why) {
    error_ = place_text(here()) + why;
    return false;
  }
  bool add_number(double value) {
    JsonValue node;
    node.kind = JsonKind::number;
    node.number = value;
    return add(std::move(node));
  }
  bool add(JsonValue node) {
    node.place = here();
    place_of_value(std::move(node));
    return true;
  }
  JsonValue& place_of_value(JsonValue node) {
    if (open_.empty()) return root_ = std::move(node);
    return open_.back()->items.emplace_back(std::move(node));
  }
  bool open(JsonKind kind) {
    if (open_.size() == kDeepest) return fail("brackets in brackets, more than " + std::to_string(kDeepest) + " deep");
    JsonValue node;
    node.kind = kind;
    node.place = here();
    // The parent does not grow before this is closed, so its address stays.
    open_.push_back(&place_of_value(std::move(node)));
    return true;
  }
  bool close() {
    open_.pop_back();
    seen_ = consumed_;
    return true;
  }

  std::string_view text_;
  const std::size_t& consumed_;
  std::size_t scanned_ = 0;  // lines are counted up to here
  std::size_t seen_ = 0;     // what the parser had read at the event before
  std::size_t line_ = 1;
  std::size_t line_begin_ = 0;
  JsonValue root_;
  std::vector<JsonValue*> open_;
  std::string error_;
};

}  // namespace

std::string place_text(Place place) {
  return std::to_string(place.line) + ':' + std::to_string(place.column) + ": ";
}

const char* kind_text(JsonKind kind) {
  switch (kind) {
    case JsonKind::null:
      return "null";
    case JsonKind::boolean:
      return "true or false";
    case JsonKind::number:
      return "a number";
    case JsonKind::string:
      return "a text";
    case JsonKind::array:
      return "a list";
    case JsonKind::object:
      break;
  }
  return "an object";
}

const JsonValue* JsonValue::member(std::string_view name) const {
  for (std::size_t i = 0; i < names.size() && i < items.size(); ++i)
    if (names[i] == name) return &items[i];
  return nullptr;
}

Parsed<JsonValue> read_json(std::string_view text) {
  std::size_t consumed = 0;
  Builder builder(text, consumed);
  const Cursor begin(text.data(), &consumed), end(text.data() + text.size(), &consumed);
  if (!nlohmann::json::sax_parse(begin, end, &builder)) return Parsed<JsonValue>::failure(builder.error());
  return builder.take_root();
}

}  // namespace flashdma_bwd::bench
