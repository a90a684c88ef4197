// Checks and samples.
#include "tune/measure/candidate_timer.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "arguments.hpp"
#include "bench/device_problem.hpp"
#include "selection/problem_text.hpp"
#include "tune/measure/problem_shape.hpp"
#include "tune/measure/rounds.hpp"

namespace flashdma_bwd::tune {
namespace {

constexpr double kMostReferenceOperations = 2e10;  // seconds of some cores
constexpr std::int64_t kMostSampled = std::int64_t{1} << 22;
constexpr std::int64_t kAllElements = std::numeric_limits<std::int64_t>::max();
constexpr double kWarmUpSeconds = 0.2;
constexpr double kShortestSampleMs = 1;
constexpr int kMostCallsPerSample = 32;

/// A kernel's fault leaves nothing that could be used: the parent knows which kernel it was, and starts another
/// process.
void survive(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "flashdma-tune-measure: %s: %s\n", what, cudaGetErrorString(error));
  std::_Exit(EXIT_FAILURE);
}

class DeviceBuffers {
 public:
  DeviceBuffers() {
    survive(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
    survive(cudaEventCreate(&start_), "an event");
    survive(cudaEventCreate(&stop_), "an event");
    int l2_bytes = 0;
    survive(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, 0), "the size of the L2 cache");
    // Long enough for the host to enqueue a call behind it.
    flush_bytes_ = std::max<std::size_t>(4 * static_cast<std::size_t>(l2_bytes), 1);
    survive(cudaMalloc(&flush_, flush_bytes_), "memory that displaces the L2 cache");
  }
  ~DeviceBuffers() {
    cudaFree(flush_);
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
    cudaStreamDestroy(stream_);
  }
  DeviceBuffers(const DeviceBuffers&) = delete;
  DeviceBuffers& operator=(const DeviceBuffers&) = delete;

