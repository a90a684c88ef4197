// From a row's number of active keys.
#include "plausible_lse.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace flashdma_bwd::bench {
namespace {

/// Above the scores of normally distributed tensors.
constexpr double kLeast = 6;

}  // namespace

std::vector<float> plausible_lse(const Problem& problem) {
  std::vector<float> row(static_cast<std::size_t>(problem.seqlen_q));
  for (std::int64_t i = 0; i < problem.seqlen_q; ++i) {
    std::int64_t keys = problem.seqlen_k;
    if (problem.causal) keys = std::clamp<std::int64_t>(i + 1 + problem.seqlen_k - problem.seqlen_q, 1, keys);
    if (problem.window > 0) keys = std::min(keys, problem.window);
    if (problem.mask == MaskShape::top_w) keys = std::min(keys, problem.top_w);
    if (problem.mask == MaskShape::window || problem.mask == MaskShape::documents) keys = std::min(keys, problem.width);
    const double kept =
        problem.mask == MaskShape::random || problem.mask == MaskShape::keys || problem.mask == MaskShape::blocks
            ? problem.keep_probability
            : 1;
    row[static_cast<std::size_t>(i)] =
        static_cast<float>(std::max(std::log(std::max(1.0, kept * static_cast<double>(keys))) + 0.5, kLeast));
  }
  std::vector<float> lse;
  lse.reserve(row.size() * static_cast<std::size_t>(problem.batch * problem.heads));
  for (std::int64_t head = 0; head < problem.batch * problem.heads; ++head)
    lse.insert(lse.end(), row.begin(), row.end());
  return lse;
}

}  // namespace flashdma_bwd::bench
