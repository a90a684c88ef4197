// One backward pass as a chain of kernels, and the building of a plan and of a schedule.
//
// Arguments have been validated. Nothing here allocates or synchronises.
#pragma once

#include <cuda_runtime_api.h>
#include <flashdma_bwd/flashdma_bwd.h>

#include <cstddef>
#include <cstdint>
#include <flashdma_bwd/kernel_table.hpp>

#include "common/kernel_entry.hpp"

namespace flashdma_bwd {

/// The first CUDA call of a chain that failed, and how many kernels were enqueued.
struct LaunchResult {
  cudaError_t error = cudaSuccess;
  const char* call = nullptr;
  int kernels = 0;
};

/// Bytes of workspace, a multiple of 256. `piece_steps`: items of more query tiles are split into pieces of no more, as
/// far as kMostPieces allows; 0: where the time is estimated to be shorter.
std::size_t backward_workspace_bytes(const flashdma_bwd_arguments& arguments, const KernelConfig& config,
                                     const DeviceTraits& device, int piece_steps);

LaunchResult launch_backward(const flashdma_bwd_arguments& arguments, const KernelEntry& kernel,
                             const DeviceTraits& device, int piece_steps, void* workspace, cudaStream_t stream);

/// Of a call without queries and keys: zeros for the elements that its bias's gradient may have.
LaunchResult launch_without_rows(const flashdma_bwd_arguments& arguments, cudaStream_t stream);
/// Loads the kernels of the chain into the current context.
LaunchResult prepare_backward(const flashdma_bwd_arguments& arguments, const KernelEntry& kernel);

/// Bytes of the plan of arguments.mask, a multiple of 256.
std::size_t mask_plan_bytes(const flashdma_bwd_arguments& arguments);

/// `early_launches`: this GPU runs kernels of sm90, which may be launched before their predecessors are done.
LaunchResult build_mask_plan(const flashdma_bwd_arguments& arguments, const DeviceTraits& device, bool early_launches,
                             void* memory, std::size_t bytes, cudaStream_t stream, flashdma_bwd_mask_plan* plan);

/// The schedule of a call with a plan and fixed lengths that is not deterministic.
struct ScheduleShape {
  std::size_t bytes = 0;   ///< a multiple of 256
  std::uint64_t hash = 0;  ///< of everything that it depends on beside its plan
};

/// `piece_steps`: as backward_workspace_bytes() takes it.
ScheduleShape schedule_shape(const flashdma_bwd_arguments& arguments, const KernelConfig& config,
                             const DeviceTraits& device, int piece_steps);

LaunchResult build_schedule(const flashdma_bwd_arguments& arguments, const KernelConfig& config,
                            const DeviceTraits& device, int piece_steps, void* memory, cudaStream_t stream);

}  // namespace flashdma_bwd
