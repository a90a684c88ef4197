// Every mask structure, in the natural layout and, with the same mask for all queries, compacted; built by the call and
// prebuilt.
#include "gpu/check.hpp"
#include "gpu/masked_problems.hpp"
#include "support/catch.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

TEST_CASE("every mask structure", "[masks]") {
  for (const MaskSpec& structure : kMasks) {
    for (PairHeads heads : {PairHeads::one, PairHeads::kv, PairHeads::query}) {
      ProblemSpec spec = masked(structure, heads == PairHeads::kv ? 128 : 64);
      spec.mask.shape.heads = heads;
      check_both_types(spec);
      if (has_single_keys(structure)) {
        spec.random_out = true;  // whose dS does not cancel
        check_both_types(spec);
      }
    }
  }
}

TEST_CASE("every mask structure under causality, deterministic", "[masks]") {
  for (const MaskSpec& structure : kMasks) {
    ProblemSpec spec = masked(structure, 96);
    spec.causal = true;
    spec.deterministic = true;
    check_problem(spec);
    spec.seqlen_q = 450;
    spec.seqlen_k = 300;
    spec.data_type = FLASHDMA_BWD_FP16;
    check_problem(spec);
  }
}

TEST_CASE("every mask structure for all queries alike", "[masks]") {
  for (const MaskSpec& structure : kMasks) {
    for (bool causal : {false, true}) {
      ProblemSpec spec = masked(structure, causal ? 128 : 64);
      spec.batch = 2;
      spec.causal = causal;
      spec.mask.shape = {.heads = causal ? PairHeads::kv : PairHeads::query, .rows = false};
      spec.random_out = has_single_keys(structure);
      check_both_types(spec);
    }
  }
}

TEST_CASE("numbers of active keys around the tiles", "[masks]") {
  for (std::int64_t active : {1, 31, 32, 33, 63, 64, 65, 127, 128, 129}) {
    ProblemSpec spec = masked(
        {.structure = MaskStructure::causal_top_w, .shape = {.heads = PairHeads::kv, .rows = false}, .width = active});
    spec.causal = active % 2 == 0;
    spec.random_out = active == 1;
    check_both_types(spec);
  }
}

TEST_CASE("every broadcast of a mask", "[masks]") {
  for (bool batch : {false, true})
    for (PairHeads heads : {PairHeads::one, PairHeads::kv, PairHeads::query})
      for (bool rows : {false, true})
        for (bool columns : {false, true}) {
          ProblemSpec spec = masked({.structure = MaskStructure::bernoulli, .shape = {batch, heads, rows, columns}});
          spec.batch = 3;
          spec.seqlen_q = 150;
          spec.mask.row_padding = 5;
          check_both_types(spec);
          spec.bias = {.present = true, .shape = {.heads = PairHeads::kv}};
          check_problem(spec);
        }
}

TEST_CASE("masked keys hold values near the largest finite ones", "[masks]") {
  // A compacted mask's steps hold kept keys alone. One with rows is natural, if this short.
  struct Encoding {
    bool rows;
    flashdma_bwd_mask_layout layout;
  };
  for (int head_dim : {64, 96, 128})
    for (const Encoding& encoding : {Encoding{true, FLASHDMA_BWD_MASK_AUTO}, Encoding{false, FLASHDMA_BWD_MASK_AUTO},
                                     Encoding{false, FLASHDMA_BWD_MASK_NATURAL}})
      for (bool bias : {false, true}) {
        ProblemSpec spec = masked({.structure = MaskStructure::empty_columns,
                                   .shape = {.heads = PairHeads::kv, .rows = encoding.rows},
                                   .huge_masked_keys = true,
                                   .layout = encoding.layout},
                                  head_dim);
        spec.bias = {.present = bias, .shape = {.rows = false}};
        check_both_types(spec);
        spec.softcap = 2.0f;
        check_both_types(spec);
      }
}

TEST_CASE("sparse masks of long sequences", "[masks]") {
  for (const MaskSpec& structure : {MaskSpec{.structure = MaskStructure::causal_top_w, .width = 16},
                                    MaskSpec{.structure = MaskStructure::causal_top_w, .width = 256},
                                    MaskSpec{.structure = MaskStructure::alternating_tiles, .width = 64}}) {
    ProblemSpec spec = masked(structure, 128);
    spec.heads = 2;
    spec.heads_kv = 1;
    spec.seqlen_q = spec.seqlen_k = 2048;
    spec.mask.shape.heads = PairHeads::kv;
    spec.causal = structure.structure == MaskStructure::causal_top_w;
    check_problem(spec);
  }
}

TEST_CASE("a mask, a bias and softcap at head dim 256", "[masks]") {
  ProblemSpec spec = masked({.structure = MaskStructure::alternating_tiles, .width = 64}, 256);
  spec.bias = {.present = true};
  check_both_types(spec);
  spec.softcap = 5.0f;
  check_both_types(spec);
}
