// A launch, and what is told of it to whoever asked.
#pragma once

#include <cuda_runtime_api.h>
#include <flashdma_bwd/flashdma_bwd.h>

#include <cstddef>
#include <cstdint>
#include <flashdma_bwd/kernel_table.hpp>
#include <optional>

#include "launch/launch.hpp"
#include "monitoring/call_timer.hpp"
#include "monitoring/hooks.hpp"
#include "monitoring/nvtx_range.hpp"
#include "monitoring/switches.hpp"
#include "resolve.hpp"
#include "selection/problem_text.hpp"

namespace flashdma_bwd {

/// What is known of a call before its launch. Strings end in a NUL and are for the library's lifetime.
struct CallDescription {
  Problem problem;
  std::uint64_t tag = 0;
  const char* kernel = nullptr;    ///< canonical name
  std::size_t kernel_index = 0;    ///< of the build's kernels
  const char* row_file = nullptr;  ///< or what named the kernel
  int row_line = 0;
  int tier = 0;
  CacheAnswer cache = CacheAnswer::not_asked;  ///< before anything was measured
  std::size_t workspace_bytes = 0;
  cudaStream_t stream = nullptr;
};

/// Around a launch of which something is monitored: made before it, finished after it.
class LaunchMonitor {
 public:
  LaunchMonitor(std::uint32_t switches, const CallDescription& description);
  void finish(const LaunchResult& result);

 private:
  void count(bool launched);

  const std::uint32_t switches_;
  const std::size_t kernel_index_;
  const CacheAnswer cache_;
  CallHooks hooks_;
  std::optional<ProblemTextBuffer> problem_;  ///< where somebody reads it
  flashdma_bwd_call_report report_{};
  NvtxRange range_;
  CallTimer timer_;
};

/// launch(), which returns a LaunchResult. Where nothing is monitored a relaxed load is all that is added to it;
/// describe(), which returns a CallDescription, runs where something is.
template <class Describe, class Launch>
LaunchResult monitored_launch(const Describe& describe, const Launch& launch) {
  if (monitoring_switches.load(std::memory_order_relaxed) == 0) return launch();
  const std::uint32_t switches = read_switches();
  if (switches == 0) return launch();
  LaunchMonitor monitor(switches, describe());
  const LaunchResult result = launch();
  monitor.finish(result);
  return result;
}

}  // namespace flashdma_bwd
