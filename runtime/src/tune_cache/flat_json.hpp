// One line of flat JSON: an object whose values are strings and numbers. Nothing else is read or written.
//
// Stricter than JSON: no name twice, no empty name, and no space but blanks between the parts.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "selection/parsed.hpp"

namespace flashdma_bwd {

struct JsonMember {
  std::string name;
  std::string value;  ///< of a string what it says, of a number how it is written
  bool is_string = false;
};

/// The members in their order, or what is wrong, starting with "column <n>: ".
Parsed<std::vector<JsonMember>> parse_flat_json(std::string_view line);

/// Writes members in the order in which they are added.
class FlatJsonWriter {
 public:
  void add(std::string_view name, std::string_view value);
  void add(std::string_view name, const char* value) { add(name, std::string_view(value)); }
  void add(std::string_view name, std::int64_t value);
  void add(std::string_view name, std::integral auto value) { add(name, static_cast<std::int64_t>(value)); }
  /// The shortest text that reads back as the same number, which must be finite.
  void add(std::string_view name, double value);
  std::string text() const { return text_ + '}'; }

 private:
  void begin(std::string_view name);
  void put_string(std::string_view value);

  std::string text_ = "{";
};

}  // namespace flashdma_bwd
