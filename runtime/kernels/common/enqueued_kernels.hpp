// How many kernels a thread has enqueued.
#pragma once

namespace flashdma_bwd {

/// Of this thread, through launch_kernel; it wraps around.
inline constinit thread_local unsigned enqueued_kernels = 0;

}  // namespace flashdma_bwd
