// Tensors for the problems of the grids.
#include "tune/measure/problem_shape.hpp"

#include "bench/mask_shapes.hpp"
#include "selection/problem_text.hpp"
#include "support/catch.hpp"
#include "tuning/grids.hpp"

namespace flashdma_bwd::tune::test {

TEST_CASE("every problem of the grids can be made, and a smaller one of its kind", "[shape]") {
  for (const generator::Grid& grid : generator::all_grids())
    for (const Problem& problem : grid.problems()) {
      INFO(problem_text(problem));
      CHECK(shape_of(problem));
      const Problem smaller = smaller_problem(problem);
      CHECK(shape_of(smaller));
      CHECK(operations(smaller) <= 2e10);
      CHECK(smaller.heads / smaller.heads_kv == problem.heads / problem.heads_kv);
      Problem same_kind = smaller;
      same_kind.batch = problem.batch;
      same_kind.heads = problem.heads;
      same_kind.heads_kv = problem.heads_kv;
      same_kind.seqlen_q = problem.seqlen_q;
      same_kind.seqlen_k = problem.seqlen_k;
      CHECK((smaller.window != 0) == (problem.window != 0));
      CHECK(smaller.window < smaller.seqlen_q);
      same_kind.window = problem.window;
      CHECK(same_kind == problem);
    }
}

TEST_CASE("a shortened sequence stays as aligned as it was", "[shape]") {
  Problem problem;
  problem.head_dim = 64;
  problem.batch = 3;
  problem.heads = 12;
  problem.heads_kv = 4;
  problem.seqlen_q = 4096;
  problem.seqlen_k = 8195;
  const Problem smaller = smaller_problem(problem);
  CHECK(smaller.seqlen_q % 8 == 0);
  CHECK(smaller.seqlen_k % 8 == 3);
  CHECK(smaller.seqlen_k <= 648);
  CHECK(smaller.seqlen_q < smaller.seqlen_k);
  CHECK(smaller.heads == 6);
  problem.seqlen_q = problem.seqlen_k = 100;
  CHECK(smaller_problem(problem).seqlen_q == 100);
  // What is left of a window is one.
  problem.causal = true;
  problem.seqlen_q = 512;
  problem.seqlen_k = 32768;
  problem.window = 256;
  const Problem windowed = smaller_problem(problem);
  CHECK(windowed.window > 0);
  CHECK(windowed.window < windowed.seqlen_q);
}

TEST_CASE("masks are about as dense as asked", "[shape]") {
  for (const KeyLayout layout : kKeyLayouts)
    for (const bool causal : {false, true})
      for (const int density : {60, 250, 500, 1000}) {
        Problem problem;
        problem.head_dim = 64;
        problem.batch = 1;
        problem.heads = problem.heads_kv = 4;
        problem.seqlen_q = problem.seqlen_k = 1024;
        problem.causal = causal;
        problem.masked = true;
        problem.layout = layout;
        problem.mask_density = density;
        INFO(problem_text(problem));
        const Parsed<ProblemShape> shape = shape_of(problem);
        REQUIRE(shape);
        CHECK(shape.value->options.mask_density == density);
        const bench::Problem& made = shape.value->problem;
        const double active = bench::make_mask(made, bench::random_scores(made, 1), 1).active_fraction;
        const double all = causal ? 0.5 : 1;
        CHECK(active / all > 0.6 * density / 1000);
        CHECK(active / all < 1.4 * density / 1000 + 0.02);
      }
}

TEST_CASE("a density below one in 1000 is one for the caller, whose 0 is unknown", "[shape]") {
  Problem problem;
  problem.head_dim = 64;
  problem.batch = 1;
  problem.heads = problem.heads_kv = 1;
  problem.seqlen_q = problem.seqlen_k = 1024;
  problem.masked = true;
  problem.mask_density = 0;
  const Parsed<ProblemShape> shape = shape_of(problem);
  REQUIRE(shape);
  CHECK(shape.value->options.mask_density == 1);
}

TEST_CASE("what no tensors can be is said", "[shape]") {
  Problem problem;
  problem.head_dim = 64;
  problem.batch = problem.heads = problem.heads_kv = 1;
  problem.seqlen_q = problem.seqlen_k = 1023;
  problem.bias = BiasKind::tile;
  CHECK(shape_of(problem));
  problem.bias_copies = true;
  CHECK(shape_of(problem).error.find("a multiple of 8") != std::string::npos);
}

}  // namespace flashdma_bwd::tune::test