  cudaStream_t stream() const { return stream_; }
  void displace_l2() { survive(cudaMemsetAsync(flush_, 0, flush_bytes_, stream_), "displacing the L2 cache"); }
  void begin() { survive(cudaEventRecord(start_, stream_), "an event"); }
  double end() {
    float milliseconds = 0;
    survive(cudaEventRecord(stop_, stream_), "an event");
    survive(cudaEventSynchronize(stop_), "a backward");
    survive(cudaEventElapsedTime(&milliseconds, start_, stop_), "an event's time");
    return static_cast<double>(milliseconds);
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
  void* flush_ = nullptr;
  std::size_t flush_bytes_ = 0;
};

/// The gradients that a kernel gives, `most` elements of each at most. Returns what went wrong, or an empty text.
std::string run_kernel(bench::DeviceProblem& device, const std::string& kernel, DeviceBuffers& buffers,
                       std::int64_t most, GradientSample& sample) {
  if (!device.use_kernel(kernel)) return device.message();
  if (std::string error = poison_gradients(device.arguments()); !error.empty()) return error;
  // The default stream's work is done before another stream's call begins.
  survive(cudaDeviceSynchronize(), "poisoning the gradients");
  if (const Status status = device.backward_again(buffers.stream()); !status) return status.message();
  survive(cudaStreamSynchronize(buffers.stream()), "a backward");
  return read_gradients(device.arguments(), most, sample);
}

std::unique_ptr<bench::DeviceProblem> make_device(const Problem& problem, const std::string& kernel,
                                                  std::string& error) {
  const Parsed<ProblemShape> shape = shape_of(problem);
  if (!shape) {
    error = shape.error;
    return nullptr;
  }
  bench::DeviceProblemOptions options = shape.value->options;
  options.kernel = kernel;
  auto device = std::make_unique<bench::DeviceProblem>(shape.value->problem, options);
  if (!device->ok()) {
    error = device->message();
    return nullptr;
  }
  if (const Problem made = problem_of(device->arguments()); made != problem) {
    error = "the tensors that were made for it are of another problem: " + problem_text(made);
    return nullptr;
  }
  return device;
}

std::string too_far(double error, double bar, const char* from) {
  char text[128];
  std::snprintf(text, sizeof text, "its gradients are %.2e away from %s, more than %.1e", error, from, bar);
  return text;
}

/// The first kernel of `kernels` that makes a problem's tensors, with the problem.
std::unique_ptr<bench::DeviceProblem> first_device(const Problem& problem, const std::vector<std::string>& kernels,
                                                   std::string& error) {
  for (const std::string& kernel : kernels)
    if (auto device = make_device(problem, kernel, error)) return device;
  return nullptr;
}

/// Compares all kernels with the CPU backend on one problem. Returns what keeps it from that, or an empty text.
std::string check_against_reference(const Problem& problem, bench::DeviceProblem& device, DeviceBuffers& buffers,
                                    const Announce& announce, std::vector<Candidate>& candidates) {
  GradientSample expected;
  if (std::string error = reference_gradients(device.arguments(), expected); !error.empty()) return error;
  const double bar = error_bar(device.arguments().data_type);
  for (Candidate& candidate : candidates) {
    announce(candidate.kernel);
    GradientSample got;
    candidate.failure = run_kernel(device, candidate.kernel, buffers, kAllElements, got);
    if (!candidate.failure.empty()) continue;
    candidate.error = relative_error(got, expected);
    candidate.check = Check::reference;
    if (!(candidate.error <= bar))
      candidate.failure = too_far(candidate.error, bar, "the CPU backend's") + " on " + problem_text(problem);
  }
  return {};
}

/// Compares the kernels that passed on the smaller problem with the first of them, a sample of the gradients each.
void check_against_first(bench::DeviceProblem& device, DeviceBuffers& buffers, const Announce& announce,
                         std::vector<Candidate>& candidates) {
  GradientSample expected;
  const double bar = 2 * error_bar(device.arguments().data_type);  // both are away from what is right
  for (Candidate& candidate : candidates) {
    if (!candidate.failure.empty()) continue;
    announce(candidate.kernel);
    GradientSample got;
    candidate.failure = run_kernel(device, candidate.kernel, buffers, kMostSampled, got);
    candidate.check = Check::smaller;
    if (!candidate.failure.empty()) continue;
    if (expected.tensors.empty()) {
      if (!(relative_error(got, got) <= bar)) {
        candidate.failure = "its gradients are not finite";
        continue;
      }
      expected = std::move(got);
      continue;
    }
    const double error = relative_error(got, expected);
    if (!(error <= bar)) candidate.failure = too_far(error, bar, "those of the first candidate");
  }
}

/// Calls of a sample, so that short ones are not lost in the resolution of events.
int calls_for(double ms) {
  return std::clamp(static_cast<int>(std::ceil(kShortestSampleMs / std::max(ms, 1e-3))), 1, kMostCallsPerSample);
}

/// One round of a kernel: each cold call behind a write that displaces the L2 cache, on the next copy of the inputs;
/// the warm ones back to back on one copy.
Sample sample_kernel(bench::DeviceProblem& device, const std::string& kernel, int calls, DeviceBuffers& buffers) {
  Sample sample;
  if (!device.use_kernel(kernel)) {
    sample.failure = device.message();
    return sample;
  }
  for (int call = 0; call < calls; ++call) {
    buffers.displace_l2();
    buffers.begin();
    const Status status = device.backward(buffers.stream());
    sample.cold += buffers.end() / calls;
    if (!status) sample.failure = status.message();
  }
  if (const Status status = device.backward_again(buffers.stream()); !status) sample.failure = status.message();
  buffers.begin();
  for (int call = 0; call < calls; ++call)
    if (const Status status = device.backward_again(buffers.stream()); !status) sample.failure = status.message();
  sample.warm = buffers.end() / calls;
  return sample;
}

void time_candidates(const Request& request, bench::DeviceProblem& device, DeviceBuffers& buffers,
                     const Announce& announce, std::vector<Candidate>& candidates) {
  std::vector<Candidate*> fine;
  for (Candidate& candidate : candidates)
    if (candidate.failure.empty()) fine.push_back(&candidate);
  if (fine.empty()) return;
  // The clock rises before anything counts.
  using SteadyClock = std::chrono::steady_clock;
  const auto end = SteadyClock::now() + std::chrono::duration<double>(kWarmUpSeconds);
  double ms = 1;
  announce(fine.front()->kernel);
  do {
    const Sample sample = sample_kernel(device, fine.front()->kernel, 1, buffers);
    if (!sample.failure.empty()) break;
    ms = sample.warm;
  } while (SteadyClock::now() < end);
  const int calls = calls_for(ms);
  const auto sample = [&](std::size_t i) {
    announce(fine[i]->kernel);  // who is to blame if nothing comes back
    return sample_kernel(device, fine[i]->kernel, calls, buffers);
  };
  const std::vector<RoundTimes> times = time_in_rounds(fine.size(), {request.rounds, request.stop_share}, sample);
  for (std::size_t i = 0; i < fine.size(); ++i) {
    fine[i]->cold = times[i].cold;
    fine[i]->warm = times[i].warm;
    fine[i]->rounds = times[i].rounds;
    fine[i]->stopped = times[i].stopped;
    fine[i]->failure = times[i].failure;
  }
}

}  // namespace

std::string measure_request(const Request& request, const Announce& announce, std::vector<Candidate>& results) {
  results.clear();
  for (const std::string& kernel : request.kernels) results.emplace_back().kernel = kernel;
  DeviceBuffers buffers;
  std::string error;
  const bool is_small = operations(request.problem) <= kMostReferenceOperations;
  if (!is_small) {
    const Problem smaller = smaller_problem(request.problem);
    const auto device = first_device(smaller, request.kernels, error);
    if (device == nullptr) return problem_text(smaller) + ": " + error;
    if (error = check_against_reference(smaller, *device, buffers, announce, results); !error.empty()) return error;
  }
  const auto device = first_device(request.problem, request.kernels, error);
  if (device == nullptr) return error;
  if (is_small) {
    if (error = check_against_reference(request.problem, *device, buffers, announce, results); !error.empty())
      return error;
  } else {
    check_against_first(*device, buffers, announce, results);
  }
  time_candidates(request, *device, buffers, announce, results);
  return {};
}

}  // namespace flashdma_bwd::tune
