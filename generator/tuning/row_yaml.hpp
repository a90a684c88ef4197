// A tuned row as a line of a table. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "tuning/merge.hpp"

namespace flashdma_bwd::generator {

/// Where measurements come from; see `measured` in configs/kernel_table.schema.json.
struct MeasuredWhere {
  std::string gpu;
  int sm_count = 0;
  std::string toolkit;
  std::string driver;
  std::string commit;
  std::string source = {};  ///< what measured, if not the tuner
};

/// The row as `- {when: {...}, use: {...}, derived: "...", measured: {...}}` without an end of line; `derived` where
/// people chose. `use:` begins at 0-based `use_column`, or behind `when` where that is longer.
std::string row_yaml(const TunedRow& row, const MeasuredWhere& where, std::size_t use_column = 0);

}  // namespace flashdma_bwd::generator
