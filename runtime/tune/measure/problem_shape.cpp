// Keys to tensors.
#include "tune/measure/problem_shape.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "selection/key_layout.hpp"

namespace flashdma_bwd::tune {
namespace {

constexpr double kSoftcap = 30;

void set_mask(const Problem& problem, ProblemShape& shape) {
  bench::Problem& p = shape.problem;
  const double density = problem.mask_density / 1000.0;
  shape.options.mask_density = std::max(problem.mask_density, 1);  // as a caller says it, whose 0 is unknown
  shape.options.reuse_plan = true;
  shape.options.schedule = false;  // a table decides for calls without one
  p.keep_probability = density;
  if (problem.layout == KeyLayout::compacted) {
    p.mask = bench::MaskShape::keys;
    shape.options.mask_layout = FLASHDMA_BWD_MASK_COMPACTED;
  } else if (problem.layout == KeyLayout::natural) {
    p.mask = bench::MaskShape::blocks;
    shape.options.mask_layout = FLASHDMA_BWD_MASK_NATURAL;
  } else {
    const auto keys = static_cast<double>(problem.seqlen_k);
    p.mask = problem.causal ? bench::MaskShape::top_w : bench::MaskShape::documents;
    // Of the pairs that causality leaves, the best w of s keys are 2 w/s - (w/s)^2.
    p.top_w = std::max<std::int64_t>(1, std::llround(keys * (1 - std::sqrt(1 - density))));
    p.width = std::max<std::int64_t>(1, std::llround(keys * density));
    const bool tile_bias = problem.bias == BiasKind::tile;
    const bool reorders_itself = automatic_layout(false, tile_bias, problem.seqlen_k).layout == KeyLayout::reordered;
    shape.options.mask_layout = reorders_itself ? FLASHDMA_BWD_MASK_AUTO : FLASHDMA_BWD_MASK_REORDERED;
  }
}

}  // namespace

Parsed<ProblemShape> shape_of(const Problem& problem) {
  ProblemShape shape;
  bench::Problem& p = shape.problem;
  p.batch = problem.batch;
  p.heads = problem.heads;
  p.heads_kv = problem.heads_kv;
  p.head_dim = problem.head_dim;
  p.seqlen_q = problem.seqlen_q;
  p.seqlen_k = problem.seqlen_k;
  p.bf16 = problem.data_type == DataType::bf16;
  p.causal = problem.causal;
  p.window = problem.window;
  p.deterministic = problem.deterministic;
  p.softcap = problem.softcap ? kSoftcap : 0;
  shape.options.flags = FLASHDMA_BWD_FLAG_TABLE_ONLY;  // nobody's environment changes what is timed
  if (problem.masked) set_mask(problem, shape);
  if (problem.bias == BiasKind::key_vector) p.bias = bench::BiasShape::key;
  if (problem.bias == BiasKind::tile) {
    p.bias = bench::BiasShape::tile;
    const bool can_copy = problem.seqlen_k % 8 == 0 && (!problem.masked || problem.layout == KeyLayout::natural);
    if (problem.bias_copies && !can_copy)
      return Parsed<ProblemShape>::failure(
          "bias_copies needs rows of the gradient of 16 bytes (sk a multiple of 8) and keys in their own order");
    shape.options.bias_of_all_heads = problem.bias_copies;
    shape.options.unaligned_bias = can_copy && !problem.bias_copies;
  }
  return shape;
}

Problem smaller_problem(const Problem& problem) {
  constexpr std::int64_t kMostRows = 640, kMostKvHeads = 2;
  Problem smaller = problem;
  const std::int64_t longest = std::max(problem.seqlen_q, problem.seqlen_k);
  const auto shortened = [&](std::int64_t length) {
    if (longest <= kMostRows) return length;
    // Multiples of 8 stay what they are, and nothing else becomes one.
    const std::int64_t scaled = std::max<std::int64_t>(length * kMostRows / longest / 8 * 8, 8);
    return scaled + length % 8;
  };
  smaller.seqlen_q = shortened(problem.seqlen_q);
  smaller.seqlen_k = shortened(problem.seqlen_k);
  // A window of all queries would be none.
  if (problem.window > 0) smaller.window = std::min(shortened(problem.window), smaller.seqlen_q - 1);
  smaller.batch = 1;
  smaller.heads_kv = std::min(problem.heads_kv, kMostKvHeads);
  smaller.heads = smaller.heads_kv * (problem.heads / problem.heads_kv);
  return smaller;
}

double operations(const Problem& problem) {
  return 10.0 * static_cast<double>(problem.batch * problem.heads) * static_cast<double>(problem.seqlen_q) *
         static_cast<double>(problem.seqlen_k) * problem.head_dim;
}

}  // namespace flashdma_bwd::tune
