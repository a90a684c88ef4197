// The ceilings of the GPU at hand. See ceilings.hpp.
#include "ceilings.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>

#include "measure.hpp"

namespace flashdma_bwd::bench {
namespace {

// Many times the L2 cache of any GPU, and an eighth of the memory at most.
constexpr std::size_t kMostCopiedBytes = std::size_t{1} << 30;
// Long, so that beginnings and ends do not count; a kernel of each of the head dims with the fastest rows.
constexpr const char* kDenseProblems[] = {"b=1 h=32 d=64 s=16384", "b=1 h=16 d=128 s=16384"};

void measure_copy(const TimingOptions& options, Ceilings& ceilings, std::string& message) {
  std::size_t free_bytes = 0, all_bytes = 0;
  DeviceMemory from, to;
  cudaError_t error = cudaMemGetInfo(&free_bytes, &all_bytes);
  const std::size_t bytes = std::min(kMostCopiedBytes, free_bytes / 8);
  if (error == cudaSuccess) error = from.allocate(bytes);
  if (error == cudaSuccess) error = to.allocate(bytes);
  if (error == cudaSuccess) error = cudaMemset(from.data(), 1, bytes);
  if (error != cudaSuccess) {
    message = std::string("measuring the copy bandwidth: ") + cudaGetErrorString(error);
    return;
  }
  const Timing timing = time_copy(to.data(), from.data(), bytes, options);
  if (!timing.message.empty()) {
    message = "measuring the copy bandwidth: " + timing.message;
    return;
  }
  ceilings.copy_gb_per_s = 2 * static_cast<double>(bytes) / (timing.median_ms * 1e6);
  ceilings.copy_source = "a copy of " + std::to_string(bytes >> 20) + " MiB within device memory, read and written";
}

void measure_dense(const TimingOptions& options, Ceilings& ceilings, std::string& message) {
  for (const char* text : kDenseProblems) {
    Problem problem;
    std::string error;
    parse_problem(text, problem, error);
    const Result result = measure("", problem, {{}, options, false});
    if (!result.failure.empty()) {
      message = std::string("measuring the dense ceiling, ") + text + ": " + result.failure;
      continue;
    }
    if (teraflops(result) <= ceilings.dense_tflops) continue;
    ceilings.dense_tflops = teraflops(result);
    ceilings.dense_source = std::string("this library's own backward of ") + text + ", not the tensor cores' limit";
  }
  if (ceilings.dense_tflops > 0) message.clear();  // one of them is enough
}

}  // namespace

Ceilings measure_ceilings(const TimingOptions& options, std::string& message) {
  Ceilings ceilings;
  std::string copy_message, dense_message;
  measure_copy(options, ceilings, copy_message);
  measure_dense(options, ceilings, dense_message);
  message = copy_message + (copy_message.empty() || dense_message.empty() ? "" : "; ") + dense_message;
  return ceilings;
}

}  // namespace flashdma_bwd::bench
