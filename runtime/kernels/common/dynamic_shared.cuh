// The shared memory whose size a launch gives.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace flashdma_bwd {

/// Aligned to 16 bytes.
__device__ __forceinline__ unsigned char* dynamic_shared_memory() {
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  return dynamic_shared;
}

/// Lets launches of a kernel give it as many bytes.
template <class... Parameters>
cudaError_t allow_shared_bytes(void (*kernel)(Parameters...), std::size_t bytes) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

}  // namespace flashdma_bwd
