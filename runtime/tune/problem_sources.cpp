// Grids and files.
#include "problem_sources.hpp"

#include <string_view>

#include "diagnostics/suggest.hpp"
#include "selection/problem_text.hpp"
#include "store.hpp"
#include "tuning/grids.hpp"

namespace flashdma_bwd::tune {

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

std::string add_problem_file(const std::string& path, std::vector<Problem>& problems) {
  std::string text, error;
  if (!read_text_file(path, false, text, error)) return error;
  const Parsed<std::vector<Problem>> parsed = parse_problem_file(text, path);
  if (!parsed) return parsed.error;
  problems.insert(problems.end(), parsed.value->begin(), parsed.value->end());
  return {};
}

}  // namespace flashdma_bwd::tune
