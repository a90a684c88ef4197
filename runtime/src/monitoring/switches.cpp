// The word's first value, from the environment, and its changes.
#include "monitoring/switches.hpp"

#include "environment.hpp"
#include "log.hpp"

namespace flashdma_bwd {
namespace {

/// Once a process: what the environment asks for is there before the mark that it may ask is gone.
void ask_environment() {
  static const bool asked = [] {
    const Environment& asking = environment();
    if (!asking.nvtx_error.empty()) log_warning(asking, asking.nvtx_error);
    if (!asking.capture.empty()) monitoring_switches.fetch_or(kMonitorCapture);
    if (asking.nvtx) monitoring_switches.fetch_or(FLASHDMA_BWD_MONITOR_NVTX);
    monitoring_switches.fetch_and(~kMonitorUnread);
    return true;
  }();
  static_cast<void>(asked);
}

}  // namespace

std::uint32_t read_switches() {
  ask_environment();
  return monitoring_switches.load();
}

void set_monitor_flags(std::uint32_t flags) {
  std::uint32_t word = read_switches();
  while (!monitoring_switches.compare_exchange_weak(word, (word & ~kMonitorFlags) | flags)) {
  }
}

}  // namespace flashdma_bwd
