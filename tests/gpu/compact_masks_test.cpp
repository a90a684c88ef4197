// Masks that come compact: bits, lists of keys, intervals of queries and blocks, against the same masks as bytes on the
// CPU; in order and with what has no sense strewn in; in every layout, built by the call and prebuilt.
#include <algorithm>
#include <vector>

#include "gpu/check.hpp"
#include "gpu/masked_problems.hpp"
#include "support/catch.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

/// The spec in each encoding but bytes that expresses its mask, and of which its layout can be made, in order or with
/// garbage.
std::vector<ProblemSpec> encoded(ProblemSpec spec, bool garbage) {
  std::vector<ProblemSpec> specs;
  spec.mask.garbage = garbage;
  for (const flashdma_bwd_mask_encoding encoding : kMaskEncodings) {
    if (encoding == FLASHDMA_BWD_ENCODING_BYTES) continue;
    if (encoding == FLASHDMA_BWD_ENCODING_INTERVALS && spec.mask.layout == FLASHDMA_BWD_MASK_COMPACTED) continue;
    spec.mask.encoding = encoding;
    if (expresses_mask(spec)) specs.push_back(spec);
  }
  return specs;
}

bool has_encoding(const std::vector<ProblemSpec>& specs, flashdma_bwd_mask_encoding encoding) {
  return std::any_of(specs.begin(), specs.end(), [=](const ProblemSpec& s) { return s.mask.encoding == encoding; });
}

}  // namespace

TEST_CASE("every mask structure in every encoding that expresses it", "[compact-masks]") {
  int intervals = 0;
  int blocks = 0;
  for (const MaskSpec& structure : kMasks) {
    for (const bool garbage : {false, true}) {
      ProblemSpec spec = masked(structure, garbage ? 128 : 64);
      spec.causal = garbage;
      spec.mask.shape.heads = garbage ? PairHeads::kv : PairHeads::query;
      spec.random_out = has_single_keys(structure);
      const std::vector<ProblemSpec> specs = encoded(spec, garbage);
      for (const ProblemSpec& of_encoding : specs) check_problem(of_encoding);
      intervals += has_encoding(specs, FLASHDMA_BWD_ENCODING_INTERVALS) ? 1 : 0;
      blocks += has_encoding(specs, FLASHDMA_BWD_ENCODING_BLOCKS) ? 1 : 0;
    }
  }
  CHECK(intervals >= 12);
  CHECK(blocks >= 10);
}

TEST_CASE("every mask structure for all queries alike, in every encoding", "[compact-masks]") {
  for (const MaskSpec& structure : kMasks) {
    for (const bool garbage : {false, true}) {
      ProblemSpec spec = masked(structure, garbage ? 64 : 128);
      spec.batch = 2;
      spec.causal = !garbage;
      spec.mask.shape = {.heads = garbage ? PairHeads::kv : PairHeads::one, .rows = false};
      spec.random_out = has_single_keys(structure);
      const std::vector<ProblemSpec> specs = encoded(spec, garbage);
      CHECK(has_encoding(specs, FLASHDMA_BWD_ENCODING_KEY_LIST));
      for (const ProblemSpec& of_encoding : specs) check_both_types(of_encoding);
    }
  }
}

TEST_CASE("every layout of every encoding", "[compact-masks]") {
  for (const flashdma_bwd_mask_layout layout :
       {FLASHDMA_BWD_MASK_NATURAL, FLASHDMA_BWD_MASK_COMPACTED, FLASHDMA_BWD_MASK_REORDERED}) {
    for (const bool rows : {false, true}) {
      if (layout == FLASHDMA_BWD_MASK_COMPACTED && rows) continue;
      for (const MaskSpec& structure : {MaskSpec{.structure = MaskStructure::causal_top_w, .width = 100},
                                        MaskSpec{.structure = MaskStructure::block_sparse, .width = 128}}) {
        ProblemSpec spec = masked(structure, 96);
        spec.causal = structure.structure == MaskStructure::causal_top_w;
        spec.mask.layout = layout;
        spec.mask.shape.rows = rows;
        spec.mask.block_k = 128;
        spec.bias = {.present = true, .shape = {.heads = PairHeads::kv, .rows = false}};
        for (const ProblemSpec& of_encoding : encoded(spec, rows)) check_problem(of_encoding);
        spec.deterministic = true;
        for (const ProblemSpec& of_encoding : encoded(spec, !rows)) check_problem(of_encoding);
      }
    }
  }
}

