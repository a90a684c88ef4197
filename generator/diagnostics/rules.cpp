// The text of the rules: ids and one-line summaries, in the order of the enumeration.
#include "diagnostics/rules.hpp"

#include <cstddef>

namespace flashdma_bwd::generator {
namespace {

constexpr RuleDescription kRules[] = {
    {Rule::file_unreadable, "file-unreadable", "a file or folder cannot be read"},
    {Rule::file_empty, "file-empty", "a file holds no document"},
    {Rule::file_missing, "file-missing", "an architecture has limits but no table, or a table but no limits"},
    {Rule::yaml_syntax, "yaml-syntax", "a file is not YAML"},
    {Rule::yaml_feature, "yaml-feature",
     "anchors, aliases, tags and several documents in a file are not used in these files"},
    {Rule::unknown_key, "unknown-key", "a key that the schema does not have"},
    {Rule::duplicate_key, "duplicate-key", "a key that a mapping has twice"},
    {Rule::missing_key, "missing-key", "a required key is absent"},
    {Rule::wrong_type, "wrong-type", "a value is of another type than its key's"},
    {Rule::wrong_unit, "wrong-unit", "a number carries a unit, or is in another unit than its key's"},
    {Rule::out_of_range, "out-of-range", "a number lies outside its key's range"},
    {Rule::empty_range, "empty-range", "a range ends before it begins, or a list has nothing in it"},
    {Rule::unknown_value, "unknown-value", "a word that is none of its key's values"},
    {Rule::unknown_architecture, "unknown-architecture", "an architecture that the library does not know"},
    {Rule::name_mismatch, "name-mismatch", "a file is named otherwise than what it describes"},
    {Rule::duplicate_name, "duplicate-name", "one value twice in a list, or one thing described twice"},
    {Rule::provenance_missing, "provenance-missing", "a row says neither `derived` nor `measured`"},
    {Rule::family_key, "family-key", "a key that another kernel family's tiles have"},
    {Rule::family_architecture, "family-architecture", "a kernel family whose instructions the architecture lacks"},
    {Rule::tile_shape, "tile-shape", "a tile cannot be divided among the warps, or its parts do not go together"},
    {Rule::threads, "threads", "a block has more threads than the architecture allows"},
    {Rule::shared_memory, "shared-memory", "a tile needs more shared memory than the architecture has"},
    {Rule::registers, "registers", "a tile needs more registers than a thread has"},
    {Rule::tile_bias, "tile-bias", "a row for problems with a tile bias whose tile's kernels read none"},
    {Rule::coverage_hole, "coverage-hole", "problems that no row of a table covers"},
    {Rule::unreachable_row, "unreachable-row", "a row that earlier rows hide, or that admits no problem that can be"},
    {Rule::duplicate_row, "duplicate-row", "a row with the condition of an earlier row"},
    {Rule::missing_default, "missing-default", "the rows of a head dim do not end in one without further conditions"},
    {Rule::row_layout, "row-layout", "a row of a table that is to be edited is not one line"},
    {Rule::json_syntax, "json-syntax", "a line of a store of measurements is not a JSON object"},
    {Rule::foreign_version, "foreign-version", "a record is in another version's form"},
    {Rule::cache_record, "cache-record", "a line of a run-time cache is no record of one"},
    {Rule::empty_profile, "empty-profile", "nothing is left to instantiate"},
    {Rule::output_missing, "output-missing", "a generated file does not exist"},
    {Rule::output_changed, "output-changed", "a generated file is not what the tables say"},
    {Rule::output_orphaned, "output-orphaned", "a generated file that the tables no longer ask for"},
};

constexpr bool in_order() {
  std::size_t index = 0;
  for (const RuleDescription& description : kRules)
    if (static_cast<std::size_t>(description.rule) != index++) return false;
  return index == static_cast<std::size_t>(Rule::output_orphaned) + 1;
}
static_assert(in_order(), "kRules has every rule once, in the order of the enumeration");

}  // namespace

std::span<const RuleDescription> all_rules() {
  return kRules;
}

std::string_view rule_id(Rule rule) {
  return kRules[static_cast<std::size_t>(rule)].id;
}

}  // namespace flashdma_bwd::generator
