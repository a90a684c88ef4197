// What a benchmark run was and what it found, as a table and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device_problem.hpp"
#include "floor.hpp"
#include "problem.hpp"
#include "run_environment.hpp"

namespace flashdma_bwd::bench {

/// The environment of this process: `commit` is passed in, the rest is asked for.
Environment current_environment(std::string commit);

struct Result {
  std::string set;  ///< name of the problem's set, or empty
  Problem problem;
  std::string kernel;
  std::string row;  ///< file:line of the table's row
  double ms = 0;    ///< median
  double fastest_ms = 0;
  std::string layout;                 ///< of the mask's plan, whoever builds it; empty: there is no mask
  std::optional<double> plan_ms;      ///< the building of the mask's plan alone
  std::optional<double> schedule_ms;  ///< the building of the plan's schedule alone
  std::optional<double> planned_ms;   ///< a backward with the plan, and its schedule if that was timed
  std::optional<PlanFound> plan;      ///< if it was built once, or timed
  int samples = 0;
  double active_fraction = 1;
  std::string failure;  ///< why there are no figures, or empty
};

/// Dense TFLOP/s: 10 * b * h * sq * sk * d, half when causal, whatever a mask leaves.
double teraflops(const Result& result);

std::string table(const std::vector<Result>& results);
/// `ceilings`: those that are 0 were not measured and are left out.
std::string json(const Environment& environment, const std::vector<Result>& results, const Ceilings& ceilings = {});

}  // namespace flashdma_bwd::bench
