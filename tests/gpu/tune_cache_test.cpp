// Learning at run time: what the first use measures, chooses and leaves in the outputs, and what it must not do.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gpu/device_problem.hpp"
#include "gpu/kernels_under_test.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/temporary_folder.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

/// A cache's file in a folder of its own; at the end both are gone and nothing is tuned any more.
class Cache {
 public:
  Cache() = default;
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;
  ~Cache() { static_cast<void>(set_tuning(Tuning())); }
  std::string path() const { return folder_.path("c.jsonl"); }
  std::string text() const {
    std::ostringstream text;
    text << std::ifstream(path(), std::ios::binary).rdbuf();
    return text.str();
  }
  void use(flashdma_bwd_tune_mode mode, const std::string& hash = "") const {
    const std::string file = path();
    Tuning tuning;
    tuning.mode = mode;
    tuning.cache = file.c_str();
    tuning.hash = hash.empty() ? nullptr : hash.c_str();
    const Status status = set_tuning(tuning);
    INFO(status.message());
    REQUIRE(status.code() == FLASHDMA_BWD_OK);
  }

 private:
  TemporaryFolder folder_;
};

TuningState state() {
  TuningState now{};
  const Status status = get_tuning(now);
  INFO(status.message());
  REQUIRE(status.code() == FLASHDMA_BWD_OK);
  return now;
}

Selection selected(const Arguments& arguments) {
  Selection selection{};
  const Status status = select(arguments, selection);
  INFO(status.message());
  REQUIRE(status.code() == FLASHDMA_BWD_OK);
  return selection;
}
/// Whether the cache decided; its path is longer than the end of it that a selection keeps.
bool chosen_by(const Cache& cache, const Selection& selection) {
  const std::string file = selection.row_file;
  return !file.empty() && cache.path().ends_with(file) && file.ends_with(".jsonl");
}
std::string table_choice(Arguments arguments) {
  arguments.flags |= FLASHDMA_BWD_FLAG_TABLE_ONLY;
  return selected(arguments).kernel;
}

/// What is in the outputs against the reference.
void check_results(Problem& host, DeviceProblem& device, const Gradients& expected) {
  CHECK(device.finish() == "");
  const GradientErrors errors = gradient_errors(host, read_gradients(host), expected);
  INFO(errors.text());
  CHECK(errors.largest() <= error_bar(host.spec().data_type));
}

/// Keeps a stream busy until it is released, or for some seconds. A call that waits for the stream waits that long.
class BlockedStream {
 public:
  explicit BlockedStream(cudaStream_t stream) : stream_(stream) {
    require_cuda(cudaLaunchHostFunc(stream, wait, this), "cudaLaunchHostFunc");
  }
  BlockedStream(const BlockedStream&) = delete;
  BlockedStream& operator=(const BlockedStream&) = delete;
  /// Whether nothing has waited for the stream since.
  bool release() {
    released_ = true;
    require_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return !expired_;
  }
  ~BlockedStream() {
    released_ = true;
    cudaStreamSynchronize(stream_);
  }

