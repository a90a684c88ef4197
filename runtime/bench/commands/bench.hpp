// What flashdma-bench does on a GPU: times problems, and holds them against its ceilings.
#pragma once

#include <string>
#include <vector>

#include "measure.hpp"

namespace flashdma_bwd::bench {

struct BenchOptions {
  std::vector<std::string> sets;
  std::vector<std::string> problems;
  std::string json_file;
  std::string commit = "unknown";
  bool ceilings = false;  ///< measure them, too
  MeasureOptions measure;
};

/// Times the problems; the dense set if none was asked for. Returns the program's exit code.
int run_bench(const BenchOptions& options);

/// The same, with the ceilings of the GPU measured first; prints each problem's work, floor and bound.
int run_roofline(const BenchOptions& options);

}  // namespace flashdma_bwd::bench
