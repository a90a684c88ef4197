// The one session that is at work in a process.
#pragma once

#include <atomic>
#include <memory>

#include "failure.hpp"
#include "tune_cache/tune_session.hpp"

namespace flashdma_bwd {

namespace detail {
/// nullptr: nothing is tuned. Not `unread_tuning()`: the environment has been read.
extern std::atomic<TuneSession*> tuning;
/// Reads the environment, unless another thread or set_tuning was first.
TuneSession* read_tuning();
extern char unread;
inline TuneSession* unread_tuning() {
  return reinterpret_cast<TuneSession*>(&unread);
}
}  // namespace detail

/// The session of flashdma_bwd_set_tuning or of the environment; nullptr: nothing is tuned, which a relaxed load tells.
inline TuneSession* tuning() {
  if (detail::tuning.load(std::memory_order_relaxed) == nullptr) return nullptr;
  TuneSession* session = detail::tuning.load(std::memory_order_acquire);
  return session == detail::unread_tuning() ? detail::read_tuning() : session;
}

/// Replaces the session. A failure changes nothing.
Check set_tuning(const TuneOptions& options);

}  // namespace flashdma_bwd
