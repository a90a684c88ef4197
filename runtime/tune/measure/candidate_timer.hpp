// A problem's candidates on the GPU: checked first, then timed in rounds.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

#include "tune/device.hpp"
#include "tune/measure/gradients.hpp"

namespace flashdma_bwd::tune {

/// Says which kernel is tried next, before it is.
using Announce = std::function<void(const std::string& kernel)>;

/// Measures a request. Returns why nothing could be measured, or an empty text. Where the GPU is lost to a kernel's
/// fault, which no later call survives, the process ends.
std::string measure_request(const Request& request, const Announce& announce, std::vector<Candidate>& results);

}  // namespace flashdma_bwd::tune
