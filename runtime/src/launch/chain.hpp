// A chain of CUDA calls, of which none follows one that has failed.
#pragma once

#include <cuda_runtime_api.h>

#include "common/enqueued_kernels.hpp"
#include "launch/launch.hpp"

namespace flashdma_bwd {

/// Runs calls until one fails.
class Chain {
 public:
  void run(const char* call, cudaError_t error) {
    if (result_.error == cudaSuccess && error != cudaSuccess) result_ = {error, call};
  }
  bool ok() const { return result_.error == cudaSuccess; }
  LaunchResult result() const {
    return {result_.error, result_.call, static_cast<int>(enqueued_kernels - enqueued_before_)};
  }

 private:
  LaunchResult result_;
  unsigned enqueued_before_ = enqueued_kernels;
};

}  // namespace flashdma_bwd
