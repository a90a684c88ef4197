// What results say when they are put together: each time beside its floor, shares of the time, and the rows of the
// table and configurations that they add up to. Pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "floor.hpp"
#include "report/results_file.hpp"

namespace flashdma_bwd::bench {

/// One time of this library. A measurement has two where the backward with its plan given was timed, too.
struct Entry {
  const Measurement* measurement = nullptr;
  const ResultsFile* file = nullptr;
  PlanUse plan = PlanUse::built;
  double ms = 0;
  Work work;
  Floor floor;
  double share = 0;  ///< of the time of all entries that build their plan; those with a plan given have none

  /// The floor over the time: 1 is as fast as it gets. 0: no floor is known.
  double achieved() const { return floor.ms / ms; }
  double teraflops() const { return work.flops / (ms * 1e9); }
};

/// Entries that build their plan and have something in common, added up.
struct Group {
  std::string name;
  int count = 0;
  double ms = 0;
  double floor_ms = 0;
  double share = 0;                 ///< of the time of all groups
  double above_floor = 0;           ///< the part of the time of all groups that is above this group's floors
  const Entry* farthest = nullptr;  ///< with the most time above its floor
};

/// One problem and all that was timed of it, the fastest of each.
struct ProblemTimes {
  std::string text;
  const Entry* own = nullptr;                          ///< nullptr: not timed
  const Entry* planned = nullptr;                      ///< likewise
  std::vector<std::pair<std::string, double>> others;  ///< backend and ms
};

/// All files of results of one GPU. Can be moved, not copied: groups and problems refer to entries.
struct Analysis {
  Analysis() = default;
  Analysis(Analysis&&) = default;
  Analysis& operator=(Analysis&&) = default;

  std::string gpu;
  std::vector<const ResultsFile*> files;
  Ceilings ceilings;
  std::vector<Entry> entries;
  std::vector<Group> rows;            ///< the one that most deserves tuning first
  std::vector<Group> configurations;  ///< likewise
  std::vector<ProblemTimes> problems;
  std::vector<std::string> other_backends;
  std::vector<std::pair<const ResultsFile*, const Measurement*>> failures;
  double total_ms = 0;
};

/// One analysis for each GPU, in the files' order. `given` has ceilings that hold for every GPU, 0 where there is none;
/// then a GPU has the best that its files measured, and else, of the dense ceiling, its fastest dense result. The files
/// must outlive what is returned.
std::vector<Analysis> analyse(const std::vector<ResultsFile>& files, const Ceilings& given);

/// The ceilings of one GPU by those rules.
Ceilings ceilings_of(const std::vector<const ResultsFile*>& files, const Ceilings& given);

}  // namespace flashdma_bwd::bench
