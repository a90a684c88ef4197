// Times calls with CUDA events. See timing.hpp.
#include "timing.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <vector>

namespace flashdma_bwd::bench {
namespace {

constexpr int kMostCallsPerSample = 64;

using Call = std::function<Status(cudaStream_t)>;

// A pair of events around some calls.
class Stopwatch {
 public:
  Stopwatch() {
    cudaEventCreate(&start_);
    cudaEventCreate(&stop_);
  }
  ~Stopwatch() {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  // Milliseconds of one of `calls` calls, or a negative number with `message`.
  double run(const Call& enqueue, int calls, cudaStream_t stream, std::string& message) {
    cudaEventRecord(start_, stream);
    for (int call = 0; call < calls; ++call)
      if (const Status status = enqueue(stream); !status) {
        message = status.message();
        return -1;
      }
    cudaEventRecord(stop_, stream);
    float milliseconds = -1;
    cudaError_t error = cudaEventSynchronize(stop_);
    if (error == cudaSuccess) error = cudaEventElapsedTime(&milliseconds, start_, stop_);
    if (error != cudaSuccess) message = cudaGetErrorString(error);
    return error == cudaSuccess ? static_cast<double>(milliseconds) / calls : -1;
  }

 private:
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Timing time_calls(const Call& enqueue, const TimingOptions& options) {
  using Clock = std::chrono::steady_clock;
  Timing timing;
  cudaStream_t stream = nullptr;
  if (const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking); error != cudaSuccess) {
    timing.message = cudaGetErrorString(error);
    return timing;
  }
  Stopwatch stopwatch;
  double once = stopwatch.run(enqueue, 1, stream, timing.message);

  // Warm up, or heat up, in batches that the host need not wait for often.
  const std::chrono::duration<double> duration(options.sustain_seconds);
  const auto end = Clock::now() + duration;
  while (once >= 0 && Clock::now() < end)
    once = stopwatch.run(enqueue, std::clamp(static_cast<int>(20.0 / once), 1, 200), stream, timing.message);

  if (once >= 0)
    timing.calls_per_sample =
        std::clamp(static_cast<int>(std::ceil(options.shortest_sample_ms / once)), 1, kMostCallsPerSample);
  std::vector<double> samples;
  while (once >= 0 && static_cast<int>(samples.size()) < options.samples) {
    once = stopwatch.run(enqueue, timing.calls_per_sample, stream, timing.message);
    samples.push_back(once);
  }
  if (once >= 0) {
    timing.median_ms = median(samples);
    timing.fastest_ms = *std::min_element(samples.begin(), samples.end());
  }
  cudaStreamDestroy(stream);
  return timing;
}

}  // namespace

Timing time_backward(DeviceProblem& problem, const TimingOptions& options) {
  return time_calls([&problem](cudaStream_t stream) { return problem.backward(stream); }, options);
}

Timing time_plan(DeviceProblem& problem, const TimingOptions& options) {
  return time_calls([&problem](cudaStream_t stream) { return problem.build_plan(stream); }, options);
}

Timing time_schedule(DeviceProblem& problem, const TimingOptions& options) {
  return time_calls([&problem](cudaStream_t stream) { return problem.build_schedule(stream); }, options);
}

Timing time_copy(void* to, const void* from, std::size_t bytes, const TimingOptions& options) {
  const Call copy = [=](cudaStream_t stream) {
    const cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
    return error == cudaSuccess ? Status() : Status(FLASHDMA_BWD_CUDA_ERROR, cudaGetErrorString(error));
  };
  return time_calls(copy, options);
}

}  // namespace flashdma_bwd::bench
