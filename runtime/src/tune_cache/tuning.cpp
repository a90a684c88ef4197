// The session at work. Those that it replaced stay: calls of other threads may still be in them.
#include "tune_cache/tuning.hpp"

#include <cuda_runtime_api.h>

#include <mutex>
#include <utility>
#include <vector>

#include "environment.hpp"
#include "log.hpp"

namespace flashdma_bwd {

namespace detail {
char unread;
std::atomic<TuneSession*> tuning{unread_tuning()};
}  // namespace detail

namespace {

std::mutex& replacing() {
  static std::mutex mutex;
  return mutex;
}

std::unique_ptr<TuneSession> make_session(const TuneOptions& options, const std::string& error) {
  const std::string toolkit = std::to_string(CUDART_VERSION / 1000) + '.' + std::to_string(CUDART_VERSION % 1000 / 10);
  return std::make_unique<TuneSession>(
      options, dispatch_table(), toolkit, [](const std::string& text) { log_warning(environment(), text); }, error);
}

/// nullptr for mode off. The mutex is held.
TuneSession* put_to_work(std::unique_ptr<TuneSession> session) {
  static auto* const kept = new std::vector<std::unique_ptr<TuneSession>>;
  TuneSession* at_work = session.get();
  if (session != nullptr) kept->push_back(std::move(session));
  detail::tuning.store(at_work, std::memory_order_release);
  return at_work;
}

}  // namespace

TuneSession* detail::read_tuning() {
  const std::lock_guard lock(replacing());
  TuneSession* session = tuning.load(std::memory_order_relaxed);
  if (session != unread_tuning()) return session;
  const Environment& variables = environment();
  if (variables.tune.mode == TuneMode::off && variables.tune_error.empty()) return put_to_work(nullptr);
  return put_to_work(make_session(variables.tune, variables.tune_error));
}

Check set_tuning(const TuneOptions& options) {
  std::unique_ptr<TuneSession> session;
  if (options.mode != TuneMode::off) {
    session = make_session(options, {});
    if (!session->error().empty()) return Failure{FLASHDMA_BWD_OVERRIDE_ERROR, session->error()};
  }
  const std::lock_guard lock(replacing());
  put_to_work(std::move(session));
  return {};
}

}  // namespace flashdma_bwd
