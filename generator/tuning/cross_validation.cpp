// Held-back parts.
#include "tuning/cross_validation.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "selection/problem_text.hpp"

namespace flashdma_bwd::generator {

int fold_of(const Problem& problem, int folds) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : problem_text(problem)) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  return static_cast<int>((hash >> 32) % static_cast<std::uint64_t>(folds));
}

Regrets cross_validate(std::span<const Row> rows, Architecture architecture, const DeviceTraits& device,
                       std::span<const MeasuredProblem> measured, double bound, int folds) {
  Regrets all;
  std::vector<double> shares;
  for (int fold = 0; fold < folds; ++fold) {
    std::vector<MeasuredProblem> kept;
    for (const MeasuredProblem& problem : measured)
      if (fold_of(problem.problem, folds) != fold) kept.push_back(problem);
    if (kept.empty() || kept.size() == measured.size()) continue;
    const std::vector<Row> tuned = with_tuned_rows(rows, architecture, merge(rows, architecture, device, kept, bound));
    for (const MeasuredProblem& problem : measured) {
      if (fold_of(problem.problem, folds) != fold) continue;
      const Regrets one = regrets_of(tuned, architecture, device, std::span(&problem, 1));
      all.regrets.insert(all.regrets.end(), one.regrets.begin(), one.regrets.end());
      all.unmeasured.insert(all.unmeasured.end(), one.unmeasured.begin(), one.unmeasured.end());
      all.worst = std::max(all.worst, one.worst);
    }
  }
  for (const Regret& regret : all.regrets) shares.push_back(regret.share());
  all.median = median_of(std::move(shares));
  return all;
}

}  // namespace flashdma_bwd::generator
