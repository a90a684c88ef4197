// Every order that the emulated device finds gives the same bits in deterministic mode, and right gradients without it.
//
// Each run has another order of warps, copies and products, and of CTAs if FLASHDMA_BWD_EMULATED_RESIDENT is above 1.
// FLASHDMA_BWD_EMULATED_RUNS is the number of runs (3).
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "gpu/check.hpp"
#include "gpu/device_problem.hpp"
#include "gpu/kernels_under_test.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

int runs() {
  const char* text = std::getenv("FLASHDMA_BWD_EMULATED_RUNS");
  return text == nullptr ? 3 : std::atoi(text);
}

/// Several items add to the dQ of each query tile.
std::vector<ProblemSpec> problems_of(const KernelName& kernel) {
  std::vector<ProblemSpec> problems(4, problem_for(kernel));
  for (ProblemSpec& spec : problems) {
    spec.heads = 2;
    spec.heads_kv = 1;
    spec.seqlen_q = 200;
    spec.seqlen_k = 520;
  }
  problems[0].name = "all pairs";
  problems[1].name = "causal, sparse";
  problems[1].causal = true;
  problems[1].mask = {.structure = MaskStructure::block_sparse, .probability = 0.4};
  problems[2].name = "window";
  problems[2].window_left = 130;
  problems[2].window_right = 70;
  problems[2].batch = 2;
  problems[3].name = "reordered";
  problems[3].causal = true;
  problems[3].mask = {.structure = MaskStructure::causal_top_w,
                      .shape = {.heads = PairHeads::kv},
                      .width = 30,
                      .layout = FLASHDMA_BWD_MASK_REORDERED};
  if (kernel.copies_bias()) {
    problems.pop_back();
    for (ProblemSpec& spec : problems) make_bias_movable(spec);
  }
  return problems;
}

std::vector<std::vector<std::byte>> output_bytes(Problem& problem) {
  std::vector<std::vector<std::byte>> bytes;
  for (const Buffer* buffer : problem.outputs()) bytes.push_back(buffer->bytes);
  return bytes;
}

void check_runs(const ProblemSpec& spec, const KernelName& kernel) {
  Problem host(spec);
  INFO(kernel.text);
  INFO(host.spec().text());
  const Gradients expected = exact_gradients(host);
  DeviceProblem device(host);
  device.arguments().kernel = kernel.text.c_str();
  std::vector<std::vector<std::byte>> first;
  for (int run = 0; run < runs(); ++run) {
    std::string defect;
    const Status status = device.run(defect);
    INFO(status.message());
    REQUIRE(status.code() == FLASHDMA_BWD_OK);
    CHECK(defect == "");
    const GradientErrors errors = gradient_errors(host, read_gradients(host), expected);
    INFO(errors.text());
    CHECK(errors.largest() <= error_bar(spec.data_type));
    if (run == 0) first = output_bytes(host);
    if (spec.deterministic) CHECK(output_bytes(host) == first);
  }
}

}  // namespace

TEST_CASE("every order gives the same bits", "[orders]") {
  for (const KernelName& kernel : kernels_under_test())
    for (ProblemSpec spec : problems_of(kernel))
      for (const bool deterministic : {true, false}) {
        spec.deterministic = deterministic;
        check_runs(spec, kernel);
      }
}
