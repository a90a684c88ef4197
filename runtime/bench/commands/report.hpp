// flashdma-bench report: files of results and captures as one HTML page, or as a plot.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "floor.hpp"

namespace flashdma_bwd::bench {

struct ReportOptions {
  std::vector<std::string> files;
  std::string output;
  std::string plot;  ///< "density", or empty: a page
  std::vector<std::string> devices;
  Ceilings ceilings;
};

CLI::App* add_report(CLI::App& app, ReportOptions& options);
/// Returns the program's exit code.
int run_report(const ReportOptions& options);

}  // namespace flashdma_bwd::bench
