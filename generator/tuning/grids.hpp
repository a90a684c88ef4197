// Named grids of problems, for tuning a table and for asking it about problems that it was not tuned on. Pure.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <string_view>
#include <vector>

namespace flashdma_bwd::generator {

struct Grid {
  std::string_view name;
  std::string_view what;  ///< in a line
  std::vector<Problem> (*problems)();
};

/// smoke: a few small problems of every kind; sm90: what sm90's table is tuned on; sm90-held-back: what it is judged
/// by.
std::vector<Grid> all_grids();

}  // namespace flashdma_bwd::generator
