// Findings about JSON objects.
#include "json_reader.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "diagnostics/suggest.hpp"

namespace flashdma_bwd::tune {

using generator::Rule;

JsonReader::JsonReader(const nlohmann::json& json, std::string_view what, std::initializer_list<std::string_view> keys,
                       const LinePlace& place, generator::Diagnostics& diagnostics)
    : json_(json), what_(what), place_(place), diagnostics_(diagnostics) {
  if (!json.is_object()) {
    diagnostics.add(Rule::wrong_type, {place.path, place.line, 1}, what_ + " is an object, not " + json.type_name());
    return;
  }
  const std::vector<std::string_view> names(keys);
  for (const auto& [key, value] : json.items()) {
    if (std::ranges::find(names, key) != names.end()) continue;
    std::vector<std::string> notes = generator::did_you_mean(key, names);
    if (notes.empty()) notes.push_back("a key is " + generator::enumerate(names));
    diagnostics.add(Rule::unknown_key, at(key), what_ + " has no key `" + key + '`', notes);
  }
}

generator::Location JsonReader::at(std::string_view key) const {
  const std::string quoted = '"' + std::string(key) + '"';
  const std::size_t column = place_.text.find(quoted);
  if (column == std::string_view::npos) return {place_.path, place_.line, 1};
  return {place_.path, place_.line, static_cast<int>(column) + 1, static_cast<int>(quoted.size())};
}

bool JsonReader::has(std::string_view key) const {
  return json_.is_object() && json_.contains(key);
}

const nlohmann::json* JsonReader::find(std::string_view key) const {
  if (!json_.is_object()) return nullptr;
  const auto found = json_.find(key);
  if (found != json_.end()) return &*found;
  diagnostics_.add(Rule::missing_key, {place_.path, place_.line, 1}, what_ + " has no `" + std::string(key) + '`');
  return nullptr;
}

void JsonReader::refuse(std::string_view key, std::string_view expected) const {
  diagnostics_.add(
      Rule::wrong_type, at(key),
      '`' + std::string(key) + "` is " + std::string(expected) + ", not " + json_.at(key).dump().substr(0, 80));
}

std::string JsonReader::text(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return {};
  if (value->is_string()) return value->get<std::string>();
  refuse(key, "a text");
  return {};
}

std::int64_t JsonReader::integer(std::string_view key, std::int64_t low, std::int64_t high) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return low;
  if (!value->is_number_integer()) {
    refuse(key, "an integer");
    return low;
  }
  const bool too_large = value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(high);
  if (const auto number = value->get<std::int64_t>(); !too_large && low <= number && number <= high) return number;
  diagnostics_.add(Rule::out_of_range, at(key),
                   '`' + std::string(key) + "` is " + value->dump() + ", which is not in " + std::to_string(low) +
                       ".." + std::to_string(high));
  return low;
}

double JsonReader::number(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return 0;
  if (!value->is_number()) {
    refuse(key, "a number");
    return 0;
  }
  const auto number = value->get<double>();
  if (std::isfinite(number) && number >= 0) return number;
  diagnostics_.add(Rule::out_of_range, at(key), '`' + std::string(key) + "` is negative: " + value->dump());
  return 0;
}

bool JsonReader::flag(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  refuse(key, "true or false");
  return false;
}

const nlohmann::json* JsonReader::list(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr || value->is_array()) return value;
  refuse(key, "a list");
  return nullptr;
}

const nlohmann::json* JsonReader::object(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr || value->is_object()) return value;
  refuse(key, "an object");
  return nullptr;
}

}  // namespace flashdma_bwd::tune
