// One problem on the GPU at hand: which kernel it runs and how long that takes.
#pragma once

#include <string>

#include "device_problem.hpp"
#include "problem.hpp"
#include "report.hpp"
#include "timing.hpp"

namespace flashdma_bwd::bench {

struct MeasureOptions {
  DeviceProblemOptions device;
  TimingOptions timing;
  bool plan = false;  ///< time the building of a mask's plan and the backward with it, too
};

/// `set`: the name of the problem's set, or empty.
Result measure(const std::string& set, const Problem& problem, const MeasureOptions& options);

}  // namespace flashdma_bwd::bench
