// Values out of a JSON object in a line of a file, with the generator's findings where they are not what they should
// be.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "diagnostics/diagnostic.hpp"
#include "record_json.hpp"

namespace flashdma_bwd::tune {

class JsonReader {
 public:
  /// Reports what is no object, and keys that are none of `keys`. `what` names the object in messages. All arguments
  /// outlive the reader.
  JsonReader(const nlohmann::json& json, std::string_view what, std::initializer_list<std::string_view> keys,
             const LinePlace& place, generator::Diagnostics& diagnostics);

  bool has(std::string_view key) const;
  /// Each reports missing-key, wrong-type or out-of-range, and then returns what is nothing of its type.
  std::string text(std::string_view key) const;
  std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high) const;
  double number(std::string_view key) const;  ///< finite and not negative
  bool flag(std::string_view key) const;
  const nlohmann::json* list(std::string_view key) const;
  const nlohmann::json* object(std::string_view key) const;

  /// Where a key stands in the line.
  generator::Location at(std::string_view key) const;

 private:
  const nlohmann::json* find(std::string_view key) const;
  void refuse(std::string_view key, std::string_view expected) const;

  const nlohmann::json& json_;
  std::string what_;
  const LinePlace& place_;
  generator::Diagnostics& diagnostics_;
};

}  // namespace flashdma_bwd::tune
