// Times backwards on the caller's stream with CUDA events.
#pragma once

#include <cuda_runtime_api.h>
#include <flashdma_bwd/flashdma_bwd.h>

#include "tune_cache/race.hpp"

namespace flashdma_bwd {

/// Whether a stream captures, or its device is in a state in which it might.
bool is_capturing(cudaStream_t stream);

/// Runs backwards with one call's arguments, whose outputs they write, and waits for each. Other threads may capture
/// meanwhile.
class EventTimer : public ConfigurationTimer {
 public:
  EventTimer(const flashdma_bwd_arguments& arguments, const DeviceTraits& device, void* workspace, cudaStream_t stream);
  ~EventTimer() override;

  Check prepare(const KernelEntry& kernel) override;
  Check time(const KernelEntry& kernel, double& ms) override;
  double now_ms() override;

 private:
  const flashdma_bwd_arguments& arguments_;
  const DeviceTraits device_;
  void* const workspace_;
  const cudaStream_t stream_;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  ///< of the thread, when this is gone
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  cudaError_t failed_ = cudaSuccess;  ///< to make the events
};

}  // namespace flashdma_bwd
