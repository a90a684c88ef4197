// A timer whose kernels take the time that a test says, by a clock of its own.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tune_cache/race.hpp"

namespace flashdma_bwd::testing {

class FakeTimer : public ConfigurationTimer {
 public:
  Check prepare(const KernelEntry& kernel) override {
    clock_ms += prepare_ms;
    prepared.push_back(std::string(kernel.name));
    return {};
  }
  Check time(const KernelEntry& kernel, double& ms) override {
    const std::string name(kernel.name);
    const int run = runs[name]++;
    order.push_back(name);
    if (before_run) before_run();
    if (failing.count(name) != 0) return Failure{FLASHDMA_BWD_CUDA_ERROR, failing.at(name)};
    ms = ms_of ? ms_of(name, run) : default_ms;
    if (fixed_ms.count(name) != 0) ms = fixed_ms.at(name);
    clock_ms += ms;
    return {};
  }
  double now_ms() override { return clock_ms; }

  /// How often anything ran.
  int all_runs() const { return static_cast<int>(order.size()); }

  double default_ms = 10;
  std::map<std::string, double> fixed_ms;
  std::map<std::string, std::string> failing;
  std::function<double(const std::string&, int run)> ms_of;
  std::function<void()> before_run;
  double prepare_ms = 0;
  double clock_ms = 1000;
  std::map<std::string, int> runs;
  std::vector<std::string> order, prepared;
};

}  // namespace flashdma_bwd::testing
