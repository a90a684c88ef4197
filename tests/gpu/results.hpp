// What the comparisons of this run gave.
#pragma once

#include <string>
#include <vector>

#include "support/compare.hpp"

namespace flashdma_bwd::testing {

struct Result {
  std::string kernel;
  std::string problem;
  GradientErrors errors;
  double bar = 0;
  bool pass = false;
};

class Results {
 public:
  void add(Result result) { results_.push_back(std::move(result)); }
  /// A kernel of another architecture that this GPU has no code for.
  void add_not_runnable(const std::string& kernel, const std::string& why);
  /// Kernels, comparisons and the largest error, on stdout.
  void print_summary() const;
  /// Appends one JSON object a line. Says on stderr why it could not.
  bool append_lines(const char* path) const;
  /// Appends a line "name comparisons percent" for each kernel, sorted: the largest error of dQ, dK, dV and dBias in
  /// its comparisons as percent of the bar, rounded up, or the word "failed" where a comparison failed. All lines are
  /// one write at the file's end: processes may append at once. Says on stderr why it could not.
  bool append_tested_kernels(const char* path) const;

 private:
  std::vector<Result> results_;
  std::vector<std::string> not_runnable_;
  std::string not_runnable_reason_;
};

/// The run's. Not for concurrent use.
Results& results();

}  // namespace flashdma_bwd::testing
