// Times backwards and the building of plans with CUDA events.
#pragma once

#include <cstddef>
#include <string>

#include "device_problem.hpp"

namespace flashdma_bwd::bench {

struct TimingOptions {
  int samples = 20;               ///< of which the median counts
  double shortest_sample_ms = 1;  ///< shorter calls are timed several at a time, so that launches are not what is timed
  /// Run at least this long before sampling. The clocks that a GPU can hold take a second to settle; those of its first
  /// tenth of a second are higher.
  double sustain_seconds = 0.2;
};

struct Timing {
  double median_ms = 0;  ///< of one call
  double fastest_ms = 0;
  int calls_per_sample = 1;
  std::string message;  ///< what failed, or empty
};

Timing time_backward(DeviceProblem& problem, const TimingOptions& options);
/// Of the problem's plan, which is there.
Timing time_plan(DeviceProblem& problem, const TimingOptions& options);
/// Of that plan's schedule, which is there.
Timing time_schedule(DeviceProblem& problem, const TimingOptions& options);
/// Of a copy within device memory.
Timing time_copy(void* to, const void* from, std::size_t bytes, const TimingOptions& options);

}  // namespace flashdma_bwd::bench
