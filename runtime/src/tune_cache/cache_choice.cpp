// See cache_choice.hpp.
#include "tune_cache/cache_choice.hpp"

#include "selection/number_text.hpp"

namespace flashdma_bwd {
namespace {

std::string number(double value) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, value).ptr};
}

bool has_pairs(const Problem& problem) {
  return problem.batch > 0 && problem.heads > 0 && problem.seqlen_q > 0 && problem.seqlen_k > 0;
}

std::string cache_name(const TuneSession& session) {
  return session.options().cache.empty() ? std::string("the cache in memory") : session.options().cache;
}

/// Overrides are asked for, or refused, whatever else is.
Check session_failure(const TuneSession* session, const Request& request) {
  if (session == nullptr || request.table_only || session->error().empty()) return {};
  return Failure{FLASHDMA_BWD_OVERRIDE_ERROR, session->error()};
}

/// Lines that each end in a newline.
std::string cache_text(const TuneSession* session, const Request& request, const Resolution& resolution) {
  if (session == nullptr) return {};
  switch (resolution.cache) {
    case CacheAnswer::not_asked:
      return request.table_only ? "the cache of measured choices is not asked: the call wants the table only\n"
                                : "the cache of measured choices is not asked: an override goes before it\n";
    case CacheAnswer::unknown:
      return cache_name(*session) + " has no choice for this problem on this GPU" +
             (session->measures() ? ": the next backward that is not captured measures it\n" : ", the table decides\n");
    case CacheAnswer::withheld:
      return cache_name(*session) +
             " has a choice for this problem, which is deterministic: the table decides unless FLASHDMA_BWD_TUNE_HASH "
             "or tuning.hash says which choices the cache must have\n";
    case CacheAnswer::chosen:
      break;
  }
  const CacheRecord& record = resolution.tuned->record;
  std::string text = decider_text(resolution) + " decides: " + record.kernel + " took " + number(record.ms) +
                     " ms (spread " + number(record.spread_ms) + " ms) on " + record.date + ", the fastest of " +
                     std::to_string(record.measured) + " measured of " + std::to_string(record.feasible);
  if (!record.runner_up.empty()) text += "; next: " + record.runner_up + ", " + number(record.runner_up_ms) + " ms";
  return text + "\nkernel: " + std::string(resolution.kernel->name) + "\nwithout the cache:\n";
}

}  // namespace

Check ask_cache(TuneSession* session, const Environment& environment, const Request& request, Resolution& resolution) {
  if (session == nullptr || request.table_only) return {};
  if (Check failure = session_failure(session, request)) return failure;
  if (resolution.decision != Decision::table || is_environment_row(environment, *resolution.row) ||
      !has_pairs(request.problem))
    return {};
  if (environment.piece_steps != 0 && session->measures())
    return Failure{
        FLASHDMA_BWD_OVERRIDE_ERROR,
        "FLASHDMA_BWD_PIECE_STEPS cuts the work for tests, and what is measured of it would be kept: unset it, "
        "or measure nothing (FLASHDMA_BWD_TUNE_MODE or tuning.mode)"};
  const DeviceChoices& choices = session->choices_for(request.device);
  if (!choices.error.empty()) return Failure{FLASHDMA_BWD_OVERRIDE_ERROR, choices.error};
  const TunedChoice* choice = choices.table.find(request.problem);
  resolution.cache = choice == nullptr ? CacheAnswer::unknown : CacheAnswer::withheld;
  // The same choice on every run needs more than a file that others may add to.
  if (choice == nullptr || (request.problem.deterministic && !choices.hash_is_given)) return {};
  resolution.cache = CacheAnswer::chosen;
  resolution.decision = Decision::cache;
  resolution.tuned = choice;
  resolution.table_tier = resolution.tier;
  resolution.cache_file = session->options().cache.c_str();
  resolution.config = choice->kernel->config;
  resolution.kernel = choice->kernel;
  resolution.row = nullptr;
  resolution.form = choice->form;
  resolution.tier = choice->tier;
  return {};
}

Check ask_cache_again(TuneSession* session, const Environment& environment, const Request& request,
                      const std::function<bool(const KernelConfig&)>& fits, Resolution& resolution) {
  Resolution chosen = resolution;
  if (Check failure = ask_cache(session, environment, request, chosen)) return failure;
  if (fits(chosen.config)) resolution = chosen;
  return {};
}

Check choose_kernel(const DispatchTable& table, const Environment& environment, TuneSession* session,
                    const Request& request, Resolution& resolution) {
  if (Check failure = session_failure(session, request)) return failure;
  if (Check failure = resolve(table, environment, request, resolution)) return failure;
  return ask_cache(session, environment, request, resolution);
}

std::string explain_choice(const DispatchTable& table, const Environment& environment, TuneSession* session,
                           const Request& request) {
  Resolution resolution;
  std::string text;
  if (Check failure = session_failure(session, request))
    text = "this process: " + failure->message + "\nwithout the cache:\n";
  else if (!resolve(table, environment, request, resolution)) {
    failure = ask_cache(session, environment, request, resolution);
    text = failure ? "this process: " + failure->message + "\nwithout the cache:\n"
                   : cache_text(session, request, resolution);
  }
  return text + explain_resolution(table, environment, request);
}

}  // namespace flashdma_bwd
