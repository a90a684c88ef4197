// A file of results that flashdma-bench or pytorch_yardstick.py wrote, as values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "floor.hpp"
#include "problem.hpp"
#include "run_environment.hpp"

namespace flashdma_bwd::bench {

/// Figures of a result whose mask's plan was timed by itself.
struct PlanFigures {
  std::string layout;
  double ms = 0;          ///< the building
  double planned_ms = 0;  ///< a backward with the plan; 0: not timed
};

/// One result. Times are positive unless there is a failure.
struct Measurement {
  std::string backend;  ///< kOwnBackend, or what was timed beside
  std::string set;
  std::string problem_text;  ///< as the file has it
  Problem problem;
  std::string kernel;  ///< canonical name, where the backend is this library
  std::string row;     ///< file:line of the table, likewise
  double ms = 0;
  double fastest_ms = 0;                  ///< 0: not known
  std::optional<double> active_fraction;  ///< pairs that mask and causality leave, over all
  std::optional<PlanFigures> plan;
  std::string failure;  ///< why there are no figures, or empty
};

inline constexpr std::string_view kOwnBackend = "flashdma_bwd";

struct ResultsFile {
  std::string path;
  Environment environment;
  Ceilings ceilings;  ///< measured in the same run; 0: not measured
  std::vector<Measurement> measurements;
};

/// Reads a file's text. What is wrong goes to `errors`, each "<path>:<line>:<column>: what"; then the result is not
/// complete. Members that have no meaning here are passed over.
ResultsFile read_results(std::string_view text, const std::string& path, std::vector<std::string>& errors);

}  // namespace flashdma_bwd::bench
