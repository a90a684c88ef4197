// What the orchestration asks of a GPU: who it is, and how long kernels take on a problem. Tests put another in its
// place.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "measurement.hpp"

namespace flashdma_bwd::tune {

struct DeviceDescription {
  Environment environment;           ///< without the commit, which the command line names
  std::vector<std::string> kernels;  ///< compiled in
};

struct Request {
  Problem problem;
  std::vector<std::string> kernels;  ///< the table's choice first
  int rounds = 0;                    ///< at most
  double stop_share = 0;  ///< a kernel whose fastest round is slower than the best median by this share cannot win
};

class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  /// Returns what is in the way, or an empty text.
  virtual std::string describe(DeviceDescription& description) = 0;
  /// One result for each kernel of the request, in its order; where something failed, why. Returns why nothing at all
  /// could be measured, or an empty text.
  virtual std::string measure(const Request& request, std::vector<Candidate>& results) = 0;
};

}  // namespace flashdma_bwd::tune
