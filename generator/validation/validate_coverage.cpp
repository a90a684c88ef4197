// Holes, hidden rows, duplicates and defaults of a table.
#include <algorithm>
#include <string>

#include "selection/problem_domain.hpp"
#include "selection/vocabulary.hpp"
#include "validation/coverage.hpp"
#include "validation/validate.hpp"

namespace flashdma_bwd::generator {
namespace {

std::string lines(const Table& table, const std::vector<std::size_t>& rows) {
  std::string text = rows.size() == 1 ? "line " : "lines ";
  for (std::size_t i = 0; i < rows.size(); ++i)
    text += (i == 0 ? "" : i + 1 == rows.size() ? " and " : ", ") + std::to_string(table.rows[rows[i]].at.line);
  return text;
}

void report_holes(const Table& table, const Coverage& coverage, Diagnostics& diagnostics) {
  constexpr std::size_t kMostShown = 8;
  const std::string architecture(word(table.architecture));
  for (const Coverage::Hole& hole : coverage.holes) {
    Location at = table.rows_at;
    for (const TableRow& row : table.rows)
      if (row.when.head_dim == hole.head_dim) at = row.at;
    for (std::size_t i = 0; i < std::min(hole.regions.size(), kMostShown); ++i) {
      const std::string narrowed = describe(hole.regions[i]);
      std::vector<std::string> notes{"end the rows of a head dim with one whose `when` has nothing but `head_dim: " +
                                     std::to_string(hole.head_dim) + '`'};
      if (i + 1 == kMostShown && hole.regions.size() > kMostShown)
        notes.push_back(std::to_string(hole.regions.size() - kMostShown) + " more such regions are not shown");
      diagnostics.add(Rule::coverage_hole, at,
                      "no row for head_dim in " + describe_head_dims(hole.head_dim) +
                          (narrowed.empty() ? "" : ", " + narrowed) + ", " + architecture,
                      notes);
    }
  }
}

/// Reports a row that earlier rows hide.
void report_hidden(const Table& table, const Coverage& coverage, std::size_t i, Diagnostics& diagnostics) {
  const TableRow& row = table.rows[i];
  const auto same = std::find_if(table.rows.begin(), table.rows.begin() + static_cast<std::ptrdiff_t>(i),
                                 [&](const TableRow& other) { return other.when == row.when; });
  if (same != table.rows.begin() + static_cast<std::ptrdiff_t>(i))
    diagnostics.add(Rule::duplicate_row, row.at,
                    "row at line " + std::to_string(row.at.line) + " has the condition of the row at line " +
                        std::to_string(same->at.line),
                    {"the first of them decides: remove one"});
  else
    diagnostics.add(
        Rule::unreachable_row, row.at,
        "row at line " + std::to_string(row.at.line) + " is shadowed by " + lines(table, coverage.hiders[i]),
        {"the first row whose condition holds decides: move this row up, or remove it"});
}

/// Reports a row that is left with problems that cannot be.
void report_impossible(const TableRow& row, Diagnostics& diagnostics) {
  diagnostics.add(
      Rule::unreachable_row, row.at, "row at line " + std::to_string(row.at.line) + " decides no problem that can be",
      {"without a mask keys are natural and mask_density is 1000; mask_density is at least 1; bias_copies is "
       "true for a tile bias with natural keys only; sequences have " +
           std::to_string(kLongestSequence) + " queries and keys at most",
       "earlier rows may have taken what else it admits: change its condition, or remove it"});
}

void report_missing_default(const Table& table, int head_dim, Diagnostics& diagnostics) {
  const TableRow* last = nullptr;
  for (const TableRow& row : table.rows)
    if (row.when.head_dim == head_dim) last = &row;
  if (last == nullptr || region_of(last->when) == whole_domain()) return;
  diagnostics.add(
      Rule::missing_default, last->when_at,
      "the last row for head_dim " + std::to_string(head_dim) + " has further conditions",
      {"the rows cover every problem today; an unconditional last row keeps it so when one of them is edited"});
}

}  // namespace

void validate_coverage(const Table& table, Diagnostics& diagnostics) {
  const Coverage coverage = cover(table);
  report_holes(table, coverage, diagnostics);
  for (std::size_t i = 0; i < table.rows.size(); ++i)
    if (coverage.decided[i].empty())
      report_hidden(table, coverage, i, diagnostics);
    else if (possible(coverage.decided[i]).empty())
      report_impossible(table.rows[i], diagnostics);
  for (const int head_dim : kHeadDimBuckets) {
    const bool hole = std::any_of(coverage.holes.begin(), coverage.holes.end(),
                                  [&](const Coverage::Hole& h) { return h.head_dim == head_dim; });
    if (!hole) report_missing_default(table, head_dim, diagnostics);
  }
}

}  // namespace flashdma_bwd::generator
