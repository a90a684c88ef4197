// The ceilings of the GPU at hand, measured.
#pragma once

#include <string>

#include "floor.hpp"
#include "timing.hpp"

namespace flashdma_bwd::bench {

/// The bandwidth of a copy within device memory, bytes read and written, and the operations a second of this library's
/// fastest dense backward: no limit of the tensor cores, but what a mask that skips work could reach at best. What
/// fails goes to `message`; then that ceiling is 0.
Ceilings measure_ceilings(const TimingOptions& options, std::string& message);

}  // namespace flashdma_bwd::bench