 private:
  static void wait(void* data) {
    auto& self = *static_cast<BlockedStream*>(data);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (!self.released_) {
      if (std::chrono::steady_clock::now() > deadline) {
        self.expired_ = true;
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  cudaStream_t stream_;
  std::atomic<bool> released_{false};
  std::atomic<bool> expired_{false};
};

std::vector<ProblemSpec> problems() {
  ProblemSpec spec;
  spec.heads = 4;
  spec.heads_kv = 2;
  spec.seqlen_q = 300;
  spec.seqlen_k = 333;
  std::vector<ProblemSpec> all(6, spec);
  all[1].mask = {.structure = MaskStructure::alternating_tiles};
  all[1].bias = {.present = true, .shape = {.heads = PairHeads::one}};
  all[2].mask = {.structure = MaskStructure::bernoulli, .shape = {.heads = PairHeads::kv, .rows = false}};
  all[2].bias = {.present = true, .shape = {.rows = false}};
  all[3].lengths_q = {100, 0, 64};
  all[3].lengths_k = {64, 10, 200};
  all[3].head_dim = 128;
  all[3].data_type = FLASHDMA_BWD_FP16;
  all[4].mask = {.structure = MaskStructure::causal_top_w,
                 .shape = {.heads = PairHeads::kv},
                 .layout = FLASHDMA_BWD_MASK_REORDERED};
  all[4].causal = true;
  all[5].head_dim = 256;
  all[5].softcap = 20;
  return all;
}

}  // namespace

TEST_CASE("the first use measures and leaves right gradients, the second does not wait", "[tune-cache]") {
  const Cache cache;
  cache.use(FLASHDMA_BWD_TUNE_FIRST_USE);
  std::int64_t choices = 0;
  for (const ProblemSpec& spec : problems()) {
    Problem host(spec);
    INFO(host.spec().text());
    const Gradients expected = exact_gradients(host);
    DeviceProblem device(host);
    const std::vector<KernelName> serving = kernels_for(device.arguments());
    // Outputs and workspace are poisoned; the workspace is as large as the query says, with canaries behind it.
    REQUIRE(device.prepare_buffers().code() == FLASHDMA_BWD_OK);
    Status status = device.enqueue();
    INFO(status.message());
    REQUIRE(status.code() == FLASHDMA_BWD_OK);
    check_results(host, device, expected);

    CHECK(state().choices == ++choices);
    CHECK(state().unsaved == 0);
    const Selection selection = selected(device.arguments());
    CHECK(chosen_by(cache, selection));
    CHECK(selection.row_line == choices);
    CHECK(std::any_of(serving.begin(), serving.end(),
                      [&](const KernelName& name) { return name.text == selection.kernel; }));
    CHECK(explain(device.arguments()).find(":" + std::to_string(choices) + " decides: ") != std::string::npos);

    const std::string text = cache.text();
    REQUIRE(device.prepare_buffers().code() == FLASHDMA_BWD_OK);
    BlockedStream blocked(device.stream());
    status = device.enqueue();
    CHECK(blocked.release());
    INFO(status.message());
    REQUIRE(status.code() == FLASHDMA_BWD_OK);
    check_results(host, device, expected);
    CHECK(cache.text() == text);
    CHECK(state().choices == choices);
  }
}

TEST_CASE("whoever reads the cache chooses as it says", "[tune-cache]") {
  const Cache cache;
  cache.use(FLASHDMA_BWD_TUNE_FIRST_USE);
  std::vector<std::string> learned;
  for (const ProblemSpec& spec : problems()) {
    Problem host(spec);
    DeviceProblem device(host);
    std::string defect;
    REQUIRE(device.run(defect).code() == FLASHDMA_BWD_OK);
    learned.push_back(selected(device.arguments()).kernel);
  }
  const std::string hash = state().hash;
  const std::string text = cache.text();
  for (const bool pinned : {false, true}) {
    cache.use(FLASHDMA_BWD_TUNE_READ_ONLY, pinned ? hash : "");
    CHECK(state().frozen == 1);
    CHECK(state().hash == hash);
    for (std::size_t i = 0; i < learned.size(); ++i) {
      Problem host(problems()[i]);
      INFO(host.spec().text());
      const Gradients expected = exact_gradients(host);
      DeviceProblem device(host);
      CHECK(selected(device.arguments()).kernel == learned[i]);
      REQUIRE(device.prepare_buffers().code() == FLASHDMA_BWD_OK);
      REQUIRE(device.enqueue().code() == FLASHDMA_BWD_OK);
      check_results(host, device, expected);
    }
    // A problem that it does not have is not measured.
    ProblemSpec other = problems()[0];
    other.seqlen_q = 77;
    Problem host(other);
    DeviceProblem device(host);
    REQUIRE(device.prepare_buffers().code() == FLASHDMA_BWD_OK);
    BlockedStream blocked(device.stream());
    CHECK(device.enqueue().code() == FLASHDMA_BWD_OK);
    CHECK(blocked.release());
    CHECK(device.finish() == "");
    CHECK(selected(device.arguments()).kernel == table_choice(device.arguments()));
  }
  CHECK(cache.text() == text);
}

TEST_CASE("a capture does not measure", "[tune-cache]") {
  const Cache cache;
  cache.use(FLASHDMA_BWD_TUNE_FIRST_USE);
  Problem host(problems()[1]);
  const Gradients expected = exact_gradients(host);
  DeviceProblem device(host);
  REQUIRE(prepare(device.arguments()).code() == FLASHDMA_BWD_OK);
  REQUIRE(device.prepare_buffers().code() == FLASHDMA_BWD_OK);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  // In this mode every call that synchronises or allocates is an error.
  require_cuda(cudaStreamBeginCapture(device.stream(), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  const Status status = device.enqueue();
  require_cuda(cudaStreamEndCapture(device.stream(), &graph), "cudaStreamEndCapture");
  INFO(status.message());
  REQUIRE(status.code() == FLASHDMA_BWD_OK);
  CHECK(state().choices == 0);
  CHECK(cache.text().empty());
  CHECK(selected(device.arguments()).kernel == table_choice(device.arguments()));
  require_cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  require_cuda(cudaGraphLaunch(executable, device.stream()), "cudaGraphLaunch");
  check_results(host, device, expected);
  require_cuda(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
  require_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
  // Outside of a capture it does.
  std::string defect;
  REQUIRE(device.run(defect).code() == FLASHDMA_BWD_OK);
  CHECK(defect == "");
  CHECK(state().choices == 1);
}

TEST_CASE("measuring does not break another thread's capture", "[tune-cache]") {
  const Cache cache;
  cache.use(FLASHDMA_BWD_TUNE_FIRST_USE);
  Problem host(problems()[0]);
  const Gradients expected = exact_gradients(host);
  DeviceProblem device(host);
  REQUIRE(device.prepare_buffers().code() == FLASHDMA_BWD_OK);
  const DeviceStream capturing;
  cudaGraph_t graph = nullptr;
  require_cuda(cudaStreamBeginCapture(capturing.get(), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  Status status;
  std::thread([&] { status = device.enqueue(); }).join();
  const cudaError_t captured = cudaStreamEndCapture(capturing.get(), &graph);
  INFO(status.message());
  CHECK(status.code() == FLASHDMA_BWD_OK);
  CHECK(captured == cudaSuccess);
  if (graph != nullptr) require_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
  check_results(host, device, expected);
  CHECK(state().choices == 1);
}

TEST_CASE("a deterministic problem keeps the table's choice until the cache's hash is given", "[tune-cache]") {
  const Cache cache;
  cache.use(FLASHDMA_BWD_TUNE_FIRST_USE);
  ProblemSpec spec = problems()[0];
  spec.deterministic = true;
  Problem host(spec);
  const Gradients expected = exact_gradients(host);
  DeviceProblem device(host);
  const std::string by_table = table_choice(device.arguments());
  std::vector<std::vector<std::byte>> first;
  for (int run = 0; run < 3; ++run) {
    REQUIRE(device.prepare_buffers().code() == FLASHDMA_BWD_OK);
    REQUIRE(device.enqueue().code() == FLASHDMA_BWD_OK);
    check_results(host, device, expected);
    std::vector<std::vector<std::byte>> outputs;
    for (const Buffer* buffer : host.outputs()) outputs.push_back(buffer->bytes);
    if (run == 0)
      first = outputs;
    else
      CHECK(outputs == first);
    CHECK(selected(device.arguments()).kernel == by_table);
  }
  CHECK(state().choices == 1);
  REQUIRE(freeze_tuning().code() == FLASHDMA_BWD_OK);
  CHECK(selected(device.arguments()).kernel == by_table);
  const std::string hash = state().hash;
  cache.use(FLASHDMA_BWD_TUNE_READ_ONLY, hash);
  CHECK(chosen_by(cache, selected(device.arguments())));
  REQUIRE(device.prepare_buffers().code() == FLASHDMA_BWD_OK);
  REQUIRE(device.enqueue().code() == FLASHDMA_BWD_OK);
  check_results(host, device, expected);
  cache.use(FLASHDMA_BWD_TUNE_READ_ONLY, hash == "0000000000000000" ? "0000000000000001" : "0000000000000000");
  const Status refused = device.enqueue();
  CHECK(refused.code() == FLASHDMA_BWD_OVERRIDE_ERROR);
  CHECK(refused.message().find("has hash " + hash) != std::string::npos);
}

TEST_CASE("a workspace of the table's choice is enough to measure what fits it", "[tune-cache]") {
  const Cache cache;
  for (const ProblemSpec& spec : problems()) {
    Problem host(spec);
    INFO(host.spec().text());
    const Gradients expected = exact_gradients(host);
    DeviceProblem device(host);
    static_cast<void>(set_tuning(Tuning()));
    REQUIRE(device.prepare_buffers().code() == FLASHDMA_BWD_OK);
    cache.use(FLASHDMA_BWD_TUNE_FIRST_USE);
    const Status status = device.enqueue();
    INFO(status.message());
    REQUIRE(status.code() == FLASHDMA_BWD_OK);
    check_results(host, device, expected);
  }
}

TEST_CASE("threads that meet a problem at once all get right gradients", "[tune-cache]") {
  const Cache cache;
  cache.use(FLASHDMA_BWD_TUNE_FIRST_USE);
  constexpr int kThreads = 4;
  constexpr int kRuns = 5;
  std::vector<std::unique_ptr<Problem>> hosts;
  std::vector<std::unique_ptr<DeviceProblem>> devices;
  for (int i = 0; i < kThreads; ++i) {
    hosts.push_back(std::make_unique<Problem>(problems()[0]));
    devices.push_back(std::make_unique<DeviceProblem>(*hosts.back()));
    REQUIRE(devices.back()->prepare_buffers().code() == FLASHDMA_BWD_OK);
  }
  const Gradients expected = exact_gradients(*hosts.front());
  std::vector<std::string> failures(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      for (int run = 0; run < kRuns && failures[i].empty(); ++run) failures[i] = devices[i]->enqueue().message();
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < kThreads; ++i) {
    CHECK(failures[i] == "");
    check_results(*hosts[i], *devices[i], expected);
  }
  CHECK(state().choices == 1);
}
