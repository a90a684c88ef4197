// What of the monitoring is on: one word, which a backward reads once.
#pragma once

#include <flashdma_bwd/flashdma_bwd.h>

#include <atomic>
#include <cstdint>

namespace flashdma_bwd {

/// The flags that callers set, then what has functions of its own.
inline constexpr std::uint32_t kMonitorFlags =
    FLASHDMA_BWD_MONITOR_NVTX | FLASHDMA_BWD_MONITOR_COUNTERS | FLASHDMA_BWD_MONITOR_TIMING;
inline constexpr std::uint32_t kMonitorHooks = 1u << 16;
inline constexpr std::uint32_t kMonitorCapture = 1u << 17;
inline constexpr std::uint32_t kMonitorUnread = 1u << 31;  ///< the environment may still ask for something

/// Changed by switches.cpp, hooks.cpp and problem_capture.cpp only.
inline constinit std::atomic<std::uint32_t> monitoring_switches{kMonitorUnread};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// The word once the environment has been read.
std::uint32_t read_switches();

/// Sets the flags that callers set.
void set_monitor_flags(std::uint32_t flags);

}  // namespace flashdma_bwd
