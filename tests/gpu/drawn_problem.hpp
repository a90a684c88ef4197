// Problems drawn from all that the library computes: shapes, limits, masks, biases, modes and memory layouts at once.
#pragma once

#include <cstdint>

#include "support/problem.hpp"

namespace flashdma_bwd::testing {

/// The same problem for the same seed everywhere. Some 4 million pairs at most at head dim 64, and as much work at
/// others. Whatever is drawn is valid, but may have few active pairs or none.
ProblemSpec drawn_problem(std::uint64_t seed);

}  // namespace flashdma_bwd::testing
