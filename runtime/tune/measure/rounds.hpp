// Rounds of timings over all candidates of a problem, so that a clock that drifts hits all alike. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tuning/measured_problem.hpp"

namespace flashdma_bwd::tune {

/// One round of one candidate, in milliseconds.
struct Sample {
  double cold = 0, warm = 0;
  std::string failure;  ///< or empty
};

struct RoundTimes {
  generator::Time cold, warm;
  int rounds = 0;
  bool stopped = false;
  std::string failure;
};

struct RoundOptions {
  int rounds = 15;
  double stop_share = 0.1;
};

/// Median and distance of the quartiles. `samples` are not empty.
generator::Time time_of(std::vector<double> samples);

/// Times candidates 0 ... count - 1. From the third round on those end whose fastest cold round is slower than the best
/// median by more than `stop_share`, but the first one, which all others race. Each round begins at another candidate,
/// so that none always follows the same one.
std::vector<RoundTimes> time_in_rounds(std::size_t count, const RoundOptions& options,
                                       const std::function<Sample(std::size_t candidate)>& sample);

}  // namespace flashdma_bwd::tune
