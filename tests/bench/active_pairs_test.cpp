// Closed forms of active pairs against masks counted byte by byte.
#include "active_pairs.hpp"

#include <string>

#include "mask_shapes.hpp"
#include "results_of.hpp"
#include "support/catch.hpp"

using namespace flashdma_bwd::bench;
using test::problem_of;

namespace {

/// Active pairs of all batches and heads of the mask that the benchmark makes.
double counted_pairs(const Problem& problem) {
  const HostMask mask = make_mask(problem, random_scores(problem, 7), 7);
  return mask.active_fraction * static_cast<double>(problem.seqlen_q * problem.seqlen_k);
}

constexpr const char* kLengths[] = {"s=1", "s=96", "sq=40 sk=133", "sq=133 sk=40", "sq=1 sk=77", "sq=77 sk=1"};

}  // namespace

TEST_CASE("pairs that causality leaves are those of a count") {
  for (const char* lengths : kLengths)
    for (const bool causal : {false, true}) {
      const Problem problem = problem_of(std::string("b=1 h=1 d=8 ") + lengths + (causal ? " causal" : ""));
      double count = 0;
      for (std::int64_t i = 0; i < problem.seqlen_q; ++i)
        for (std::int64_t j = 0; j < problem.seqlen_k; ++j)
          count += !causal || j <= i + problem.seqlen_k - problem.seqlen_q ? 1 : 0;
      INFO(problem_text(problem));
      CHECK(visible_pairs(problem.seqlen_q, problem.seqlen_k, causal) == count);
    }
}

TEST_CASE("pairs that a window leaves are those of a count") {
  for (const char* lengths : kLengths)
    for (const std::int64_t window : {1, 2, 17, 40, 50, 133, 500}) {
      Problem problem = problem_of(std::string("b=1 h=1 d=8 ") + lengths + " causal");
      problem.window = window;  // also of all queries and more, which no text has
      double count = 0;
      for (std::int64_t i = 0; i < problem.seqlen_q; ++i)
        for (std::int64_t j = 0; j < problem.seqlen_k; ++j) {
          const std::int64_t last = i + problem.seqlen_k - problem.seqlen_q;
          count += j <= last && j > last - window ? 1 : 0;
        }
      INFO(problem_text(problem));
      CHECK(visible_pairs(problem) == count);
      CHECK(active_pairs(problem) == count);
      CHECK(counted_pairs(problem) == Approx(count).epsilon(1e-12));
    }
}

TEST_CASE("active pairs of masks with a structure are those of the masks themselves") {
  for (const char* lengths : kLengths)
    for (const char* causal : {"", " causal"})
      for (const char* mask : {"none", "topw:1", "topw:17", "topw:50", "topw:500", "window:1", "window:16", "window:90",
                               "window:400", "documents:1", "documents:7", "documents:32", "documents:300"}) {
        const Problem problem = problem_of(std::string("b=1 h=2 hk=1 d=8 ") + lengths + causal + " mask=" + mask);
        INFO(problem_text(problem));
        CHECK(active_pairs(problem) == Approx(counted_pairs(problem)).epsilon(1e-12));
      }
}

TEST_CASE("active pairs of random masks are near those of a mask") {
  for (const char* mask : {"random:0.3", "keys:0.3", "blocks:0.3"})
    for (const char* causal : {"", " causal"}) {
      const Problem problem = problem_of(std::string("b=4 h=2 d=8 s=2048 mask=") + mask + causal);
      INFO(problem_text(problem));
      CHECK(active_pairs(problem) == Approx(counted_pairs(problem)).epsilon(0.07));
    }
}

TEST_CASE("long sequences are counted without a loop over them") {
  const Problem problem = problem_of("b=1 h=1 d=8 s=2147483648 causal mask=topw:2048");
  CHECK(active_pairs(problem) == 2048.0 * 2147483648.0 - 2048.0 * 2047.0 / 2);
}
