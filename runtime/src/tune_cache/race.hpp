// Which of some configurations is the fastest, measured in turns within a budget.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "failure.hpp"
#include "tune_cache/candidates.hpp"

namespace flashdma_bwd {

/// Times configurations for the arguments of one call.
class ConfigurationTimer {
 public:
  ConfigurationTimer() = default;
  ConfigurationTimer(const ConfigurationTimer&) = delete;
  ConfigurationTimer& operator=(const ConfigurationTimer&) = delete;
  virtual ~ConfigurationTimer() = default;

  /// Loads a kernel, so that its first run is as fast as the next.
  virtual Check prepare(const KernelEntry& kernel) = 0;
  /// Runs a kernel once, waits for it, and says how long it took on the device.
  virtual Check time(const KernelEntry& kernel, double& ms) = 0;
  /// Of the host's clock, by which the budget goes.
  virtual double now_ms() = 0;
};

struct Contestant {
  Candidate candidate;
  double ms = 0;         ///< median of the samples
  double spread_ms = 0;  ///< distance of their first from their third quartile
};

struct Race {
  std::vector<Contestant> measured;   ///< the winner, then the others in the order of their times
  std::vector<std::string> failures;  ///< of candidates that could not run: what their kernels said
};

/// Measures the incumbent, which comes first and wins unless another is faster beyond the noise, and the others as far
/// as the budget goes. A run is begun only if it is expected to end within the budget: as long as the incumbent's is
/// expected of one that has not run. What has not been measured cannot win. A failure is the incumbent's, or of a
/// kernel that had run before.
Check run_race(std::span<const Candidate> candidates, double budget_ms, ConfigurationTimer& timer, Race& race);

}  // namespace flashdma_bwd
