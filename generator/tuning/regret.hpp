// How far a table's choices are from the best measured ones. Pure.
#pragma once

#include <cstddef>
#include <flashdma_bwd/kernel_table.hpp>
#include <span>
#include <vector>

#include "tuning/measured_problem.hpp"

namespace flashdma_bwd::generator {

/// A choice on a measured problem. Refers to the measurements.
struct Regret {
  const MeasuredProblem* measured = nullptr;
  const MeasuredTile* chosen = nullptr;
  const MeasuredTile* best = nullptr;
  double share() const { return chosen->cold.ms / best->cold.ms - 1; }
};

struct Regrets {
  std::vector<Regret> regrets;                     ///< in the order of the measurements
  std::vector<const MeasuredProblem*> unmeasured;  ///< whose chosen tile was not timed
  double median = 0;                               ///< of the shares; 0 where there are none
  double worst = 0;
};

/// The choices of `rows` of one architecture.
Regrets regrets_of(std::span<const Row> rows, Architecture architecture, const DeviceTraits& device,
                   std::span<const MeasuredProblem> measured);

/// Whether a choice is slower than the best by more than the bound, and the noise. Of a time that is not known, nobody
/// can say that it is not.
bool is_too_slow(const MeasuredTile& chosen, const MeasuredTile& best, double bound);

/// The middle one, or the mean of the middle two; 0 of none.
double median_of(std::vector<double> values);

}  // namespace flashdma_bwd::generator
