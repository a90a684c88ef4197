// Few items with many query tiles, which are split into pieces, in every mode. The shapes are such that a GPU of some
// hundred multiprocessors has items of three pieces and more, and of unequal ones; with FLASHDMA_BWD_PIECE_STEPS=1 the
// other groups' small problems are split, too.
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "gpu/check.hpp"
#include "gpu/device_problem.hpp"
#include "gpu/kernels_under_test.hpp"
#include "support/catch.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

/// With causality, which is aligned bottom-right, the last keys are seen by the last queries only.
ProblemSpec long_problem(int head_dim = 64, bool causal = false) {
  ProblemSpec spec;
  spec.head_dim = head_dim;
  spec.heads = 2;
  spec.heads_kv = 1;
  spec.seqlen_q = 2000;
  spec.seqlen_k = causal ? 1900 : 700;
  spec.causal = causal;
  return spec;
}

const MaskSpec kMasks[] = {
    {.structure = MaskStructure::bernoulli, .shape = {.heads = PairHeads::kv}, .probability = 0.3},
    {.structure = MaskStructure::block_sparse, .shape = {.heads = PairHeads::query}, .probability = 0.3},
    {.structure = MaskStructure::window_with_sinks, .width = 100},  // one long column
    {.structure = MaskStructure::empty_columns, .probability = 0.5},
    {.structure = MaskStructure::bernoulli, .shape = {.heads = PairHeads::kv, .rows = false}},
    {.structure = MaskStructure::bernoulli, .shape = {.heads = PairHeads::query, .rows = false}},
};

}  // namespace

TEST_CASE("long sequences of few heads, of every head dim", "[pieces]") {
  for (int head_dim : {32, 40, 64, 96, 128, 192, 256})
    for (bool causal : {false, true}) {
      ProblemSpec spec = long_problem(head_dim, causal);
      check_both_types(spec);
      spec.heads = spec.heads_kv = 1;  // dK and dV are written as they are, not as parts of a sum over heads
      check_problem(spec);
      spec.softcap = 3.0f;
      spec.bias = {.present = true, .shape = {.rows = false}};
      spec.bias.gradient_fp32 = causal;
      check_problem(spec);
    }
}

TEST_CASE("one item of many pieces, of every compiled kernel", "[pieces]") {
  std::set<std::string> asked_for;
  for (const KernelName& kernel : kernels_under_test()) {
    if (asked_for.count(kernel.text) != 0) continue;  // with the first of its kind
    std::vector<ProblemSpec> problems(2, problem_for(kernel));
    for (ProblemSpec& spec : problems) {
      spec.heads = spec.heads_kv = 1;  // the sum of the pieces is what is written
      spec.seqlen_q = 2100;
      spec.seqlen_k = 72;
    }
    problems[1].name = "active keys";
    problems[1].head_dim -= 8;
    problems[1].mask = {
        .structure = MaskStructure::bernoulli, .shape = {.heads = PairHeads::kv, .rows = false}, .probability = 0.6};
    if (kernel.copies_bias()) {
      problems.pop_back();
      make_bias_movable(problems[0]);
    }
    for (const ProblemSpec& spec : problems)
      for (const std::string& name : check_problem(spec)) asked_for.insert(name);
  }
  check_all_were_asked_for(asked_for);
}

// Tiles of 96 keys are where a sequence's last keys are often so few that kernels take these alone. All pieces' rows
// lie in one memory; who reads which when the others have theirs is a matter of time, so a problem is run several
// times.
TEST_CASE("pieces of an item of few keys beside those of whole ones", "[pieces]") {
  bool ran = false;
  bool sm90 = false;
  for (const KernelName& kernel : kernels_under_test()) {
    sm90 |= kernel.architecture == "sm90";
    if (kernel.text.find("_m64n96_") == std::string::npos) continue;
    ProblemSpec spec = problem_for(kernel);
    spec.heads = spec.heads_kv = 2;
    spec.seqlen_k = 96 + 32;
    // Two pieces an item as they are, and three in pieces of one step. Sums of more have a kernel of their own.
    for (int seqlen_q : {512, 192}) {
      spec.seqlen_q = seqlen_q;
      Problem problem(spec);
      for (int run = 0; run < 5; ++run) check_prepared_problem(problem);
    }
    ran = true;
  }
  // A build of other architectures' kernels has none of these, and some of sm90's may be left out.
  CHECK((ran || !sm90 || std::getenv("FLASHDMA_BWD_TEST_KERNELS") != nullptr));
}

