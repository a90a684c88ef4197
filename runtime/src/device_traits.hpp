// What selection knows about the current GPU, asked of the CUDA runtime once for each GPU.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>

#include "failure.hpp"

namespace flashdma_bwd {

/// Of the calling thread's current device.
Check current_device_traits(DeviceTraits& traits);

/// The same, or of the one that the caller describes.
Check device_traits(const flashdma_bwd_device* device, DeviceTraits& traits);

}  // namespace flashdma_bwd
