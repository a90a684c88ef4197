// More items than a GPU works at at once, so that a CTA takes several, one after the other: of many steps and of one,
// of neighbouring and of scattered keys, without steps and without keys.
#include <vector>

#include "gpu/check.hpp"
#include "support/catch.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

/// Three key tiles to each of 80 heads, of which the last one is not full.
ProblemSpec many_items(int head_dim, std::int64_t seqlen_q = 200, std::int64_t seqlen_k = 330) {
  ProblemSpec spec;
  spec.head_dim = head_dim;
  spec.batch = 2;
  spec.heads = spec.heads_kv = 40;
  spec.seqlen_q = seqlen_q;
  spec.seqlen_k = seqlen_k;
  return spec;
}

/// A problem and the same in deterministic mode.
void check_both_modes(ProblemSpec spec) {
  check_problem(spec, Kernels::the_table);
  spec.deterministic = true;
  check_problem(spec, Kernels::the_table);
}

constexpr int kHeadDims[] = {32, 64, 96, 128};

}  // namespace

TEST_CASE("several items of a CTA, of every number of steps", "[items]") {
  for (int head_dim : kHeadDims)
    for (bool causal : {false, true})
      for (int seqlen_q : {40, 100, 200}) {
        ProblemSpec spec = many_items(head_dim, seqlen_q, causal ? 400 : 330);
        spec.causal = causal;
        check_both_modes(spec);
      }
}

TEST_CASE("several items of a CTA, with a key bias or a softcap", "[items]") {
  for (int head_dim : kHeadDims) {
    ProblemSpec spec = many_items(head_dim);
    spec.bias = {.present = true, .shape = {.rows = false}, .minus_infinity = 0.1};
    check_both_modes(spec);
    spec.softcap = 3.0f;
    spec.data_type = FLASHDMA_BWD_FP16;
    check_problem(spec, Kernels::the_table);
    spec.bias = {};
    check_problem(spec, Kernels::the_table);
  }
}

TEST_CASE("items that no query sees lie between others", "[items]") {
  for (int head_dim : kHeadDims) {
    ProblemSpec spec = many_items(head_dim, 100, 700);
    spec.window_left = 40;
    spec.window_right = 90;
    check_both_modes(spec);
    spec = many_items(head_dim, 200, 400);
    spec.mask = {.structure = MaskStructure::block_sparse, .probability = 0.2, .width = 128};
    check_both_modes(spec);
    spec.mask = {.structure = MaskStructure::keep_nothing};
    check_problem(spec, Kernels::the_table);
  }
}

// Kernels that the table would not choose for masks, too. With 60 queries an item has one step, so that the ways in
// which K and V come follow each other as fast as they can.
TEST_CASE("items of scattered keys, which the CTA gathers", "[items]") {
  for (int head_dim : kHeadDims)
    for (int seqlen_q : {60, 200}) {
      ProblemSpec spec = many_items(head_dim, seqlen_q, 600);
      spec.mask = {.structure = MaskStructure::bernoulli, .shape = {.rows = false}, .probability = 0.4};
      check_problem(spec);
      spec.mask = {.structure = MaskStructure::causal_top_w, .width = 30, .layout = FLASHDMA_BWD_MASK_REORDERED};
      check_problem(spec);
      // Some masks keep the keys' own order.
      spec.mask.layout = FLASHDMA_BWD_MASK_AUTO;
      check_problem(spec);
    }
}

TEST_CASE("items of several heads, and of packed sequences", "[items]") {
  for (int head_dim : kHeadDims) {
    ProblemSpec spec = many_items(head_dim);
    spec.batch = 4;
    spec.heads_kv = 20;
    check_both_modes(spec);
    spec.causal = true;
    spec.bias = {.present = true, .shape = {.batch = false, .rows = false}};
    check_both_modes(spec);
    spec = many_items(head_dim);
    spec.lengths_q = {1, 200, 0, 64, 129, 70};
    spec.lengths_k = {300, 129, 40, 0, 128, 1};
    check_both_modes(spec);
    spec.causal = true;
    check_both_modes(spec);
  }
}
