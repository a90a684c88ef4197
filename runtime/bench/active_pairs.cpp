// Active pairs in closed form. See active_pairs.hpp, and mask_shapes.cpp for the masks themselves.
#include "active_pairs.hpp"

#include <algorithm>

namespace flashdma_bwd::bench {
namespace {

/// 1 + 2 + ... + n.
double triangle(std::int64_t n) {
  return 0.5 * static_cast<double>(n) * (static_cast<double>(n) + 1);
}

double product(std::int64_t a, std::int64_t b) {
  return static_cast<double>(a) * static_cast<double>(b);
}

/// Queries that see a key where they see only keys up to their own: the last of them sees all.
std::int64_t seeing_queries(std::int64_t seqlen_q, std::int64_t seqlen_k) {
  return std::min(seqlen_q, seqlen_k);
}

/// Pairs where each query has the last `most` of the keys up to its own, or any `most` of them.
double limited_pairs(const Problem& problem, std::int64_t most) {
  return visible_pairs(problem.seqlen_q, problem.seqlen_k, true, most);
}

/// Keys of the documents of the positions 0 ... positions - 1, added up.
double document_pairs(const Problem& problem, std::int64_t positions) {
  const std::int64_t width = problem.width;
  if (problem.causal) {
    const std::int64_t documents = positions / width;
    return static_cast<double>(documents) * triangle(width) + triangle(positions % width);
  }
  const std::int64_t last_begin = (problem.seqlen_k - 1) / width * width;
  const std::int64_t last_keys = problem.seqlen_k - last_begin;
  const std::int64_t in_last = std::max<std::int64_t>(positions - last_begin, 0);
  return product(positions - in_last, width) + product(in_last, last_keys);
}

double pairs_of_documents(const Problem& problem) {
  const std::int64_t seeing = seeing_queries(problem.seqlen_q, problem.seqlen_k);
  double pairs = document_pairs(problem, problem.seqlen_k) - document_pairs(problem, problem.seqlen_k - seeing);
  // Queries before the first key belong to the first document.
  if (!problem.causal) pairs += product(problem.seqlen_q - seeing, std::min(problem.width, problem.seqlen_k));
  return pairs;
}

}  // namespace

double visible_pairs(std::int64_t seqlen_q, std::int64_t seqlen_k, bool causal, std::int64_t window) {
  if (!causal) return product(seqlen_q, seqlen_k);
  const std::int64_t seeing = seeing_queries(seqlen_q, seqlen_k);
  const std::int64_t fewest = seqlen_k - seeing + 1;
  if (window <= 0 || window >= seqlen_k) return triangle(seqlen_k) - triangle(fewest - 1);
  if (window < fewest) return product(seeing, window);
  return triangle(window) - triangle(fewest - 1) + product(seqlen_k - window, window);
}

double visible_pairs(const Problem& problem) {
  return visible_pairs(problem.seqlen_q, problem.seqlen_k, problem.causal, problem.window);
}

double active_pairs(const Problem& problem) {
  const double visible = visible_pairs(problem);
  switch (problem.mask) {
    case MaskShape::none:
      return visible;
    case MaskShape::top_w:
      return problem.causal ? limited_pairs(problem, problem.top_w)
                            : product(problem.seqlen_q, std::min(problem.top_w, problem.seqlen_k));
    case MaskShape::window:  // causal whether the problem is or not
      return limited_pairs(problem, problem.width + kWindowSinks);
    case MaskShape::documents:
      return pairs_of_documents(problem);
    case MaskShape::random:
    case MaskShape::keys:
    case MaskShape::blocks:
      return problem.keep_probability * visible;
  }
  return visible;
}

}  // namespace flashdma_bwd::bench
