// One compiled kernel as the dispatcher sees it: its configuration and two host functions.
//
// The generated dispatch table is an array of these. Every kernel of every family has the same signature, so that the
// dispatcher launches them alike.
#pragma once

#include <cuda_runtime_api.h>

#include <flashdma_bwd/kernel_table.hpp>
#include <string_view>

namespace flashdma_bwd {

struct BackwardParameters;  // common/parameters.hpp

/// Enqueues the main kernel: as many CTAs as `parameters.ctas` says, or clusters. And behind it, without `d_q_scratch`,
/// the one that computes dQ of a tile bias's gradient.
using LaunchFunction = cudaError_t (*)(const BackwardParameters& parameters, cudaStream_t stream);
/// Loads the kernel into the current context and lets it use its shared memory.
using PrepareFunction = cudaError_t (*)();

struct KernelEntry {
  std::string_view name;  ///< canonical
  KernelConfig config;
  LaunchFunction launch = nullptr;
  PrepareFunction prepare = nullptr;
};

}  // namespace flashdma_bwd

/// Declares the host functions of a kernel that an instantiation file defines.
#define FLASHDMA_BWD_DECLARE_KERNEL(name)                                                        \
  namespace flashdma_bwd::kernels {                                                              \
  cudaError_t name##_launch(const ::flashdma_bwd::BackwardParameters& parameters, cudaStream_t); \
  cudaError_t name##_prepare();                                                                  \
  }
/// The table entry of a kernel.
#define FLASHDMA_BWD_KERNEL_ENTRY(name, ...)                                                              \
  ::flashdma_bwd::KernelEntry {                                                                           \
#name, __VA_ARGS__, &::flashdma_bwd::kernels::name##_launch, &::flashdma_bwd::kernels::name##_prepare \
  }
