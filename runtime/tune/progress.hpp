// What a user sees of the loop: on a terminal one line with the time that is left, elsewhere a line for each problem.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <iosfwd>
#include <string>

namespace flashdma_bwd::tune {

/// With this many digits behind the point.
std::string decimal(double value, int digits);

/// "40 s", "12 min", "3 h 5 min".
std::string duration_text(double seconds);

class Progress {
 public:
  using Clock = std::function<double()>;  ///< seconds

  Progress(std::ostream& out, bool terminal, Clock clock);
  /// `index` counts from 0.
  void begin(std::size_t index, std::size_t count, const std::string& what);
  void end(std::size_t index, std::size_t count, const std::string& what);

 private:
  std::ostream& out_;
  bool terminal_;
  Clock clock_;
  double started_ = -1;
};

}  // namespace flashdma_bwd::tune