TEST_CASE("long sequences with windows", "[pieces]") {
  for (int head_dim : {64, 128, 256}) {
    ProblemSpec spec = long_problem(head_dim);
    spec.seqlen_k = 2100;
    spec.window_left = 900;
    spec.window_right = 300;
    check_problem(spec);
    spec.seqlen_k = 300;
    spec.causal = true;
    check_problem(spec);
  }
}

TEST_CASE("long sequences with masks and biases", "[pieces]") {
  for (int head_dim : {64, 128, 192})
    for (const MaskSpec& mask : kMasks) {
      ProblemSpec spec = long_problem(head_dim);
      spec.mask = mask;
      check_problem(spec);
      for (bool rows : {false, true}) {
        spec.bias = {.present = true, .shape = {.heads = PairHeads::kv, .rows = rows}};
        spec.data_type = rows ? FLASHDMA_BWD_FP16 : FLASHDMA_BWD_BF16;
        check_problem(spec);
      }
    }
}

TEST_CASE("many items of which the last are split, of every head dim", "[pieces]") {
  for (int head_dim : {32, 64, 96, 128, 192, 256}) {
    ProblemSpec spec;
    spec.head_dim = head_dim;
    spec.heads = spec.heads_kv = 70;
    spec.seqlen_q = 1500;
    spec.seqlen_k = 130;  // 140 items of 128 keys, of which H200s take 132 or 66 at once
    check_problem(spec);
    spec.data_type = FLASHDMA_BWD_FP16;
    spec.heads_kv = 35;
    spec.bias = {.present = true, .shape = {.rows = false}};
    check_problem(spec);
  }
}

TEST_CASE("causal items of which the last are split", "[pieces]") {
  for (int head_dim : {64, 128, 256}) {
    ProblemSpec spec;
    spec.head_dim = head_dim;
    spec.heads = spec.heads_kv = 12;
    spec.seqlen_q = spec.seqlen_k = 1500;
    spec.causal = true;
    spec.softcap = head_dim == 64 ? 3.0f : 0.0f;
    check_problem(spec);
  }
}

TEST_CASE("many items of several heads of which the last are split", "[pieces]") {
  for (int head_dim : {32, 64}) {
    ProblemSpec spec;
    spec.head_dim = head_dim;
    spec.heads = 1120;
    spec.heads_kv = 560;
    spec.seqlen_q = 520;
    spec.seqlen_k = 20;
    check_problem(spec);
  }
}

TEST_CASE("packed sequences of which one is long", "[pieces]") {
  for (int head_dim : {64, 128, 256})
    for (bool masked : {false, true}) {
      ProblemSpec spec = long_problem(head_dim, !masked);
      spec.lengths_q = {90, 2000, 0, 300};
      spec.lengths_k = {40, masked ? 600 : 1900, 20, 900};
      if (masked) spec.mask = kMasks[1];
      check_problem(spec);
      spec.bias = {.present = true, .shape = {.batch = false, .heads = PairHeads::one, .rows = false}};
      check_problem(spec);
      spec.mask = kMasks[4];
      check_problem(spec);
    }
}

TEST_CASE("split items give the same bits on every deterministic run", "[pieces]") {
  std::vector<ProblemSpec> problems(5, long_problem());
  problems[1] = long_problem(128, true);
  problems[1].bias = {.present = true, .shape = {.heads = PairHeads::one, .rows = false}};
  problems[2].head_dim = 256;
  problems[2].mask = kMasks[2];
  problems[3].mask = kMasks[4];
  problems[3].heads_kv = 2;
  problems[3].bias = {.present = true, .shape = {.batch = false, .heads = PairHeads::kv, .rows = false}, .fp32 = true};
  problems[4].head_dim = 128;
  problems[4].lengths_q = {2000, 70};
  problems[4].lengths_k = {500, 300};
  for (ProblemSpec& spec : problems) {
    spec.deterministic = true;
    check_problem(spec);
    Problem host(spec);
    INFO(host.spec().text());
    DeviceProblem device(host);
    const std::vector<KernelName> names = kernels_for(device.arguments());
    for (const KernelName& name : names) {
      device.arguments().kernel = name.text.c_str();
      INFO(name.text);
      std::vector<std::vector<std::byte>> first;
      int different = 0;
      for (int run = 0; run < 30; ++run) {
        std::string defect;
        const Status status = device.run(defect);
        if (!status && name.architecture != names.front().architecture && not_runnable_here(status)) break;
        INFO(status.message());
        REQUIRE(status.code() == FLASHDMA_BWD_OK);
        std::vector<std::vector<std::byte>> bytes;
        for (const Buffer* buffer : host.outputs()) bytes.push_back(buffer->bytes);
        if (run == 0) first = bytes;
        if (bytes != first || !defect.empty()) ++different;
      }
      CHECK(different == 0);
    }
  }
}
