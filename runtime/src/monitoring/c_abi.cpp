// The functions of flashdma_bwd.h that say what ran.
#include <flashdma_bwd/flashdma_bwd.h>

#include <string>

#include "guarded.hpp"
#include "monitoring/hooks.hpp"
#include "monitoring/switches.hpp"

using namespace flashdma_bwd;

flashdma_bwd_code flashdma_bwd_set_hooks(const flashdma_bwd_hooks* hooks) {
  return guarded([&] { return set_hooks(hooks); });
}

flashdma_bwd_code flashdma_bwd_set_monitoring(uint32_t flags) {
  return guarded([&]() -> Check {
    if ((flags & ~kMonitorFlags) != 0)
      return invalid("flags has unknown bits, " + std::to_string(flags & ~kMonitorFlags) +
                     ": this version knows FLASHDMA_BWD_MONITOR_NVTX");
    set_monitor_flags(flags);
    return {};
  });
}

uint32_t flashdma_bwd_monitoring(void) {
  return read_switches() & kMonitorFlags;
}
