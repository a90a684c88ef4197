// Grids and files.
#include "problem_sources.hpp"

#include <string_view>
#include <utility>

#include "diagnostics/suggest.hpp"
#include "selection/problem_text.hpp"
#include "store.hpp"
#include "tuning/grids.hpp"

namespace flashdma_bwd::tune {
namespace {

using generator::Rule;

Rule rule_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::header:
      return Rule::foreign_version;
    case FaultKind::unfinished:
      return Rule::file_unreadable;
    case FaultKind::unknown_part:
      return Rule::unknown_key;
    case FaultKind::repeated_part:
      return Rule::duplicate_key;
    case FaultKind::missing_part:
      return Rule::missing_key;
    case FaultKind::value_form:
      return Rule::wrong_type;
    case FaultKind::out_of_range:
      return Rule::out_of_range;
    case FaultKind::unknown_word:
      break;
  }
  return Rule::unknown_value;
}

}  // namespace

std::string add_grid(const std::string& name, std::vector<Problem>& problems) {
  std::vector<std::string_view> names;
  for (const generator::Grid& grid : generator::all_grids()) {
    names.push_back(grid.name);
    if (grid.name != name) continue;
    const std::vector<Problem> more = grid.problems();
    problems.insert(problems.end(), more.begin(), more.end());
    return {};
  }
  const std::vector<std::string> meant = generator::did_you_mean(name, names);
  return "there is no grid `" + name + "`; " + (meant.empty() ? "there is " + generator::enumerate(names) : meant[0]);
}

void add_problem_file(const std::string& path, std::vector<Problem>& problems, generator::Diagnostics& diagnostics,
                      std::vector<generator::SourceFile>& sources) {
  std::string text, error;
  if (!read_text_file(path, false, text, error)) {
    // The place of a finding names the file already.
    if (const std::string place = path + ": "; error.starts_with(place)) error.erase(0, place.size());
    diagnostics.add(Rule::file_unreadable, {path}, error);
    return;
  }
  ProblemFile file = read_problem_file(text);
  for (ProblemFault& fault : file.faults)
    diagnostics.add(text.empty() ? Rule::file_empty : rule_of(fault.kind),
                    {path, fault.line, static_cast<int>(fault.offset) + 1, static_cast<int>(fault.length)},
                    std::move(fault.why));
  problems.insert(problems.end(), file.problems.begin(), file.problems.end());
  sources.push_back({path, path, std::move(text)});
}

}  // namespace flashdma_bwd::tune
