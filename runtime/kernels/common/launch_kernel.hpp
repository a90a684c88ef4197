// Launching a kernel so that the launch's own error comes back, not one that an earlier call left behind.
#pragma once

#include <cuda_runtime.h>

#include "common/enqueued_kernels.hpp"

namespace flashdma_bwd {

struct Grid {
  dim3 ctas;
  unsigned ctas_per_cluster = 1;
  /// The kernel waits for those before it itself (common/launch_order.cuh), and may be launched before they are done.
  bool early = false;
  Grid(unsigned count) : ctas(count) {}  // NOLINT(google-explicit-constructor): most grids are a number of CTAs
  Grid(dim3 count) : ctas(count) {}      // NOLINT(google-explicit-constructor)
  Grid(unsigned count, unsigned per_cluster) : ctas(count), ctas_per_cluster(per_cluster) {}
  Grid launched_early(bool is_early) const {
    Grid grid = *this;
    grid.early = is_early;
    return grid;
  }
};

template <class... Parameters, class... Arguments>
cudaError_t launch_kernel(void (*kernel)(Parameters...), const Grid& grid, unsigned threads, std::size_t shared_bytes,
                          cudaStream_t stream, Arguments&&... arguments) {
  cudaLaunchConfig_t config = {};
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (grid.ctas_per_cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {grid.ctas_per_cluster, 1, 1};
  }
  if (grid.early) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  config.gridDim = grid.ctas;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, static_cast<Arguments&&>(arguments)...);
  if (error == cudaSuccess) ++enqueued_kernels;
  return error;
}

}  // namespace flashdma_bwd
