// Sequence lengths and head dims that are multiples of the tiles and ones that are not.
#include "gpu/check.hpp"
#include "support/catch.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

constexpr std::int64_t kLengths[] = {1, 7, 63, 64, 65, 127, 128, 256, 333, 1000};
constexpr int kLengthCount = 10;

}  // namespace

TEST_CASE("odd and even shapes", "[shapes]") {
  int turn = 0;
  for (int head_dim : {8, 32, 40, 64, 72, 80, 96, 104, 128, 160, 192, 256}) {
    for (int q = 0; q < kLengthCount; ++q) {
      // Over all head dims every pair of lengths comes up.
      for (int k : {(q + turn) % kLengthCount, (q + 3 + turn) % kLengthCount}) {
        ProblemSpec spec;
        spec.head_dim = head_dim;
        spec.data_type = (q + k + turn) % 2 == 0 ? FLASHDMA_BWD_BF16 : FLASHDMA_BWD_FP16;
        spec.seqlen_q = kLengths[q];
        spec.seqlen_k = kLengths[k];
        spec.heads = spec.heads_kv = spec.seqlen_q * spec.seqlen_k > 500 * 500 ? 1 : 3;
        spec.causal = (q + turn) % 3 == 0;
        // A row that sees a single key has dS = 0 up to rounding: give it another O.
        spec.random_out = spec.seqlen_k == 1;
        check_problem(spec);
      }
    }
    ++turn;
  }
}

// What comes before the main kernel takes short rows of four heads at a time, where there are so many.
TEST_CASE("short rows of heads by fours and of others", "[shapes]") {
  int turn = 0;
  for (int head_dim : {8, 24, 32})
    for (int heads : {4, 6, 8})
      for (bool packed : {false, true}) {
        ProblemSpec spec;
        spec.head_dim = head_dim;
        spec.data_type = turn % 2 == 0 ? FLASHDMA_BWD_BF16 : FLASHDMA_BWD_FP16;
        spec.heads = heads;
        spec.heads_kv = turn % 3 == 0 ? heads / 2 : heads;
        spec.batch = 2;
        spec.seqlen_q = turn % 4 < 2 ? 65 : 201;
        spec.seqlen_k = 70;
        if (packed) spec.lengths_q = {0, 130, 17, 64}, spec.lengths_k = {20, 70, 33, 64};
        spec.causal = heads == 6;
        if (turn % 3 == 1) spec.mask = {.structure = MaskStructure::bernoulli, .shape = {.heads = PairHeads::kv}};
        check_problem(spec);
        ++turn;
      }
}

TEST_CASE("many heads and batches", "[shapes]") {
  ProblemSpec spec;
  spec.batch = 5;
  spec.heads = spec.heads_kv = 33;
  spec.seqlen_q = 70;
  spec.seqlen_k = 40;
  check_both_types(spec);
}

TEST_CASE("other scales", "[shapes]") {
  ProblemSpec spec;
  spec.seqlen_q = 200;
  for (float scale : {1.0f, 0.01f, -0.2f}) {
    spec.scale = scale;
    check_both_types(spec);
  }
  // The smallest, whose gradients fp16 cannot hold.
  spec.scale = 1e-20f;
  spec.data_type = FLASHDMA_BWD_BF16;
  check_problem(spec);
}
