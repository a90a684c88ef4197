// Logsumexps for random tensors, without computing a forward. Pure.
#pragma once

#include <vector>

#include "problem.hpp"

namespace flashdma_bwd::bench {

/// float32 [b, h, sq]: what a row's logsumexp is near for normally distributed scores, so that P sums to about 1 over
/// its active keys; more where these are few, because P must not exceed 1.
std::vector<float> plausible_lse(const Problem& problem);

}  // namespace flashdma_bwd::bench
