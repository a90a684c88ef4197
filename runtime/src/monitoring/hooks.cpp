// The process's hooks. Calls share a lock from their first hook to their last; whoever sets hooks has it alone.
#include "monitoring/hooks.hpp"

#include <mutex>
#include <shared_mutex>

#include "guarded.hpp"
#include "monitoring/switches.hpp"

namespace flashdma_bwd {
namespace {

std::mutex setting;                 // one thread sets at a time
std::shared_mutex calls;            // held shared by a call that has hooks
flashdma_bwd_hooks set_now{};       // guarded by calls
thread_local bool in_call = false;  // this thread is in a call that has hooks

}  // namespace

Check set_hooks(const flashdma_bwd_hooks* hooks) {
  if (in_call)
    return invalid(
        "hooks cannot be set from within a hook, whose call they would have to wait for: set them afterwards");
  if (hooks != nullptr)
    if (Check failure =
            check_struct_size("hooks", "flashdma_bwd_hooks", hooks->struct_size, sizeof(flashdma_bwd_hooks)))
      return failure;
  const std::lock_guard<std::mutex> alone(setting);
  read_switches();
  // Calls that begin now have no hooks and do not take the lock, so that the wait for it ends.
  monitoring_switches.fetch_and(~kMonitorHooks);
  const std::unique_lock<std::shared_mutex> no_calls(calls);
  set_now = hooks != nullptr ? *hooks : flashdma_bwd_hooks{};
  if (set_now.before != nullptr || set_now.after != nullptr) monitoring_switches.fetch_or(kMonitorHooks);
  return {};
}

CallHooks::CallHooks(bool wanted) {
  if (!wanted || in_call) return;
  calls.lock_shared();
  held_ = in_call = true;
}

CallHooks::~CallHooks() {
  if (!held_) return;
  in_call = false;
  calls.unlock_shared();
}

void CallHooks::before(const flashdma_bwd_call_report& report) const {
  if (held_ && set_now.before != nullptr) set_now.before(&report, set_now.user);
}

void CallHooks::after(const flashdma_bwd_call_report& report) const {
  if (held_ && set_now.after != nullptr) set_now.after(&report, set_now.user);
}

}  // namespace flashdma_bwd
