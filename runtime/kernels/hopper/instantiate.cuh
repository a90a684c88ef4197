// What a generated instantiation file includes: one macro that defines a kernel and its host functions.
//
// The kernel is a plain function named by the canonical name, as in ampere/instantiate.cuh.
#pragma once

#include <algorithm>

#include "common/kernel_entry.hpp"
#include "common/launch_kernel.hpp"
#include "common/launch_order.cuh"
#include "hopper/backward_kernel.cuh"
#include "hopper/pair/backward_kernel.cuh"
#include "hopper/query_gradient.cuh"
#include "hopper/transposed/backward_kernel.cuh"

namespace flashdma_bwd::hopper {

/// A constant, for device code calls no functions of the host's.
template <KernelConfig kConfig>
inline constexpr bool kTransposed = accumulates_transposed(kConfig.tile);

/// The body of a kernel. The architecture's host pass and builds for other GPUs see no device code.
template <KernelConfig kConfig>
__device__ __forceinline__ void run_backward(const BackwardParameters& parameters, const TensorMaps& maps,
                                             unsigned char* shared) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  wait_for_predecessor();
  if constexpr (kConfig.tile.cta_pair && kMultipliesBiasGradient<kConfig>) {
    if (parameters.d_q_scratch == nullptr)
      pair::Backward<kConfig, false>(parameters, maps, shared).run();
    else
      pair::Backward<kConfig>(parameters, maps, shared).run();
  } else if constexpr (kConfig.tile.cta_pair)
    pair::Backward<kConfig>(parameters, maps, shared).run();
  else if constexpr (kTransposed<kConfig>)
    transposed::Backward<kConfig>(parameters, maps, shared).run();
  else
    Backward<kConfig>(parameters, maps, shared).run();
#endif
}

/// The geometry of a configuration.
template <KernelConfig kConfig>
constexpr auto geometry() {
  if constexpr (kConfig.tile.cta_pair)
    return pair::Geometry<kConfig>{};
  else if constexpr (kTransposed<kConfig>)
    return transposed::Geometry<kConfig>{};
  else
    return Geometry<kConfig>{};
}

template <KernelConfig kConfig, class Kernel>
cudaError_t launch(Kernel* kernel, const BackwardParameters& parameters, cudaStream_t stream) {
  using G = decltype(geometry<kConfig>());
  constexpr int kCtas = blocks_per_item(kConfig.tile);
  constexpr MapBox kMask = G::kMaskBytes > 0 ? MapBox{G::kMaskBytes / (G::kM * 8), G::kM} : MapBox{0, 0};
  constexpr MapBoxes kBoxes{{G::kM, G::QueryTile::kPanelColumns},
                            {G::kN / kCtas, G::KeyTile::kPanelColumns},
                            {G::kN / kCtas, G::ValueTile::kPanelColumns},
                            {G::kGradientBoxRows, widest_panel(G::kD)},
                            G::kM,
                            kMask,
                            kConfig.bias == BiasKind::tile ? MapBox{G::kM, 64} : MapBox{0, 0}};
  TensorMaps maps{};
  if (const cudaError_t error = encode_tensor_maps(maps, parameters, kBoxes); error != cudaSuccess) return error;
  const int ctas = kConfig.tile.several_items ? std::min(parameters.ctas, parameters.running) : parameters.ctas;
  const Grid grid{static_cast<unsigned>(ctas) * kCtas, kCtas};
  if (const cudaError_t error = launch_kernel(kernel, grid.launched_early(parameters.early_launches), G::kThreads,
                                              shared_memory_bytes(kConfig), stream, parameters, maps);
      error != cudaSuccess)
    return error;
  if constexpr (multiplies_bias_gradient(kConfig))
    if (parameters.d_q_scratch == nullptr)
      return launch_query_gradient<kConfig.data_type, kConfig.head_dim>(parameters, stream);
  return cudaSuccess;
}

template <KernelConfig kConfig, class Kernel>
cudaError_t prepare(Kernel* kernel) {
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_memory_bytes(kConfig));
      error != cudaSuccess)
    return error;
  if constexpr (multiplies_bias_gradient(kConfig)) return prepare_query_gradient<kConfig.data_type, kConfig.head_dim>();
  return cudaSuccess;
}

}  // namespace flashdma_bwd::hopper

#define FLASHDMA_BWD_HOPPER_KERNEL(name, ...)                                                            \
  namespace flashdma_bwd::kernels {                                                                      \
  extern "C" __global__ void __launch_bounds__(::flashdma_bwd::threads_per_block((__VA_ARGS__).tile), 1) \
      name(const __grid_constant__ ::flashdma_bwd::BackwardParameters parameters,                        \
           const __grid_constant__ ::flashdma_bwd::hopper::TensorMaps maps) {                            \
    extern __shared__ __align__(1024) unsigned char shared[];                                            \
    ::flashdma_bwd::hopper::run_backward<__VA_ARGS__>(parameters, maps, shared);                         \
  }                                                                                                      \
  cudaError_t name##_prepare() {                                                                         \
    return ::flashdma_bwd::hopper::prepare<__VA_ARGS__>(name);                                           \
  }                                                                                                      \
  cudaError_t name##_launch(const ::flashdma_bwd::BackwardParameters& parameters, cudaStream_t stream) { \
    if (const cudaError_t error = name##_prepare(); error != cudaSuccess) return error;                  \
    return ::flashdma_bwd::hopper::launch<__VA_ARGS__>(name, parameters, stream);                        \
  }                                                                                                      \
  }
