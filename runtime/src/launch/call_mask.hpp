// The mask of a call: its shape, and the plan that is made of it.
#pragma once

#include <cuda_runtime_api.h>
#include <flashdma_bwd/flashdma_bwd.h>

#include <cstddef>
#include <cstdint>

#include "device_traits.hpp"
#include "plan/mask_plan.hpp"
#include "plan/reordered_plan.hpp"
#include "selection/key_layout.hpp"

namespace flashdma_bwd {

/// The mask as a plan holds it: where it comes from, the plan if there is one, does not matter for its shape.
struct MaskShape {
  bool present = false;
  KeyLayout layout = KeyLayout::natural;
  std::int64_t batch = 1;
  std::int64_t heads = 1;

  /// Whether items have keys that are no neighbours, and none has those that are never active.
  bool scattered() const { return layout != KeyLayout::natural; }
  std::int64_t masks() const { return batch * heads; }
};

MaskShape mask_shape(const flashdma_bwd_arguments& arguments);

/// Bytes of a plan that is given, or of one that is to be built, which has the bits of key lists behind it.
std::size_t plan_bytes(const MaskShape& mask, const flashdma_bwd_arguments& arguments);

/// `early_launches`: this GPU runs kernels of sm90, which may be launched before their predecessors are done.
PlanDevice plan_device(const DeviceTraits& device, bool early_launches);

/// Builds the plan of arguments.mask in plan_bytes() of memory.
cudaError_t build_plan(const MaskShape& shape, const flashdma_bwd_arguments& arguments, const PlanDevice& device,
                       std::byte* memory, cudaStream_t stream, const BesideOrder& beside_order = {});

}  // namespace flashdma_bwd
