// A report as one HTML page that needs nothing beside itself.
#pragma once

#include <string>
#include <vector>

#include "report/analysis.hpp"
#include "report/predictions.hpp"

namespace flashdma_bwd::bench {

/// `results` and `captures` may each be empty. The text is a function of its arguments alone.
std::string report_page(const std::vector<Analysis>& results, const std::vector<CaptureAnalysis>& captures);

}  // namespace flashdma_bwd::bench
