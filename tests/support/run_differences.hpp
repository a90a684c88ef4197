// How far the outputs of repeated runs of a problem lie from those of the first.
#pragma once

#include <cstddef>
#include <vector>

#include "support/compare.hpp"
#include "support/problem.hpp"

namespace flashdma_bwd::testing {

/// Bytes are compared, and only what differs is widened: thousands of runs take less time to compare than to compute.
class RunDifferences {
 public:
  /// The first run's outputs are those in the problem's buffers. Throws std::logic_error if one is not of 16 bits. The
  /// problem outlives this, and its buffers receive other runs' outputs.
  explicit RunDifferences(Problem& problem);

  /// Another run's outputs, in the order of Problem::outputs(), each with all bytes of its buffer.
  void add(const std::vector<const std::byte*>& outputs);

  /// Runs of which a byte differs.
  int different_runs() const { return different_runs_; }
  /// Whether a byte that is no element differs.
  bool damaged() const { return damaged_; }
  /// The largest GradientErrors::largest of any run.
  double norm_error() const { return norm_error_; }
  /// The largest difference of an element of any run, in units of what another order of float32 additions may make of
  /// it: one step of the 16-bit type, and 2^-14 of the output's largest element.
  double element_error() const { return element_error_; }

 private:
  struct Output {
    Buffer* buffer;
    std::vector<std::byte> first;
    double largest = 0;
    double squares = 0;  ///< the largest sum, over a run's elements, of squared differences
  };
  double value(const std::byte* word) const;
  double squares_of(Output& output, const std::byte* other);

  Problem& problem_;
  Gradients first_;
  std::vector<Output> outputs_;
  int different_runs_ = 0;
  bool damaged_ = false;
  double norm_error_ = 0;
  double element_error_ = 0;
};

}  // namespace flashdma_bwd::testing
