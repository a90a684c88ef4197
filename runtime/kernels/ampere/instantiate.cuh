// What a generated instantiation file includes: one macro that defines a kernel and its host functions.
//
// The kernel is a plain function named by the canonical name. It is not a template instantiation, because nvcc 13.0
// emits host stubs that do not compile for __global__ templates with an argument of class type; device functions have
// no such limit.
#pragma once

#include "ampere/backward_kernel.cuh"
#include "common/kernel_entry.hpp"
#include "common/launch_kernel.hpp"
#include "common/launch_order.cuh"

#define FLASHDMA_BWD_AMPERE_KERNEL(name, ...)                                                                   \
  namespace flashdma_bwd::kernels {                                                                             \
  extern "C" __global__ void __launch_bounds__(::flashdma_bwd::threads_per_block((__VA_ARGS__).tile), 1)        \
      name(const __grid_constant__ ::flashdma_bwd::BackwardParameters parameters) {                             \
    extern __shared__ __align__(1024) unsigned char shared[];                                                   \
    ::flashdma_bwd::wait_for_predecessor();                                                                     \
    ::flashdma_bwd::ampere::Backward<__VA_ARGS__>(parameters, shared).run();                                    \
  }                                                                                                             \
  cudaError_t name##_prepare() {                                                                                \
    return cudaFuncSetAttribute(name, cudaFuncAttributeMaxDynamicSharedMemorySize,                              \
                                ::flashdma_bwd::shared_memory_bytes(__VA_ARGS__));                              \
  }                                                                                                             \
  cudaError_t name##_launch(const ::flashdma_bwd::BackwardParameters& parameters, cudaStream_t stream) {        \
    if (const cudaError_t error = name##_prepare(); error != cudaSuccess) return error;                         \
    const ::flashdma_bwd::Grid grid(static_cast<unsigned>(parameters.ctas));                                    \
    return ::flashdma_bwd::launch_kernel(name, grid.launched_early(parameters.early_launches),                  \
                                         ::flashdma_bwd::threads_per_block((__VA_ARGS__).tile),                 \
                                         ::flashdma_bwd::shared_memory_bytes(__VA_ARGS__), stream, parameters); \
  }                                                                                                             \
  }
