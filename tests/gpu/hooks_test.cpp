// What is told of backwards that run: hooks, counters, times, captured problems, and that none of it disturbs the
// program, its captures or its errors.
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

#include "gpu/device_problem.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

/// Nothing is monitored and all counters are 0, before and after.
struct Monitoring {
  explicit Monitoring(std::uint32_t flags) {
    end();
    const Status status = set_monitoring(flags);
    INFO(status.message());
    REQUIRE(status.ok());
  }
  ~Monitoring() { end(); }
  static void end() {
    cudaDeviceSynchronize();  // so that calls of one test are in the counters of no other
    static_cast<void>(clear_hooks());
    static_cast<void>(set_monitoring(0));
    static_cast<void>(reset_counters());
  }
};

Counters counters_now() {
  Counters counters{};
  REQUIRE(read_counters(counters).ok());
  return counters;
}

/// What hooks were told; the strings are copies.
struct Report {
  std::string when, problem, kernel, row_file;
  CallReport values;
};
struct Journal {
  std::vector<Report> reports;
  Hooks hooks() {
    Hooks hooks;
    hooks.before = [](const CallReport* report, void* user) { write(user, "before", *report); };
    hooks.after = [](const CallReport* report, void* user) { write(user, "after", *report); };
    hooks.user = this;
    return hooks;
  }
  static void write(void* user, const char* when, const CallReport& r) {
    static_cast<Journal*>(user)->reports.push_back({when, r.problem, r.kernel, r.row_file, r});
  }
};

/// Problems whose chains of kernels differ.
std::vector<ProblemSpec> problems() {
  ProblemSpec spec;
  spec.heads = 4;
  spec.heads_kv = 2;
  spec.seqlen_q = 200;
  spec.seqlen_k = 333;
  std::vector<ProblemSpec> all(7, spec);
  all[1].mask = {.structure = MaskStructure::alternating_tiles};
  all[1].bias = {.present = true, .shape = {.heads = PairHeads::one}};
  all[2].mask = {.structure = MaskStructure::bernoulli, .shape = {.heads = PairHeads::kv, .rows = false}};
  all[2].bias = {.present = true, .shape = {.rows = false}};
  all[3].mask = {.structure = MaskStructure::causal_top_w};
  all[3].deterministic = true;
  all[3].causal = true;
  all[4].lengths_q = {100, 0, 64};
  all[4].lengths_k = {64, 10, 200};
  all[5].mask = {.structure = MaskStructure::causal_top_w,
                 .shape = {.heads = PairHeads::kv},
                 .layout = FLASHDMA_BWD_MASK_REORDERED};
  all[5].causal = true;
  all[6].lengths_q = {0, 0};  // the gradients of keys are cleared
  all[6].lengths_k = {10, 200};
  return all;
}

/// A problem that takes a GPU much longer than recording an event.
ProblemSpec long_problem() {
  ProblemSpec spec;
  spec.heads = spec.heads_kv = 16;
  spec.head_dim = 128;
  spec.seqlen_q = spec.seqlen_k = 2048;
  return spec;
}

/// The problem on the GPU, with its kernels loaded and its buffers ready.
std::unique_ptr<DeviceProblem> ready(Problem& host) {
  auto device = std::make_unique<DeviceProblem>(host);
  const Status status = prepare(device->arguments());
  INFO(status.message());
  REQUIRE(status.ok());
  REQUIRE(device->prepare_buffers().ok());
  return device;
}

struct NodeCounts {
  int kernels = 0;
  int others = 0;  ///< that clear no memory either
};

