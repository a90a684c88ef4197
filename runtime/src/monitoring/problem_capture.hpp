// FLASHDMA_BWD_CAPTURE: the problems of a process's backwards, each once, in a problem file that the tuner reads.
//
// Problems without queries or keys are left out: there is nothing to tune. What goes wrong with the file ends the
// capture with one warning and fails no backward. A problem that was seen before costs a lock and a look-up.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>

namespace flashdma_bwd {

class ProblemCapture {
 public:
  explicit ProblemCapture(std::string path) : path_(std::move(path)) {}
  /// Appends a problem with its text, if it is not there from before. Returns the warning of the first failure; nothing
  /// is appended after it.
  std::string add(const Problem& problem, std::string_view text);

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  const std::string path_;
  std::mutex mutex_;
  std::unordered_set<std::string, Hash, std::equal_to<>> seen_;
  bool ended_ = false;
};

/// Adds to the file of the environment. Switches the capture off when that fails.
void capture_problem(const Problem& problem, std::string_view text);

}  // namespace flashdma_bwd
