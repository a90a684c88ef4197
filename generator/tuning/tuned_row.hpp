// A row as measurements support it: its condition, its tile, and what the tile's problems say of it. Pure.
#pragma once

#include <cstddef>
#include <flashdma_bwd/kernel_table.hpp>
#include <span>
#include <string>

#include "tuning/measured_problem.hpp"

namespace flashdma_bwd::generator {

/// Refers to the measurements.
struct TunedRow {
  When when;
  TileConfig use;
  const MeasuredProblem* shown = nullptr;   ///< the longest of its problems on which its tile is the fastest
  const MeasuredTile* runner_up = nullptr;  ///< there
  std::size_t problems = 0;                 ///< measured ones that it decides or could decide
  double worst_regret = 0;                  ///< share, over these
  std::string derived = {};                 ///< what people say that the choice comes from; empty: the tuner chose
};

/// Whether the tile was faster than another one on this problem, and slower than none.
bool wins(const TileConfig& tile, const MeasuredProblem& measured);

/// How much longer a timed tile takes than the fastest, as a share.
double share_of(const MeasuredTile& tile, const MeasuredProblem& measured);

/// What `problems` say of a row with this tile, which was timed on each. Without a problem on which it wins, `shown` is
/// the first one. There is at least one problem.
TunedRow tuned_row(const When& when, const TileConfig& use, std::span<const MeasuredProblem* const> problems);

}  // namespace flashdma_bwd::generator
