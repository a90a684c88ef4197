// Deterministic mode gives the same bits on every run; without it, runs differ by no more than rounding.
#include <vector>

#include "gpu/check.hpp"
#include "gpu/device_problem.hpp"
#include "gpu/kernels_under_test.hpp"
#include "gpu/results.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

/// Calls visit(device, run, own) with the table's choice and every other kernel that serves the problem.
template <class Visit>
void for_each_kernel(DeviceProblem& device, const Visit& visit) {
  const std::vector<KernelName> names = kernels_for(device.arguments());
  for (const KernelName& name : names) {
    device.arguments().kernel = name.text.c_str();
    INFO(name.text);
    std::string defect;
    const Status status = device.run(defect);
    if (!status && name.architecture != names.front().architecture && not_runnable_here(status)) {
      results().add_not_runnable(name.text, status.message());
      continue;
    }
    INFO(status.message());
    REQUIRE(status.code() == FLASHDMA_BWD_OK);
    CHECK(defect == "");
    visit();
  }
}

std::vector<std::vector<std::byte>> output_bytes(Problem& problem) {
  std::vector<std::vector<std::byte>> bytes;
  for (const Buffer* buffer : problem.outputs()) bytes.push_back(buffer->bytes);
  return bytes;
}

ProblemSpec problem() {
  ProblemSpec spec;
  spec.batch = 2;
  spec.heads = 4;
  spec.heads_kv = 2;
  spec.seqlen_q = 260;
  spec.seqlen_k = 520;
  return spec;
}

std::vector<ProblemSpec> deterministic_problems() {
  std::vector<ProblemSpec> problems(11, problem());
  problems[1].head_dim = 128;
  problems[1].causal = true;
  problems[2].mask = {.structure = MaskStructure::bernoulli, .shape = {.heads = PairHeads::kv}, .probability = 0.05};
  problems[2].bias = {.present = true, .shape = {.batch = false, .heads = PairHeads::one}};
  problems[3].mask = {.structure = MaskStructure::bernoulli, .shape = {.heads = PairHeads::kv, .rows = false}};
  problems[3].bias = {.present = true, .shape = {.batch = false, .heads = PairHeads::one, .rows = false}, .fp32 = true};
  problems[4].mask = {.structure = MaskStructure::block_sparse, .probability = 0.4};
  problems[4].head_dim = 256;
  problems[4].data_type = FLASHDMA_BWD_FP16;
  problems[5].lengths_q = {200, 0, 77, 300};
  problems[5].lengths_k = {100, 64, 129, 500};
  problems[5].bias = {.present = true, .shape = {.batch = false, .rows = true, .columns = false}};
  problems[5].random_out = true;  // else this dBias, the sum of whole rows of dS, is 0
  problems[6].mask = {.structure = MaskStructure::causal_top_w, .shape = {.heads = PairHeads::query}, .width = 30};
  problems[6].softcap = 2;
  problems[7].mask = {.structure = MaskStructure::causal_top_w,
                      .shape = {.heads = PairHeads::kv},
                      .width = 30,
                      .layout = FLASHDMA_BWD_MASK_REORDERED};
  problems[7].bias = {.present = true, .shape = {.heads = PairHeads::kv, .rows = false}};
  problems[7].causal = true;
  problems[8].head_dim = 32;
  problems[8].mask = problems[7].mask;
  problems[8].causal = true;
  problems[9].head_dim = 96;
  problems[9].causal = true;
  problems[9].bias = {.present = true, .shape = {.heads = PairHeads::kv, .rows = false}};
  problems[10].head_dim = 192;
  problems[10].causal = true;
  problems[10].mask = problems[7].mask;
  for (ProblemSpec& spec : problems) spec.deterministic = true;
  return problems;
}

}  // namespace

TEST_CASE("100 deterministic runs are bitwise equal", "[deterministic]") {
  for (const ProblemSpec& spec : deterministic_problems()) {
    Problem host(spec);
    INFO(host.spec().text());
    DeviceProblem device(host);
    for_each_kernel(device, [&] {
      const std::vector<std::vector<std::byte>> first = output_bytes(host);
      int different = 0;
      for (int run = 1; run < 100; ++run) {
        std::string defect;
        REQUIRE(device.run(defect).code() == FLASHDMA_BWD_OK);
        if (output_bytes(host) != first || !defect.empty()) ++different;
      }
      CHECK(different == 0);
    });
    check_problem(spec, Kernels::the_table);
  }
}

TEST_CASE("1000 runs stay within rounding of the first", "[repeat]") {
  std::vector<ProblemSpec> problems(2, problem());
  problems[0].batch = 1;
  problems[0].mask = {.structure = MaskStructure::alternating_tiles, .shape = {.heads = PairHeads::kv}};
  problems[1].batch = 1;
  problems[1].head_dim = 128;
  problems[1].data_type = FLASHDMA_BWD_FP16;
  problems[1].bias = {.present = true, .shape = {.heads = PairHeads::one}};
  for (const ProblemSpec& spec : problems) {
    Problem host(spec);
    INFO(host.spec().text());
    DeviceProblem device(host);
    std::string defect;
    Status status = device.run(defect);
    INFO(status.message());
    REQUIRE(status.code() == FLASHDMA_BWD_OK);
    const Gradients first = read_gradients(host);
    double worst = 0;
    for (int run = 1; run < 1000; ++run) {
      status = device.run(defect);
      REQUIRE(status.code() == FLASHDMA_BWD_OK);
      REQUIRE(defect == "");
      worst = std::max(worst, gradient_errors(host, read_gradients(host), first).largest());
    }
    // Sums in another order differ by float32 roundings; few of those reach the last place of a 16-bit result.
    CHECK(worst <= error_bar(spec.data_type) / 4);
  }
}

TEST_CASE("calls in a row, none of which waits for the host, share a workspace", "[repeat]") {
  std::vector<ProblemSpec> problems(4, problem());
  problems[1].seqlen_q = 2000;
  problems[1].head_dim = 128;
  problems[2].mask = {.structure = MaskStructure::bernoulli, .shape = {.heads = PairHeads::kv, .rows = false}};
  problems[2].bias = {.present = true, .shape = {.batch = false, .heads = PairHeads::one, .rows = false}};
  problems[3].deterministic = true;
  problems[3].seqlen_q = 2000;
  problems[3].batch = 1;
  for (const ProblemSpec& spec : problems) {
    Problem host(spec);
    INFO(host.spec().text());
    const Gradients expected = exact_gradients(host);
    DeviceProblem device(host);
    REQUIRE(device.prepare_buffers().code() == FLASHDMA_BWD_OK);
    for (int call = 0; call < 30; ++call) REQUIRE(device.enqueue().code() == FLASHDMA_BWD_OK);
    CHECK(device.finish() == "");
    const GradientErrors errors = gradient_errors(host, read_gradients(host), expected);
    INFO(errors.text());
    CHECK(errors.largest() <= error_bar(spec.data_type));
  }
}
