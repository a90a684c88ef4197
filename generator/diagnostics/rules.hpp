// Every rule that the generator can report, with its stable id.
//
// The ids are an interface: scripts and suppressions refer to them, so an id is never renamed or reused.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace flashdma_bwd::generator {

enum class Rule : std::uint8_t {
  // Files
  file_unreadable,
  file_empty,
  file_missing,
  yaml_syntax,
  yaml_feature,
  // Keys and values
  unknown_key,
  duplicate_key,
  missing_key,
  wrong_type,
  wrong_unit,
  out_of_range,
  empty_range,
  unknown_value,
  unknown_architecture,
  name_mismatch,
  duplicate_name,
  provenance_missing,
  // Configurations
  family_key,
  family_architecture,
  tile_shape,
  threads,
  shared_memory,
  registers,
  tile_bias,
  // Tables
  coverage_hole,
  unreachable_row,
  duplicate_row,
  missing_default,
  row_layout,
  // Measurements
  json_syntax,
  foreign_version,
  cache_record,
  // Profiles
  empty_profile,
  // The generated tree
  output_missing,
  output_changed,
  output_orphaned,
};

struct RuleDescription {
  Rule rule;
  std::string_view id;
  std::string_view summary;
};

/// All rules, in the order of the enumeration.
std::span<const RuleDescription> all_rules();
std::string_view rule_id(Rule rule);

}  // namespace flashdma_bwd::generator
