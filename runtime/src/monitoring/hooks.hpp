// The process's hooks, see flashdma_bwd_set_hooks.
#pragma once

#include <flashdma_bwd/flashdma_bwd.h>

#include "failure.hpp"

namespace flashdma_bwd {

/// nullptr: none. Waits for the calls whose hooks are running or still to run.
Check set_hooks(const flashdma_bwd_hooks* hooks);

/// The hooks of one call. They stay set as long as this lives.
class CallHooks {
 public:
  /// `wanted`: whether there may be any. A call from within a hook has none.
  explicit CallHooks(bool wanted);
  ~CallHooks();
  CallHooks(const CallHooks&) = delete;
  CallHooks& operator=(const CallHooks&) = delete;

  void before(const flashdma_bwd_call_report& report) const;
  void after(const flashdma_bwd_call_report& report) const;
  bool any() const { return held_; }

 private:
  bool held_ = false;
};

}  // namespace flashdma_bwd
