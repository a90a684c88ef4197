// JSON whose values know where they stand in their file, so that what is wrong with one can be said with its place.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "selection/parsed.hpp"

namespace flashdma_bwd::bench {

/// 1-based; columns count bytes.
struct Place {
  std::size_t line = 1;
  std::size_t column = 1;
};

/// "12:5: "
std::string place_text(Place place);

enum class JsonKind { null, boolean, number, string, array, object };

/// "a number", "an object" ...
const char* kind_text(JsonKind kind);

struct JsonValue {
  JsonKind kind = JsonKind::null;
  Place place;  ///< of its first character
  double number = 0;
  bool boolean = false;
  std::string string;
  std::vector<JsonValue> items;    ///< of an array; of an object the values of its members
  std::vector<std::string> names;  ///< of an object's members, in their order, none twice

  /// The member of this name, or nullptr.
  const JsonValue* member(std::string_view name) const;
};

/// What is wrong starts with "<line>:<column>: ".
Parsed<JsonValue> read_json(std::string_view text);

}  // namespace flashdma_bwd::bench
