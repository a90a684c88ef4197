// flashdma-demo: a backward from end to end. On a GPU its gradients are compared with the CPU backend's, the kernel is
// named and explained and timed; without one the CPU backend's gradients are compared with finite differences of the
// forward, the CPU backend is timed, and what other GPUs would run is explained.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "demo_problem.hpp"
#include "device_problem.hpp"
#include "timing.hpp"

namespace {

using namespace flashdma_bwd;
using bench::DemoProblem;

constexpr std::int64_t kSeqlen = 512;
constexpr double kLargestError = 4e-3;  // of a bf16 gradient, against double precision
constexpr double kLargestDerivativeError =
    2e-2;  // a sum of bf16 gradients with random signs, against finite differences

struct NamedDevice {
  const char* name;
  Device device;
};
// Compute capability, multiprocessors, bytes of shared memory that a block may have.
constexpr NamedDevice kDevices[] = {{"A100", {80, 108, 166912}},
                                    {"RTX 3090", {86, 82, 101376}},
                                    {"RTX 4090", {89, 128, 101376}},
                                    {"H100", {90, 132, 232448}}};

int failed(const char* what, const std::string& why) {
  std::fprintf(stderr, "flashdma-demo: %s: %s\n", what, why.c_str());
  return 1;
}

// Copies a host vector to new device memory.
template <class Element>
void* upload(std::vector<bench::DeviceMemory>& memory, const std::vector<Element>& values) {
  const std::size_t bytes = values.size() * sizeof(Element);
  if (memory.emplace_back().allocate(bytes) != cudaSuccess) return nullptr;
  cudaMemcpy(memory.back().data(), values.data(), bytes, cudaMemcpyHostToDevice);
  return memory.back().data();
}

// What an output or the workspace holds before the call: NaN, so that an element that nobody writes is seen.
std::vector<std::uint16_t> poison(std::size_t count) {
  return std::vector<std::uint16_t>(count, 0xffff);
}

int compare_on_gpu(DemoProblem& problem) {
  std::vector<bench::DeviceMemory> memory;
  Arguments arguments = problem.shapes();
  arguments.q.data = upload(memory, problem.q);
  arguments.k.data = upload(memory, problem.k);
  arguments.v.data = upload(memory, problem.v);
  arguments.out.data = upload(memory, problem.out);
  arguments.d_out.data = upload(memory, problem.d_out);
  arguments.lse = static_cast<const float*>(upload(memory, problem.lse));
  arguments.mask.data = upload(memory, problem.mask);
  arguments.bias.data = upload(memory, problem.bias);
  arguments.d_q.data = upload(memory, poison(problem.d_q.size()));
  arguments.d_k.data = upload(memory, poison(problem.d_k.size()));
  arguments.d_v.data = upload(memory, poison(problem.d_v.size()));
  arguments.d_bias.data = upload(memory, poison(problem.d_bias.size()));

  std::size_t bytes = 0;
  if (const Status status = workspace_size(arguments, bytes); !status)
    return failed("workspace_size", status.message());
  void* workspace = upload(memory, std::vector<unsigned char>(bytes, 0xff));
  if (const Status status = backward(arguments, workspace, bytes, nullptr); !status)
    return failed("backward", status.message());
  if (const cudaError_t error = cudaDeviceSynchronize(); error != cudaSuccess)
    return failed("backward", cudaGetErrorString(error));

  std::printf("gradients against the CPU backend in double precision, relative error (at most %g):\n", kLargestError);
  bool fine = true;
  const std::pair<const char*, std::pair<const void*, const std::vector<std::uint16_t>*>> gradients[] = {
      {"dQ", {arguments.d_q.data, &problem.d_q}},
      {"dK", {arguments.d_k.data, &problem.d_k}},
      {"dV", {arguments.d_v.data, &problem.d_v}},
      {"dBias", {arguments.d_bias.data, &problem.d_bias}}};
  for (const auto& [name, pair] : gradients) {
    std::vector<std::uint16_t> result(pair.second->size());
    cudaMemcpy(result.data(), pair.first, 2 * result.size(), cudaMemcpyDeviceToHost);
    const double error = bench::relative_error(result, *pair.second);
    std::printf("  %-5s %.2e\n", name, error);
    fine = fine && error <= kLargestError;
  }
  if (!fine) return failed("comparison", "a gradient differs from the CPU backend's");

  Selection selection{};
  if (const Status status = select(arguments, selection); !status) return failed("select", status.message());
  std::printf("\nkernel: %s\nwhy:\n%s\n", selection.kernel, explain(arguments).c_str());
  return 0;
}

// Problem sizes at which a GPU is busy.
int time_on_gpu() {
  std::printf("how fast:\n");
  for (const bench::MaskShape mask : {bench::MaskShape::none, bench::MaskShape::top_w}) {
    bench::Problem shape;
    shape.heads = 16;
    shape.heads_kv = 8;
    shape.head_dim = DemoProblem::kHeadDim;
    shape.seqlen_q = shape.seqlen_k = 4096;
    shape.causal = true;
    shape.bias = bench::BiasShape::key;
    shape.mask = mask;
    shape.top_w = mask == bench::MaskShape::top_w ? 512 : 0;
    bench::DeviceProblem device_problem(shape, {});
    if (!device_problem.ok()) return failed("timing", device_problem.message());
    const bench::Timing timing = bench::time_backward(device_problem, {});
    if (!timing.message.empty()) return failed("timing", timing.message);
    std::printf("  %-60s %8.3f ms, %4.1f %% of the pairs are active\n", bench::problem_text(shape).c_str(),
                timing.median_ms, 100 * device_problem.active_fraction());
  }
  return 0;
}

int check_on_cpu(const DemoProblem& problem) {
  constexpr double kStep = 1e-4;
  const bench::DemoDirection direction = bench::random_direction(problem);
  const double expected = (problem.loss(direction, kStep) - problem.loss(direction, -kStep)) / (2 * kStep);
  const double found = bench::directional_derivative(problem, direction);
  const double error = std::abs(found - expected) / std::abs(expected);
  std::printf(
      "derivative of sum(dO * O) along a random direction of Q, K, V and bias:\n"
      "  from the gradients %.5f, from finite differences of the forward %.5f, relative error %.1e (at most %g)\n",
      found, expected, error, kLargestDerivativeError);
  return error <= kLargestDerivativeError ? 0 : failed("comparison", "the gradients are not the forward's derivatives");
}

// The problem that the gradients are of: the CPU backend is for checking others, not for a GPU's problem sizes.
int time_on_cpu(DemoProblem& problem) {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t kCalls = 5;  // after the one that the gradients are of
  const auto threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<double> milliseconds;
  while (milliseconds.size() < kCalls) {
    const auto start = Clock::now();
    if (const Status status = backward_reference(problem.host_arguments(), threads); !status)
      return failed("the CPU backend", status.message());
    milliseconds.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  std::printf("how fast: the problem above takes the CPU backend %.1f ms with up to %d threads, median of %zu calls\n",
              milliseconds[kCalls / 2], threads, kCalls);
  return 0;
}

void explain_other_gpus(DemoProblem& problem) {
  std::printf("\nwhat other GPUs would run, and why:\n");
  for (const NamedDevice& named : kDevices) {
    std::printf("\n%s (compute capability %d.%d, %d multiprocessors)\n%s", named.name,
                named.device.compute_capability / 10, named.device.compute_capability % 10, named.device.sm_count,
                explain(problem.host_arguments(), &named.device).c_str());
  }
}

}  // namespace

int main() {
  int devices = 0;
  const bool gpu = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0 && !kernels().empty();
  std::printf("flashdma_bwd %s, tables %s, %zu kernels compiled in\n", flashdma_bwd_version(),
              flashdma_bwd_table_hash(), kernels().size());
  std::printf(
      "problem: bf16, 1 x %d tokens, %d heads, %d KV heads, head dim %d, causal, key-vector bias, top-%d mask\n\n",
      static_cast<int>(kSeqlen), static_cast<int>(DemoProblem::kHeads), static_cast<int>(DemoProblem::kHeadsKv),
      static_cast<int>(DemoProblem::kHeadDim), static_cast<int>(kSeqlen / 4));
  DemoProblem problem(kSeqlen);
  if (const Status status = backward_reference(problem.host_arguments()); !status)
    return failed("the CPU backend", status.message());
  if (!gpu) {
    std::printf("no GPU that this build has kernels for: the CPU backend computes, in double precision\n");
    if (const int result = check_on_cpu(problem); result != 0) return result;
    if (const int result = time_on_cpu(problem); result != 0) return result;
    explain_other_gpus(problem);
    return 0;
  }
  if (const int result = compare_on_gpu(problem); result != 0) return result;
  return time_on_gpu();
}
