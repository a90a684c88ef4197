// Loading kernels ahead of their first launch.
#pragma once

#include <cuda_runtime_api.h>

namespace flashdma_bwd {

/// Asks for the attributes of each kernel, which loads its code where loading is lazy.
template <class... Kernels>
cudaError_t load_kernels(Kernels... kernels) {
  cudaFuncAttributes attributes;
  cudaError_t error = cudaSuccess;
  ((error = error == cudaSuccess ? cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernels)) : error),
   ...);
  return error;
}

}  // namespace flashdma_bwd
