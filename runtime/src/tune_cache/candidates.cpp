// See candidates.hpp.
#include "tune_cache/candidates.hpp"

#include <algorithm>

namespace flashdma_bwd {

std::vector<Candidate> candidates_for(const DispatchTable& table, const Request& request, const Resolution& by_table) {
  std::vector<Candidate> candidates{{by_table.kernel, by_table.form, by_table.tier}};
  for (const KernelEntry& kernel : table.kernels) {
    const Architecture architecture = kernel.config.architecture;
    const auto form = code_form(architecture, request.device.compute_capability, table.also_native);
    if (&kernel == by_table.kernel || form != by_table.form ||
        (form == CodeForm::ptx && architecture != by_table.config.architecture) ||
        !why_not_served(kernel.config, request.problem, request.device).empty())
      continue;
    candidates.push_back({&kernel, *form, tier_of(architecture, request.device.compute_capability)});
  }
  // Names sort by architecture; what is near comes first.
  std::stable_sort(candidates.begin() + 1, candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.tier < b.tier; });
  std::vector<Candidate> distinct;
  for (const Candidate& candidate : candidates)
    if (std::none_of(distinct.begin(), distinct.end(), [&](const Candidate& other) {
          return other.kernel->config.tile == candidate.kernel->config.tile;
        }))
      distinct.push_back(candidate);
  return distinct;
}

}  // namespace flashdma_bwd
