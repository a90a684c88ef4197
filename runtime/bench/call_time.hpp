// The time of a call on the CPU.
#pragma once

#include <algorithm>
#include <chrono>
#include <limits>

namespace flashdma_bwd::bench {

// Nanoseconds of one call, the fastest of several runs; negative if `call` ever returns false.
template <class Call>
double nanoseconds(const Call& call) {
  using Clock = std::chrono::steady_clock;
  constexpr int kCalls = 20000;
  constexpr int kRepeats = 9;
  double fastest = std::numeric_limits<double>::max();
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto start = Clock::now();
    for (int i = 0; i < kCalls; ++i)
      if (!call()) return -1;
    const std::chrono::duration<double, std::nano> elapsed = Clock::now() - start;
    fastest = std::min(fastest, elapsed.count() / kCalls);
  }
  return fastest;
}

}  // namespace flashdma_bwd::bench
