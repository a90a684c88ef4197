// Inputs with no memory before and behind them: the copy engine must not reach past a tensor's ends, neither where the
// last keys leave a part of a tile empty, nor where the head dim leaves a part of a row.
#include "gpu/check.hpp"
#include "support/catch.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

void check_lonely(const ProblemSpec& spec) {
  check_problem(spec, Kernels::every, Inputs::lonely);
}

}  // namespace

TEST_CASE("nothing outside of the inputs is read", "[ends]") {
  for (int head_dim : {24, 40, 64, 72, 80, 96, 104, 128, 136, 160, 192, 200, 256})
    for (std::int64_t seqlen_k : {1, 130, 200, 250}) {
      ProblemSpec spec;
      spec.head_dim = head_dim;
      spec.heads = spec.heads_kv = 2;
      spec.seqlen_q = 150;
      spec.seqlen_k = seqlen_k;
      spec.random_out = seqlen_k == 1;
      check_lonely(spec);
    }
}

TEST_CASE("nothing outside of packed inputs is read", "[ends]") {
  for (int head_dim : {40, 72, 128, 136, 192, 256}) {
    ProblemSpec spec;
    spec.head_dim = head_dim;
    spec.heads = spec.heads_kv = 2;
    spec.lengths_q = {100, 70, 1, 150};
    spec.lengths_k = {130, 30, 65, 257};
    check_lonely(spec);
    spec.causal = true;
    check_lonely(spec);
  }
}

TEST_CASE("nothing outside of a tile bias or of keys in any order is read", "[ends]") {
  for (int head_dim : {32, 64, 72, 96, 128, 192})
    for (std::int64_t seqlen_k : {136, 200, 264}) {
      ProblemSpec spec;
      spec.head_dim = head_dim;
      spec.heads = spec.heads_kv = 2;
      spec.seqlen_q = 250;
      spec.seqlen_k = seqlen_k;
      spec.bias = {.present = true};
      check_lonely(spec);
      spec.bias = {};
      spec.mask = {.structure = MaskStructure::causal_top_w, .width = 30, .layout = FLASHDMA_BWD_MASK_REORDERED};
      check_lonely(spec);
    }
}
