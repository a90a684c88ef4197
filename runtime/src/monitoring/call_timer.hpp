// The time of calls on the GPU, by events of a pool for each device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "failure.hpp"
#include "monitoring/event_pool.hpp"

namespace flashdma_bwd {

/// Makes the events of the current device, if it has none.
Check switch_on_timing(CallCounters& counters);

/// Adds the times of the calls that are finished to the counters, and returns how many are not.
std::uint64_t harvest_times();

/// The two events of one call.
class CallTimer {
 public:
  /// Begins to time what comes on the stream, if it can.
  void start(cudaStream_t stream);
  /// Behind the launch, which has failed or not. False if the call is not timed.
  bool stop(cudaStream_t stream, std::size_t kernel, bool launched);

 private:
  EventPool* pool_ = nullptr;
  int pair_ = -1;
};

}  // namespace flashdma_bwd
