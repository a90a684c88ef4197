// The threads of a CTA whose kernel runs on the host: a stack for each, all in one thread of the operating system, so
// that to wait for one another costs them a change of stacks.
//
// Who goes on is drawn from a fixed seed among those that can: the orders differ from CTA to CTA, and are the same in
// every run.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <vector>

inline uint3 threadIdx;  ///< of the lane that runs
inline uint3 blockIdx;

namespace host_cuda {

/// Where lanes wait until `expected` of them have come, again and again.
class Barrier {
 public:
  explicit Barrier(unsigned expected) : expected_(expected) {}
  void arrive_and_wait();

 private:
  unsigned expected_;
  std::vector<unsigned> waiting_;
};

/// Calls `body` with each threadIdx.x below `count`. False where lanes are left that wait for ever: for one that has
/// ended or is at another barrier.
[[nodiscard]] bool run_lanes(unsigned count, const std::function<void()>& body);

}  // namespace host_cuda
