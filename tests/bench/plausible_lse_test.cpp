// Random tensors and their logsumexps are such that P is at most 1, as it is with a true logsumexp.
#include "plausible_lse.hpp"

#include <cmath>
#include <string>

#include "normal_sequence.hpp"
#include "support/catch.hpp"

using namespace flashdma_bwd::bench;

TEST_CASE("random tensors have probabilities of at most 1") {
  for (const char* text : {"b=1 h=2 d=256 s=256 causal", "b=2 h=8 d=192 s=128 causal", "b=1 h=1 d=64 s=384",
                           "b=1 h=2 d=128 s=256 causal mask=topw:20", "b=1 h=2 d=128 s=256 causal window=20"}) {
    INFO(text);
    Problem p;
    std::string error;
    REQUIRE(parse_problem(text, p, error));
    const std::vector<float> lse = plausible_lse(p);
    REQUIRE(lse.size() == static_cast<std::size_t>(p.batch * p.heads * p.seqlen_q));
    const NormalSequence q(2024, 1), k(2025, 1);  // neighbours, as in a problem on the device
    const auto row_of = [&](std::int64_t b, std::int64_t h, std::int64_t row) {
      return static_cast<std::size_t>(((b * p.seqlen_q + row) * p.heads + h) * p.head_dim);
    };
    double largest = 0, sum = 0;
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t h = 0; h < p.heads; ++h)
        for (std::int64_t i = 0; i < p.seqlen_q; ++i)
          for (std::int64_t j = 0; j <= (p.causal ? i : p.seqlen_k - 1); ++j) {
            double score = 0;
            for (std::int64_t c = 0; c < p.head_dim; ++c)
              score += static_cast<double>(q[row_of(b, h, i) + static_cast<std::size_t>(c)] *
                                           k[row_of(b, h, j) + static_cast<std::size_t>(c)]);
            const double row_lse =
                static_cast<double>(lse[static_cast<std::size_t>((b * p.heads + h) * p.seqlen_q + i)]);
            const double probability = std::exp(score / std::sqrt(static_cast<double>(p.head_dim)) - row_lse);
            largest = std::max(largest, probability);
            sum += probability;
          }
    CHECK(largest <= 1);
    // Nor is there next to nothing to compute with.
    CHECK(sum > 0.2 * static_cast<double>(p.batch * p.heads * p.seqlen_q));
  }
}
