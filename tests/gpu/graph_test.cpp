// The backward in a CUDA graph.
#include "gpu/device_problem.hpp"
#include "gpu/kernels_under_test.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

class Graph {
 public:
  /// Captures what enqueue() puts on the stream, in the mode in which every call that synchronises or allocates is an
  /// error.
  template <class Enqueue>
  Graph(cudaStream_t stream, const Enqueue& enqueue) {
    require_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    const Status status = enqueue();
    const cudaError_t error = cudaStreamEndCapture(stream, &graph_);
    if (!status) throw std::runtime_error("the call failed in capture: " + status.message());
    require_cuda(error, "cudaStreamEndCapture");
    require_cuda(cudaGraphInstantiate(&executable_, graph_, 0), "cudaGraphInstantiate");
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  void launch(cudaStream_t stream) { require_cuda(cudaGraphLaunch(executable_, stream), "cudaGraphLaunch"); }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

std::vector<ProblemSpec> problems() {
  ProblemSpec spec;
  spec.heads = 4;
  spec.heads_kv = 2;
  spec.seqlen_q = 200;
  spec.seqlen_k = 333;
  std::vector<ProblemSpec> all(6, spec);
  all[1].mask = {.structure = MaskStructure::alternating_tiles};
  all[1].bias = {.present = true, .shape = {.heads = PairHeads::one}};
  all[2].mask = {.structure = MaskStructure::bernoulli, .shape = {.heads = PairHeads::kv, .rows = false}};
  all[2].bias = {.present = true, .shape = {.rows = false}};
  all[3].mask = {.structure = MaskStructure::causal_top_w};
  all[3].deterministic = true;
  all[3].causal = true;
  all[4].lengths_q = {100, 0, 64};
  all[4].lengths_k = {64, 10, 200};
  all[4].head_dim = 128;
  all[4].data_type = FLASHDMA_BWD_FP16;
  all[5].mask = {.structure = MaskStructure::causal_top_w,
                 .shape = {.heads = PairHeads::kv},
                 .layout = FLASHDMA_BWD_MASK_REORDERED};
  all[5].bias = {.present = true, .shape = {.heads = PairHeads::kv, .rows = false}};
  all[5].causal = true;
  return all;
}

}  // namespace

TEST_CASE("a captured backward replays", "[graph]") {
  for (const ProblemSpec& spec : problems()) {
    Problem host(spec);
    INFO(host.spec().text());
    const Gradients expected = exact_gradients(host);
    DeviceProblem device(host);
    Status status = prepare(device.arguments());
    INFO(status.message());
    REQUIRE(status.code() == FLASHDMA_BWD_OK);
    REQUIRE(device.prepare_buffers().code() == FLASHDMA_BWD_OK);
    Graph graph(device.stream(), [&] { return device.enqueue(); });
    for (int replay = 0; replay < 3; ++replay) {
      REQUIRE(device.prepare_buffers().code() == FLASHDMA_BWD_OK);  // poisons the same memory again
      graph.launch(device.stream());
      CHECK(device.finish() == "");
      const GradientErrors errors = gradient_errors(host, read_gradients(host), expected);
      INFO(errors.text());
      CHECK(errors.largest() <= error_bar(spec.data_type));
    }
  }
}

TEST_CASE("a plan and its schedule are built in the graph that uses them", "[graph]") {
  for (flashdma_bwd_mask_layout layout :
       {FLASHDMA_BWD_MASK_NATURAL, FLASHDMA_BWD_MASK_COMPACTED, FLASHDMA_BWD_MASK_REORDERED}) {
    ProblemSpec spec = problems()[1];
    spec.mask.shape.rows = layout != FLASHDMA_BWD_MASK_COMPACTED;
    spec.mask.layout = layout;
    Problem host(spec);
    INFO(host.spec().text());
    const Gradients expected = exact_gradients(host);
    DeviceProblem device(host);
    REQUIRE(prepare(device.arguments()).code() == FLASHDMA_BWD_OK);
    Arguments arguments = device.arguments();
    std::size_t plan_bytes = 0;
    REQUIRE(plan_size(arguments, plan_bytes).code() == FLASHDMA_BWD_OK);
    DeviceMemory plan_memory(plan_bytes);
    MaskPlan plan{};
    // Once outside of the graph, so that there is a plan whose schedule's size can be asked for.
    REQUIRE(plan_build(arguments, plan_memory.data(), plan_bytes, device.stream(), plan).code() == FLASHDMA_BWD_OK);
    device.arguments().plan = &plan;
    device.arguments().mask = {};
    std::size_t schedule_bytes = 0;
    REQUIRE(schedule_size(device.arguments(), schedule_bytes).code() == FLASHDMA_BWD_OK);
    DeviceMemory schedule_memory(schedule_bytes);
    Schedule schedule{};
    REQUIRE(device.prepare_buffers().code() == FLASHDMA_BWD_OK);
    Graph graph(device.stream(), [&] {
      if (Status status = plan_build(arguments, plan_memory.data(), plan_bytes, device.stream(), plan); !status)
        return status;
      if (Status status =
              schedule_build(device.arguments(), schedule_memory.data(), schedule_bytes, device.stream(), schedule);
          !status)
        return status;
      device.arguments().schedule = &schedule;
      Status status = device.enqueue();
      device.arguments().schedule = nullptr;  // whose canaries are none of this problem's
      return status;
    });
    for (int replay = 0; replay < 2; ++replay) {
      require_cuda(cudaMemsetAsync(plan_memory.data(), 0xff, plan_bytes, device.stream()), "poisoning of the plan");
      require_cuda(cudaMemsetAsync(schedule_memory.data(), 0xff, schedule_bytes, device.stream()),
                   "poisoning of the schedule");
      REQUIRE(device.prepare_buffers().code() == FLASHDMA_BWD_OK);
      graph.launch(device.stream());
      CHECK(device.finish() == "");
      const GradientErrors errors = gradient_errors(host, read_gradients(host), expected);
      INFO(errors.text());
      CHECK(errors.largest() <= error_bar(spec.data_type));
    }
  }
}

TEST_CASE("a backward that cannot be launched says so, and leaves the program no CUDA error", "[graph]") {
  Problem host(problems()[0]);
  DeviceProblem device(host);
  REQUIRE(device.prepare_buffers().ok());
  REQUIRE(device.enqueue().ok());
  REQUIRE(device.finish() == "");
  const cudaStream_t stream = device.stream();
  require_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  // What a captured stream may not be asked, which ends the capture.
  CHECK(cudaStreamSynchronize(stream) != cudaSuccess);
  cudaGetLastError();
  const Status status = device.enqueue();
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK(status.code() == FLASHDMA_BWD_CUDA_ERROR);
  CHECK(status.message().find("cudaErrorStreamCaptureInvalidated") != std::string::npos);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) != cudaSuccess);
  cudaGetLastError();
}