/// What a backward puts into a graph.
NodeCounts captured_nodes(DeviceProblem& device) {
  cudaGraph_t graph = nullptr;
  require_cuda(cudaStreamBeginCapture(device.stream(), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  const Status status = device.enqueue();
  const cudaError_t error = cudaStreamEndCapture(device.stream(), &graph);
  INFO(status.message());
  REQUIRE(status.ok());
  require_cuda(error, "cudaStreamEndCapture");
  std::size_t count = 0;
  require_cuda(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  require_cuda(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
  NodeCounts counts;
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    require_cuda(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
    if (type == cudaGraphNodeTypeKernel)
      ++counts.kernels;
    else if (type != cudaGraphNodeTypeMemset)
      ++counts.others;
  }
  cudaGraphDestroy(graph);
  return counts;
}

class Event {
 public:
  Event() { require_cuda(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) { require_cuda(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  double milliseconds_since(const Event& start) const {
    float milliseconds = 0;
    require_cuda(cudaEventElapsedTime(&milliseconds, start.event_, event_), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

TEST_CASE("hooks are told what select says, before and after each backward", "[hooks]") {
  const Monitoring monitoring(0);
  for (const ProblemSpec& spec : problems()) {
    Problem host(spec);
    INFO(host.spec().text());
    const std::unique_ptr<DeviceProblem> device = ready(host);
    device->arguments().tag = 0xfeedbeef12345678;
    Selection selection{};
    REQUIRE(select(device->arguments(), selection).ok());
    std::size_t workspace = 0;
    REQUIRE(workspace_size(device->arguments(), workspace).ok());

    Journal journal;
    REQUIRE(set_hooks(journal.hooks()).ok());
    REQUIRE(device->enqueue().ok());
    REQUIRE(clear_hooks().ok());
    CHECK(device->finish() == "");
    REQUIRE(journal.reports.size() == 2);
    CHECK(journal.reports[0].when == "before");
    CHECK(journal.reports[1].when == "after");
    CHECK(journal.reports[0].values.launches == 0);
    CHECK(journal.reports[1].values.launches > 0);
    for (const Report& report : journal.reports) {
      CHECK(report.kernel == selection.kernel);
      CHECK(report.row_file == selection.row_file);
      CHECK(report.values.row_line == selection.row_line);
      CHECK(report.values.tier == selection.tier);
      CHECK(report.values.tag == 0xfeedbeef12345678);
      CHECK(report.values.stream == device->stream());
      CHECK(report.values.code == FLASHDMA_BWD_OK);
      CHECK(report.values.workspace_bytes > 0);
      CHECK(report.values.workspace_bytes <= workspace);
      CHECK(report.problem.find("bf16 d=64 b=") == 0);
      CHECK((report.problem.find(" deterministic") != std::string::npos) == spec.deterministic);
    }
  }
}

TEST_CASE("hooks are told of the problem as a line of text", "[hooks]") {
  const Monitoring monitoring(0);
  Problem host(problems()[0]);
  const std::unique_ptr<DeviceProblem> device = ready(host);
  Journal journal;
  REQUIRE(set_hooks(journal.hooks()).ok());
  REQUIRE(device->enqueue().ok());
  REQUIRE(clear_hooks().ok());
  REQUIRE(device->enqueue().ok());
  CHECK(device->finish() == "");
  REQUIRE(journal.reports.size() == 2);
  CHECK(journal.reports[0].problem == "bf16 d=64 b=1 h=4 hk=2 sq=200 sk=333");
  CHECK(journal.reports[1].problem == journal.reports[0].problem);
}

TEST_CASE("the launches that hooks are told of are the kernels of a graph, and events are in none", "[hooks]") {
  const Monitoring monitoring(FLASHDMA_BWD_MONITOR_TIMING | FLASHDMA_BWD_MONITOR_NVTX);
  for (const ProblemSpec& spec : problems()) {
    Problem host(spec);
    INFO(host.spec().text());
    const std::unique_ptr<DeviceProblem> device = ready(host);
    REQUIRE(reset_counters().ok());
    Journal journal;
    REQUIRE(set_hooks(journal.hooks()).ok());
    REQUIRE(device->enqueue().ok());  // with an event in flight, too, nothing is asked within the capture
    const NodeCounts nodes = captured_nodes(*device);
    REQUIRE(clear_hooks().ok());
    CHECK(device->finish() == "");
    REQUIRE(journal.reports.size() == 4);
    CHECK(journal.reports[1].values.launches == nodes.kernels);
    CHECK(journal.reports[3].values.launches == nodes.kernels);
    CHECK(nodes.others == 0);
    const Counters counters = counters_now();
    CHECK(counters.calls == 2);
    CHECK(counters.timed_calls == 1);
    CHECK(counters.untimed_calls == 1);
  }
}

TEST_CASE("a capture survives timed calls on another stream and reading their times", "[hooks]") {
  const Monitoring monitoring(FLASHDMA_BWD_MONITOR_TIMING);
  Problem captured_host(problems()[0]);
  Problem other_host(problems()[2]);
  const std::unique_ptr<DeviceProblem> captured = ready(captured_host);
  const std::unique_ptr<DeviceProblem> other = ready(other_host);
  REQUIRE(other->enqueue().ok());
  cudaGraph_t graph = nullptr;
  require_cuda(cudaStreamBeginCapture(captured->stream(), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  bool fine = captured->enqueue().ok();
  for (int i = 0; i < 3; ++i) fine = other->enqueue().ok() && fine;
  Counters within{};
  fine = read_counters(within).ok() && fine;
  const cudaError_t error = cudaStreamEndCapture(captured->stream(), &graph);
  INFO(cudaGetErrorString(error));
  CHECK(error == cudaSuccess);
  if (graph != nullptr) cudaGraphDestroy(graph);
  CHECK(fine);
  CHECK(within.calls == 5);
  CHECK(within.untimed_calls == 1);
  CHECK(within.timed_calls + within.unfinished_calls == 4);
  CHECK(other->finish() == "");
  CHECK(counters_now().timed_calls == 4);
}

TEST_CASE("times are those of events around the calls, and reading them waits for nothing", "[hooks]") {
  const Monitoring monitoring(FLASHDMA_BWD_MONITOR_TIMING);
  constexpr int kCalls = 20;
  Problem host(long_problem());
  const std::unique_ptr<DeviceProblem> device = ready(host);
  std::vector<Event> starts(kCalls);
  std::vector<Event> stops(kCalls);
  REQUIRE(device->enqueue().ok());  // the clock and the caches warm up
  require_cuda(cudaStreamSynchronize(device->stream()), "the first call");
  REQUIRE(reset_counters().ok());
  for (std::size_t i = 0; i < kCalls; ++i) {
    starts[i].record(device->stream());
    REQUIRE(device->enqueue().ok());
    stops[i].record(device->stream());
  }
  const Counters running = counters_now();
  CHECK(running.calls == kCalls);
  CHECK(running.timed_calls + running.unfinished_calls == kCalls);
  CHECK(device->finish() == "");
  const Counters counters = counters_now();
  CHECK(counters.timed_calls == kCalls);
  CHECK(counters.unfinished_calls == 0);
  CHECK(counters.untimed_calls == 0);
  double outer = 0;
  for (std::size_t i = 0; i < kCalls; ++i) outer += stops[i].milliseconds_since(starts[i]);
  INFO("inner " << counters.milliseconds << " ms, outer " << outer << " ms");
  CHECK(counters.milliseconds > 0);
  CHECK(counters.milliseconds <= outer * 1.01);
  CHECK(counters.milliseconds >= outer * 0.7);
}

TEST_CASE("calls and times are counted by configuration until they are reset", "[hooks]") {
  const Monitoring monitoring(FLASHDMA_BWD_MONITOR_TIMING);
  ProblemSpec other = problems()[0];
  other.head_dim = 128;
  Problem first_host(problems()[0]);
  Problem second_host(other);
  const std::unique_ptr<DeviceProblem> first = ready(first_host);
  const std::unique_ptr<DeviceProblem> second = ready(second_host);
  for (int i = 0; i < 3; ++i) REQUIRE(first->enqueue().ok());
  for (int i = 0; i < 2; ++i) REQUIRE(second->enqueue().ok());
  CHECK(first->finish() == "");
  CHECK(second->finish() == "");
  const Counters counters = counters_now();
  CHECK(counters.calls == 5);
  CHECK(counters.timed_calls == 5);
  Selection selection{};
  REQUIRE(select(first->arguments(), selection).ok());
  CHECK(counters.tier_calls[selection.tier] >= 3);
  const std::vector<KernelCounters> kernels = kernel_counters();
  REQUIRE(kernels.size() == 2);
  double milliseconds = 0;
  for (const KernelCounters& kernel : kernels) {
    CHECK(kernel.calls == (kernel.kernel == selection.kernel ? 3 : 2));
    CHECK(kernel.timed_calls == kernel.calls);
    CHECK(kernel.milliseconds > 0);
    milliseconds += kernel.milliseconds;
  }
  CHECK(std::abs(milliseconds - counters.milliseconds) < 1e-6);
  REQUIRE(reset_counters().ok());
  CHECK(counters_now().calls == 0);
  CHECK(kernel_counters().empty());
}

TEST_CASE("a timed call leaves the program's errors as one that is not timed does", "[hooks]") {
  Problem host(long_problem());
  const std::unique_ptr<DeviceProblem> device = ready(host);
  cudaError_t own = cudaSuccess;
  // What is left of an error that the program has yet to read; launching may replace it, whoever launches.
  const auto left_by = [&](const auto& call) {
    cudaGetLastError();
    own = cudaSetDevice(-1);
    REQUIRE(own != cudaSuccess);
    REQUIRE(cudaPeekAtLastError() == own);
    call();
    return cudaGetLastError();
  };
  const cudaError_t left_untimed = left_by([&] { REQUIRE(device->enqueue().ok()); });
  const Monitoring monitoring(FLASHDMA_BWD_MONITOR_TIMING);
  cudaGetLastError();
  for (int i = 0; i < 4; ++i) REQUIRE(device->enqueue().ok());  // which ask about calls that are not finished
  static_cast<void>(counters_now());
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(left_by([&] { REQUIRE(device->enqueue().ok()); }) == left_untimed);
  CHECK(left_by([] { static_cast<void>(counters_now()); }) == own);
  CHECK(device->finish() == "");
}

TEST_CASE("monitoring is switched while threads launch", "[hooks]") {
  const Monitoring monitoring(FLASHDMA_BWD_MONITOR_TIMING);
  constexpr std::size_t kThreads = 4;
  constexpr int kRuns = 50;
  std::vector<std::unique_ptr<Problem>> hosts;
  std::vector<std::unique_ptr<DeviceProblem>> devices;
  for (std::size_t i = 0; i < kThreads; ++i) {
    hosts.push_back(std::make_unique<Problem>(problems()[i]));
    devices.push_back(ready(*hosts.back()));
  }
  std::vector<std::string> failures(kThreads);
  std::atomic<std::size_t> done{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      for (int run = 0; run < kRuns && failures[i].empty(); ++run) failures[i] = devices[i]->enqueue().message();
      ++done;
    });
  int unpaired = 0;
  bool fine = true;
  while (done < kThreads) {
    struct {
      std::atomic<int> before{0};
      std::atomic<int> after{0};
    } told;
    Hooks hooks;
    hooks.user = &told;
    hooks.before = [](const CallReport*, void* user) { ++static_cast<decltype(told)*>(user)->before; };
    hooks.after = [](const CallReport*, void* user) { ++static_cast<decltype(told)*>(user)->after; };
    fine = set_hooks(hooks).ok() && set_monitoring(FLASHDMA_BWD_MONITOR_NVTX).ok() && fine;
    fine = reset_counters().ok() && set_monitoring(FLASHDMA_BWD_MONITOR_TIMING).ok() && clear_hooks().ok() && fine;
    unpaired += told.before != told.after ? 1 : 0;
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(fine);
  CHECK(unpaired == 0);
  for (std::size_t i = 0; i < kThreads; ++i) {
    INFO(hosts[i]->spec().text());
    CHECK(failures[i] == "");
    const Gradients expected = exact_gradients(*hosts[i]);
    CHECK(devices[i]->finish() == "");
    const GradientErrors errors = gradient_errors(*hosts[i], read_gradients(*hosts[i]), expected);
    INFO(errors.text());
    CHECK(errors.largest() <= error_bar(hosts[i]->spec().data_type));
  }
}

// Only where it is asked for: the environment of its process names the file.
TEST_CASE("backwards are captured once a problem, queries are not", "[.capture]") {
  const char* path = std::getenv("FLASHDMA_BWD_CAPTURE");
  REQUIRE(path != nullptr);
  std::remove(path);
  Problem first_host(problems()[0]);
  Problem second_host(problems()[3]);
  Problem empty_host(problems()[6]);
  Problem asked_host(long_problem());
  const std::unique_ptr<DeviceProblem> first = ready(first_host);
  const std::unique_ptr<DeviceProblem> second = ready(second_host);
  const std::unique_ptr<DeviceProblem> empty = ready(empty_host);
  const std::unique_ptr<DeviceProblem> asked = ready(asked_host);  // its size and its kernel are asked for
  CHECK_FALSE(std::ifstream(path).good());
  for (int i = 0; i < 2; ++i)
    for (DeviceProblem* device : {first.get(), second.get(), empty.get()}) REQUIRE(device->enqueue().ok());
  for (DeviceProblem* device : {first.get(), second.get(), empty.get()}) CHECK(device->finish() == "");
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  CHECK(text.str() ==
        "flashdma_bwd problems 1\n"
        "bf16 d=64 b=1 h=4 hk=2 sq=200 sk=333\n"
        "bf16 d=64 b=1 h=4 hk=2 sq=200 sk=333 causal deterministic masked\n");
}
