// Selection on measured problems.
#include "tuning/regret.hpp"

#include <algorithm>

#include "selection/select_kernel.hpp"

namespace flashdma_bwd::generator {

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

bool is_too_slow(const MeasuredTile& chosen, const MeasuredTile& best, double bound) {
  return chosen.evidence == Evidence::at_least ||
         (chosen.cold.ms > best.cold.ms * (1 + bound) && slower_beyond_noise(chosen.cold, best.cold));
}

Regrets regrets_of(std::span<const Row> rows, Architecture architecture, const DeviceTraits& device,
                   std::span<const MeasuredProblem> measured) {
  Regrets result;
  std::vector<double> shares;
  for (const MeasuredProblem& problem : measured) {
    const SelectionResult selection = select_among(architecture, device, problem.problem, rows);
    const MeasuredTile* chosen =
        selection.status == SelectionStatus::ok ? find_tile(problem, selection.config.tile) : nullptr;
    if (chosen == nullptr) {
      result.unmeasured.push_back(&problem);
      continue;
    }
    const Regret& regret = result.regrets.emplace_back(Regret{&problem, chosen, fastest(problem)});
    shares.push_back(regret.share());
    result.worst = std::max(result.worst, regret.share());
  }
  result.median = median_of(std::move(shares));
  return result;
}

}  // namespace flashdma_bwd::generator
