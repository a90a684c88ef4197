// The longest problem that a tile won, and the worst that it lost.
#include "tuning/tuned_row.hpp"

#include <algorithm>

namespace flashdma_bwd::generator {

bool wins(const TileConfig& tile, const MeasuredProblem& measured) {
  const MeasuredTile* best = fastest(measured);
  return measured.tiles.size() > 1 && best->tile == tile;
}

double share_of(const MeasuredTile& tile, const MeasuredProblem& measured) {
  return tile.cold.ms / fastest(measured)->cold.ms - 1;
}

TunedRow tuned_row(const When& when, const TileConfig& use, std::span<const MeasuredProblem* const> problems) {
  TunedRow row;
  row.when = when;
  row.use = use;
  row.problems = problems.size();
  row.shown = problems.front();
  for (const MeasuredProblem* problem : problems) {
    row.worst_regret = std::max(row.worst_regret, share_of(*find_tile(*problem, use), *problem));
    if (wins(use, *problem) && (!wins(use, *row.shown) || fastest(*problem)->cold.ms > fastest(*row.shown)->cold.ms))
      row.shown = problem;
  }
  for (const MeasuredTile& tile : row.shown->tiles)
    if (tile.tile != use && (row.runner_up == nullptr || tile.cold.ms < row.runner_up->cold.ms)) row.runner_up = &tile;
  return row;
}

}  // namespace flashdma_bwd::generator
