// See first_use.hpp.
#include "tune_cache/first_use.hpp"

#include <vector>

#include "launch/launch.hpp"
#include "tune_cache/cache_choice.hpp"
#include "tune_cache/event_timer.hpp"

namespace flashdma_bwd {

Check measure_first_use(TuneSession* session, const DispatchTable& table, const Environment& environment,
                        const Request& request, const flashdma_bwd_arguments& arguments, void* workspace,
                        std::size_t workspace_bytes, cudaStream_t stream, Resolution& resolution) {
  if (resolution.cache != CacheAnswer::unknown || !session->measures()) return {};
  if (is_capturing(stream)) {
    session->tell_capture(request.problem);
    return {};
  }
  const auto fits = [&](const KernelConfig& config) {
    return backward_workspace_bytes(arguments, config, request.device, 0) <= workspace_bytes;
  };
  std::vector<Candidate> candidates = candidates_for(table, request, resolution);
  std::erase_if(candidates, [&](const Candidate& candidate) { return !fits(candidate.kernel->config); });
  EventTimer timer(arguments, request.device, workspace, stream);
  if (Check failure = session->measure(session->choices_for(request.device), request.problem, candidates, timer))
    return failure;
  return ask_cache_again(session, environment, request, fits, resolution);
}

}  // namespace flashdma_bwd
