// The keys of every mapping in configs/: names, types and bounds. The parser reads by this list and
// configs/kernel_table.schema.json documents it; a test holds the two against each other.
#pragma once

#include <cstdint>
#include <flashdma_bwd/kernel_table.hpp>
#include <limits>
#include <span>
#include <string_view>

namespace flashdma_bwd::generator {

enum class FieldType : std::uint8_t {
  integer,
  number,    ///< decimal, not negative
  flag,      ///< true or false
  text,      ///< one line, not empty
  date,      ///< YYYY-MM-DD
  word,      ///< one of `words`
  words,     ///< one of `words`, or a list of them
  flags,     ///< true, false, or a list of them
  integers,  ///< a list of integers
  texts,     ///< a list of texts
  range,     ///< 5, 0..4096, 4096.. or ..4096, both ends included
  map,
  list_of_maps,
};

inline constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();

struct Field {
  std::string_view name;
  FieldType type = FieldType::text;
  bool required = false;
  std::int64_t low = 0;            ///< integers and ranges: the smallest value
  std::int64_t high = kUnbounded;  ///< and the largest
  std::span<const std::string_view> words{};
  std::span<const std::int64_t> values{};  ///< integers: the only ones allowed, if any are named
  std::string_view unit{};                 ///< what a number counts
};

/// A kind of mapping: how diagnostics call it, its definition in the schema, and its keys.
struct MapFields {
  std::string_view what;
  std::string_view definition;
  std::span<const Field> fields;
};

extern const MapFields kArchitectureFields;
extern const MapFields kLimitsFields;
extern const MapFields kBuildFields;
extern const MapFields kKernelCostFields;
extern const MapFields kTableFields;
extern const MapFields kRowFields;
extern const MapFields kWhenFields;
extern const MapFields kUseFields;  ///< what tells the families apart; the tile is in one of the next two
extern const MapFields kAmpereUseFields;
extern const MapFields kHopperUseFields;
extern const MapFields kMeasuredFields;
extern const MapFields kProfileFields;
extern const MapFields kInstantiateFields;

/// All keys of `use` in a row of this family.
const MapFields& use_fields(KernelFamily family);

/// All of the above.
std::span<const MapFields* const> all_map_fields();

}  // namespace flashdma_bwd::generator
