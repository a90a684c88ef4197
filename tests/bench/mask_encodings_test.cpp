// A benchmark's mask keeps the same pairs in every encoding.
#include "mask_encodings.hpp"

#include <string>
#include <vector>

#include "reference/mask_pairs.hpp"
#include "support/catch.hpp"

using namespace flashdma_bwd::bench;

TEST_CASE("an encoded mask keeps what its bytes keep") {
  for (const char* text :
       {"mask=random:0.5 encoding=bytes", "mask=random:0.5 encoding=bits", "mask=keys:0.3 encoding=bits",
        "mask=keys:0.3 encoding=keys", "causal mask=topw:9 encoding=intervals", "mask=window:20 encoding=intervals",
        "mask=documents:30 encoding=intervals", "mask=blocks:0.5 encoding=blocks"}) {
    INFO(text);
    Problem problem;
    std::string error;
    REQUIRE(parse_problem(std::string("b=2 h=4 hk=2 d=64 sq=150 sk=270 ") + text, problem, error));
    const HostMask mask = make_mask(problem, random_scores(problem, 3), 3);
    EncodedMask encoded = encode(problem, mask);
    flashdma_bwd_arguments arguments{};
    arguments.heads = problem.heads;
    arguments.seqlen_q = problem.seqlen_q;
    arguments.seqlen_k = problem.seqlen_k;
    arguments.mask = encoded.tensor;
    arguments.mask.data = encoded.bytes.data();
    arguments.mask_block_q = encoded.block_q;
    arguments.mask_block_k = encoded.block_k;
    const flashdma_bwd::MaskPairs pairs(arguments);
    std::int64_t different = 0;
    for (std::int64_t b = 0; b < problem.batch; ++b)
      for (std::int64_t h = 0; h < problem.heads; ++h)
        for (std::int64_t i = 0; i < problem.seqlen_q; ++i)
          for (std::int64_t j = 0; j < problem.seqlen_k; ++j) {
            const std::int64_t row = (b * problem.heads_kv + h / 2) * mask.rows + (mask.rows > 1 ? i : 0);
            const bool kept = mask.keep[static_cast<std::size_t>(row * problem.seqlen_k + j)] != 0;
            if (pairs.keeps(b, h, i, j) != kept) ++different;
          }
    CHECK(different == 0);
  }
}
