// Several threads, each with its stream and its problem, call the library at once.
#include <memory>
#include <thread>

#include "gpu/device_problem.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

constexpr int kThreads = 10;
constexpr int kRuns = 25;

ProblemSpec problem_of(int thread) {
  ProblemSpec spec;
  spec.seed = static_cast<std::uint64_t>(thread + 1);
  spec.head_dim = thread % 2 == 0 ? 64 : 128;
  spec.data_type = thread % 3 == 0 ? FLASHDMA_BWD_FP16 : FLASHDMA_BWD_BF16;
  spec.seqlen_q = 100 + 50 * thread;
  spec.seqlen_k = 400 - 20 * thread;
  spec.deterministic = thread == 5;
  if (thread % 4 == 1) spec.mask = {.structure = MaskStructure::bernoulli};
  if (thread % 4 == 2) spec.bias = {.present = true, .shape = {.heads = PairHeads::one}};
  if (thread % 4 == 3) spec.mask = {.structure = MaskStructure::bernoulli, .shape = {.rows = false}};
  if (thread >= 8) {  // plans that want shared memory of different sizes for the same kernel
    spec.mask = {
        .structure = MaskStructure::causal_top_w, .shape = {}, .width = 40, .layout = FLASHDMA_BWD_MASK_REORDERED};
    spec.causal = true;
    spec.seqlen_q = 300;
    spec.seqlen_k = thread == 8 ? 1000 : 300;
  }
  return spec;
}

/// Runs a problem many times and says what went wrong; Catch2's assertions are for one thread only.
std::string run_many(Problem& host, DeviceProblem& device, const Gradients& expected) {
  try {
    for (int run = 0; run < kRuns; ++run) {
      std::string defect;
      const Status status = device.run(defect);
      if (!status) return status.message();
      if (!defect.empty()) return defect;
      const GradientErrors errors = gradient_errors(host, read_gradients(host), expected);
      if (!(errors.largest() <= error_bar(host.spec().data_type))) return errors.text();
      // A call that fails leaves its message to its own thread only.
      Arguments wrong = device.arguments();
      wrong.head_dim = 7 + 8 * run;
      std::size_t bytes = 0;
      if (workspace_size(wrong, bytes).message().find(std::to_string(wrong.head_dim)) == std::string::npos)
        return "the message of a refused call does not name its head_dim";
    }
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("threads and streams at once", "[threads]") {
  std::vector<std::unique_ptr<Problem>> hosts;
  std::vector<std::unique_ptr<DeviceProblem>> devices;
  std::vector<Gradients> expected;
  for (int i = 0; i < kThreads; ++i) {
    hosts.push_back(std::make_unique<Problem>(problem_of(i)));
    expected.push_back(exact_gradients(*hosts.back()));
    devices.push_back(std::make_unique<DeviceProblem>(*hosts.back()));
  }
  std::vector<std::string> failures(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] { failures[i] = run_many(*hosts[i], *devices[i], expected[i]); });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < kThreads; ++i) {
    INFO(hosts[i]->spec().text());
    CHECK(failures[i] == "");
  }
}

TEST_CASE("one thread, several streams in flight", "[threads]") {
  std::vector<std::unique_ptr<Problem>> hosts;
  std::vector<std::unique_ptr<DeviceProblem>> devices;
  std::vector<Gradients> expected;
  for (int i = 0; i < kThreads; ++i) {
    hosts.push_back(std::make_unique<Problem>(problem_of(i)));
    expected.push_back(exact_gradients(*hosts.back()));
    devices.push_back(std::make_unique<DeviceProblem>(*hosts.back()));
    const Status status = devices.back()->prepare_buffers();
    INFO(status.message());
    REQUIRE(status.code() == FLASHDMA_BWD_OK);
  }
  for (auto& device : devices) REQUIRE(device->enqueue().code() == FLASHDMA_BWD_OK);
  for (std::size_t i = 0; i < kThreads; ++i) {
    INFO(hosts[i]->spec().text());
    CHECK(devices[i]->finish() == "");
    const GradientErrors errors = gradient_errors(*hosts[i], read_gradients(*hosts[i]), expected[i]);
    INFO(errors.text());
    CHECK(errors.largest() <= error_bar(hosts[i]->spec().data_type));
  }
}
