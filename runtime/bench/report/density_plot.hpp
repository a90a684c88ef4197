// Time against the density of a mask, as a chart.
#pragma once

#include <string>
#include <vector>

#include "report/chart.hpp"
#include "report/results_file.hpp"

namespace flashdma_bwd::bench {

/// A series for each number of keys: times of masked problems against their active pairs, as a part of those that
/// causality leaves; with the plan given where that was timed; the time without a mask; the floor, where there is a
/// ceiling; and as points what the files have of other backends. On failure an `error` says what the files lack.
struct DensityPlot {
  Chart chart;
  std::string error;
};

DensityPlot density_plot(const std::vector<ResultsFile>& files, const Ceilings& given);

}  // namespace flashdma_bwd::bench
