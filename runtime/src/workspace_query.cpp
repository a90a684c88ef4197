// See workspace_query.hpp.
#include "workspace_query.hpp"

#include <algorithm>
#include <utility>

#include "tune_cache/cache_choice.hpp"

namespace flashdma_bwd {

Check largest_workspace(const DispatchTable& table, const Environment& environment, TuneSession* session,
                        const Request& request, bool may_copy_bias,
                        const std::function<std::size_t(const KernelConfig&)>& bytes_of, std::size_t& bytes) {
  Check failure;
  bool found = false;
  for (const bool copies : {false, true}) {
    if (copies && !may_copy_bias) continue;
    Request asked = request;
    asked.problem.bias_copies = copies;
    Resolution resolution;
    if (Check refusal = choose_kernel(table, environment, session, asked, resolution)) {
      if (!failure) failure = std::move(refusal);
      continue;
    }
    found = true;
    bytes = std::max(bytes, bytes_of(resolution.config));
    if (resolution.cache != CacheAnswer::unknown || !session->measures()) continue;
    for (const Candidate& candidate : candidates_for(table, asked, resolution))
      bytes = std::max(bytes, bytes_of(candidate.kernel->config));
  }
  return found ? Check() : failure;
}

}  // namespace flashdma_bwd
