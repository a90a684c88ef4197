// Problems to the rows that decide them, and a verdict on each row.
#include "tuning/row_evidence.hpp"

#include <algorithm>
#include <map>

#include "selection/select_kernel.hpp"
#include "tuning/regret.hpp"

namespace flashdma_bwd::generator {
namespace {

RowEvidence judge(const TableRow& row, const std::vector<const MeasuredProblem*>& decided, double bound) {
  RowEvidence evidence;
  evidence.row = &row;
  if (decided.empty()) return evidence;
  std::vector<const MeasuredProblem*> timed;
  for (const MeasuredProblem* problem : decided)
    if (find_tile(*problem, row.use) != nullptr) timed.push_back(problem);
  evidence.backing = Backing::not_timed;
  if (timed.empty()) return evidence;

  evidence.record = tuned_row(row.when, row.use, timed);
  evidence.record.derived = row.derived;
  const auto share = [&](const MeasuredProblem* problem) { return share_of(*find_tile(*problem, row.use), *problem); };
  evidence.worst = *std::ranges::max_element(timed, {}, share);
  const auto slow = [&](const MeasuredProblem* problem) {
    return is_too_slow(*find_tile(*problem, row.use), *fastest(*problem), bound);
  };
  if (std::ranges::any_of(timed, slow))
    evidence.backing = Backing::too_slow;
  else if (std::ranges::all_of(timed, [](const MeasuredProblem* problem) { return problem->tiles.size() == 1; }))
    evidence.backing = Backing::no_rival;
  else if (std::ranges::none_of(timed, [&](const MeasuredProblem* problem) { return wins(row.use, *problem); }))
    evidence.backing = Backing::never_fastest;
  else
    evidence.backing = Backing::backed;
  return evidence;
}

}  // namespace

std::vector<RowEvidence> evidence_of(const Table& table, std::span<const TunedRow> added, const DeviceTraits& device,
                                     std::span<const MeasuredProblem> measured, double bound) {
  std::vector<Row> own;
  for (const TableRow& row : table.rows) own.push_back(as_row(table, row));
  const std::vector<Row> rows = with_tuned_rows(own, table.architecture, added);
  std::map<const Row*, std::vector<const MeasuredProblem*>> decided;
  for (const MeasuredProblem& problem : measured) {
    if (problem.tiles.empty()) continue;
    const SelectionResult selection = select_among(table.architecture, device, problem.problem, rows);
    if (selection.status == SelectionStatus::ok) decided[selection.row].push_back(&problem);
  }
  std::vector<RowEvidence> result;
  for (std::size_t i = 0; i < table.rows.size(); ++i)
    result.push_back(judge(table.rows[i], decided[&rows[added.size() + i]], bound));
  return result;
}

}  // namespace flashdma_bwd::generator
