// A problem against the ceilings of a GPU, as text.
#pragma once

#include <string>

#include "floor.hpp"

namespace flashdma_bwd::bench {

/// What was measured of a problem.
struct RooflineTimes {
  std::string kernel, row;
  std::string layout;  ///< of the mask's plan; empty: there is no mask
  double active_fraction = 1;
  double ms = 0;
  double planned_ms = 0;  ///< 0: not timed
};

/// "Dense ceiling: 575.0 TFLOP/s, ...", two lines.
std::string ceilings_text(const Ceilings& ceilings);

/// Work, floor, the bound that binds, and how far from it the time is.
std::string roofline_text(const Problem& problem, const RooflineTimes& times, const Ceilings& ceilings);

}  // namespace flashdma_bwd::bench
