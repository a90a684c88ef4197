// How many pairs of a problem are active, in closed form: what a floor of its time counts without making its mask.
#pragma once

#include <cstdint>

#include "problem.hpp"

namespace flashdma_bwd::bench {

/// Pairs (query, key) of one batch and head that causality, aligned bottom-right, leaves, and of each query those with
/// the last `window` keys; 0: with all.
double visible_pairs(std::int64_t seqlen_q, std::int64_t seqlen_k, bool causal, std::int64_t window = 0);
double visible_pairs(const Problem& problem);

/// Pairs of one batch and head that mask and causality leave; the expectation where the mask is random.
double active_pairs(const Problem& problem);

}  // namespace flashdma_bwd::bench
