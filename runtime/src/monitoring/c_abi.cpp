// The functions of flashdma_bwd.h that say what ran.
#include <flashdma_bwd/flashdma_bwd.h>

#include <string>

#include "dispatch_table.hpp"
#include "guarded.hpp"
#include "monitoring/call_counters.hpp"
#include "monitoring/call_timer.hpp"
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
                     ": this version knows FLASHDMA_BWD_MONITOR_NVTX, _COUNTERS and _TIMING");
    if ((flags & FLASHDMA_BWD_MONITOR_TIMING) != 0) flags |= FLASHDMA_BWD_MONITOR_COUNTERS;
    if ((flags & FLASHDMA_BWD_MONITOR_COUNTERS) != 0) {
      CallCounters& counters = make_call_counters(dispatch_table().kernels.size());
      if ((flags & FLASHDMA_BWD_MONITOR_TIMING) != 0)
        if (Check failure = switch_on_timing(counters)) return failure;
    }
    set_monitor_flags(flags);
    return {};
  });
}

uint32_t flashdma_bwd_monitoring(void) {
  return read_switches() & kMonitorFlags;
}

flashdma_bwd_code flashdma_bwd_read_counters(flashdma_bwd_counters* counters) {
  return guarded([&]() -> Check {
    if (Check failure = check_pointer(counters, "counters")) return failure;
    if (Check failure = check_struct_size("counters", "flashdma_bwd_counters", counters->struct_size,
                                          sizeof(flashdma_bwd_counters)))
      return failure;
    *counters = {};
    counters->struct_size = sizeof(flashdma_bwd_counters);
    if (const CallCounters* kept = call_counters()) {
      counters->unfinished_calls = harvest_times();
      kept->read(*counters);
    }
    return {};
  });
}

flashdma_bwd_code flashdma_bwd_read_kernel_counters(size_t index, flashdma_bwd_kernel_counters* counters) {
  return guarded([&]() -> Check {
    if (Check failure = check_pointer(counters, "counters")) return failure;
    if (Check failure = check_struct_size("counters", "flashdma_bwd_kernel_counters", counters->struct_size,
                                          sizeof(flashdma_bwd_kernel_counters)))
      return failure;
    const size_t kernels = dispatch_table().kernels.size();
    if (index >= kernels)
      return invalid("index is " + std::to_string(index) + ": this build has " + std::to_string(kernels) +
                     " kernels, numbered from 0 as flashdma_bwd_kernel_name does");
    *counters = {};
    counters->struct_size = sizeof(flashdma_bwd_kernel_counters);
    if (const CallCounters* kept = call_counters()) kept->read(index, *counters);
    return {};
  });
}

flashdma_bwd_code flashdma_bwd_reset_counters(void) {
  return guarded([]() -> Check {
    if (CallCounters* kept = call_counters()) kept->reset();
    return {};
  });
}