TEST_CASE("every broadcast of every encoding", "[compact-masks]") {
  for (const bool batch : {false, true})
    for (const PairHeads heads : {PairHeads::one, PairHeads::kv, PairHeads::query})
      for (const bool rows : {false, true})
        for (const bool columns : {false, true}) {
          // Together of every encoding: intervals, blocks, and with one row lists.
          for (const MaskSpec& structure : {MaskSpec{.structure = MaskStructure::window_with_sinks, .width = 50},
                                            MaskSpec{.structure = MaskStructure::block_sparse, .width = 64}}) {
            ProblemSpec spec = masked(structure);
            spec.batch = 3;
            spec.seqlen_q = 150;
            spec.mask.shape = {batch, heads, rows, columns};
            spec.mask.row_padding = 5;
            for (const ProblemSpec& of_encoding : encoded(spec, columns)) check_problem(of_encoding);
          }
        }
}

TEST_CASE("compact masks of packed sequences", "[compact-masks]") {
  for (const bool rows : {false, true})
    for (const flashdma_bwd_mask_layout layout : {FLASHDMA_BWD_MASK_AUTO, FLASHDMA_BWD_MASK_REORDERED}) {
      for (const MaskSpec& structure : {MaskSpec{.structure = MaskStructure::window_with_sinks, .width = 90},
                                        MaskSpec{.structure = MaskStructure::block_sparse, .width = 128}}) {
        ProblemSpec spec = masked(structure);
        spec.lengths_q = {200, 130, 64};
        spec.lengths_k = {150, 333, 128};
        spec.mask.layout = layout;
        spec.mask.shape.rows = rows;
        spec.mask.shape.heads = PairHeads::kv;
        for (const ProblemSpec& of_encoding : encoded(spec, rows)) check_both_types(of_encoding);
      }
    }
}

TEST_CASE("blocks of many sizes", "[compact-masks]") {
  using Size = std::uint16_t;
  for (const Size block_q : {Size{64}, Size{192}, Size{1920}})
    for (const Size block_k : {Size{64}, Size{320}, Size{1920}}) {
      // The mask's own blocks are of 1920, which the others divide.
      ProblemSpec spec = masked({.structure = MaskStructure::block_sparse, .probability = 0.5, .width = 1920}, 64);
      spec.seqlen_q = 2000;
      spec.seqlen_k = 2100;
      spec.mask.encoding = FLASHDMA_BWD_ENCODING_BLOCKS;
      spec.mask.block_q = block_q;
      spec.mask.block_k = block_k;
      check_problem(spec, Kernels::the_table);
    }
}

TEST_CASE("compact masks of long sequences", "[compact-masks]") {
  for (const MaskSpec& structure :
       {MaskSpec{.structure = MaskStructure::causal_top_w, .width = 128},
        MaskSpec{.structure = MaskStructure::block_sparse, .probability = 0.2, .width = 128},
        MaskSpec{.structure = MaskStructure::documents, .width = 300}}) {
    ProblemSpec spec = masked(structure, 128);
    spec.heads = 2;
    spec.heads_kv = 1;
    spec.seqlen_q = spec.seqlen_k = 2304;
    spec.mask.shape.heads = PairHeads::kv;
    spec.causal = structure.structure == MaskStructure::causal_top_w;
    for (const ProblemSpec& of_encoding : encoded(spec, true)) check_problem(of_encoding, Kernels::the_table);
  }
}

TEST_CASE("an empty list of keys keeps nothing", "[compact-masks]") {
  ProblemSpec spec = masked({.structure = MaskStructure::keep_nothing, .shape = {.rows = false}});
  spec.mask.encoding = FLASHDMA_BWD_ENCODING_KEY_LIST;
  Problem problem(spec);
  problem.arguments().mask.columns = 0;
  check_prepared_problem(problem);
}
