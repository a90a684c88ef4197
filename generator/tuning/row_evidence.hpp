// What measurements say of the rows that a table has: which of them they back, and why not the others. Pure.
#pragma once

#include <cstdint>
#include <flashdma_bwd/kernel_table.hpp>
#include <span>
#include <vector>

#include "config/model.hpp"
#include "tuning/merge.hpp"

namespace flashdma_bwd::generator {

/// In the order in which they are asked: the first that holds.
enum class Backing : std::uint8_t {
  no_problem,     ///< no measured problem is decided by the row
  not_timed,      ///< its tile was timed on none of those that are
  too_slow,       ///< on one of them slower than the fastest by more than the bound, and the noise
  no_rival,       ///< on all of them the only tile that was timed
  never_fastest,  ///< within the bound on all, the fastest on none
  backed,
};

struct RowEvidence {
  const TableRow* row = nullptr;
  Backing backing = Backing::no_problem;
  /// Over the problems that the row decides and its tile was timed on; empty where there are none. Complete enough to
  /// be written as `measured` where the row is backed.
  TunedRow record;
  const MeasuredProblem* worst = nullptr;  ///< where record.worst_regret was found
};

/// One for each row of `table`, in its order. `added` are rows that are to be put before these: what they decide is no
/// longer decided by the rows behind.
std::vector<RowEvidence> evidence_of(const Table& table, std::span<const TunedRow> added, const DeviceTraits& device,
                                     std::span<const MeasuredProblem> measured, double bound = kRegretBound);

}  // namespace flashdma_bwd::generator
