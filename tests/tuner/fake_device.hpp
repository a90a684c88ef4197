// A device whose kernels take as long as the model says, and do what a test wants of them.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tune/device.hpp"

namespace flashdma_bwd::tune::test {

Environment test_environment();

/// Everything that the test sees or changes. Outlives the devices.
struct FakeGpu {
  Environment environment = test_environment();
  std::vector<std::string> kernels;                   ///< compiled in
  std::set<std::string> broken;                       ///< kernels that fail
  std::vector<Request> requests;                      ///< that were made
  std::function<std::string(const Request&)> before;  ///< before each; an error ends it
  std::string absent;                                 ///< why there is no GPU
};

class FakeDevice final : public Device {
 public:
  explicit FakeDevice(FakeGpu& gpu) : gpu_(gpu) {}
  std::string describe(DeviceDescription& description) override;
  std::string measure(const Request& request, std::vector<Candidate>& results) override;

 private:
  FakeGpu& gpu_;
};

/// A measurement of a dense problem with this many keys, all of whose fields tell it from another.
Measurement test_measurement(std::int64_t seqlen);

}  // namespace flashdma_bwd::tune::test
