// Every compiled kernel, over a few problems of its own head dim, type, bias and softcap: few enough for runs under
// compute-sanitizer. crossed_rows_test.cpp has the others.
#include <set>
#include <string>

#include "gpu/check.hpp"
#include "gpu/kernels_under_test.hpp"
#include "support/catch.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

std::vector<ProblemSpec> problems_of(const KernelName& kernel) {
  std::vector<ProblemSpec> problems(6, problem_for(kernel));
  problems[1].name = "causal top-w";
  problems[1].causal = true;
  problems[1].seqlen_q = 333;
  problems[1].seqlen_k = 390;
  problems[1].mask = {.structure = MaskStructure::causal_top_w, .shape = {.heads = PairHeads::kv}, .width = 40};
  problems[2].name = "deterministic tails";
  problems[2].deterministic = true;
  problems[2].causal = true;
  problems[2].seqlen_q = 191;
  problems[2].seqlen_k = 130;
  problems[2].head_dim -= 8;
  problems[2].bias.shape.heads = PairHeads::query;
  problems[3].name = "active keys";
  problems[3].mask = {
      .structure = MaskStructure::bernoulli, .shape = {.heads = PairHeads::kv, .rows = false}, .probability = 0.4};
  problems[4].name = "walks of eight or sixteen steps";  // the entries of steps come round after eight
  problems[4].seqlen_q = 1024;
  problems[4].seqlen_k = 130;
  problems[5].name = "masked keys near the largest finite values";  // beside kept ones, in the same steps
  problems[5].seqlen_q = 150;
  problems[5].seqlen_k = 200;
  problems[5].mask = {
      .structure = MaskStructure::empty_columns, .shape = {.heads = PairHeads::kv}, .huge_masked_keys = true};
  if (kernel.copies_bias()) {
    for (ProblemSpec& spec : problems) make_bias_movable(spec);
    problems[3].name = "half of the pairs";
  }
  if (kernel.text.find("_halves_") != std::string::npos) {
    // Steps without pairs of one warpgroup's keys, here and there; and past the end of the keys in all steps.
    ProblemSpec halves = problem_for(kernel);
    halves.name = "halves without pairs";
    halves.seqlen_q = 700;
    halves.seqlen_k = 440;
    halves.mask = {
        .structure = MaskStructure::block_sparse, .shape = {.heads = PairHeads::kv}, .probability = 0.3, .width = 64};
    problems.push_back(halves);
    halves.name = "halves without pairs, deterministic";
    halves.deterministic = true;
    problems.push_back(halves);
    // The same by the limits, without lists: at either end of a window, and past the end of the keys.
    ProblemSpec window = problem_for(kernel);
    window.name = "halves outside a window";
    window.seqlen_q = 700;
    window.seqlen_k = 690;
    window.causal = true;
    window.window_left = 190;
    problems.push_back(window);
    window.name = "halves that causality hides";
    window.seqlen_k = 440;
    window.window_left = -1;
    problems.push_back(window);
  }
  return problems;
}

}  // namespace

TEST_CASE("every compiled kernel", "[rows]") {
  std::set<std::string> asked_for;
  for (const KernelName& kernel : kernels_under_test()) {
    if (asked_for.count(kernel.text) != 0) continue;  // with the first of its kind
    for (const ProblemSpec& spec : problems_of(kernel))
      for (const std::string& name : check_problem(spec)) asked_for.insert(name);
  }
  check_all_were_asked_for(asked_for);
}
