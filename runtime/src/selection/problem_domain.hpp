// Bounds of the problems that can be asked for: what the arguments' rules refuse, no row of a table needs to decide.
#pragma once

#include <cstdint>

namespace flashdma_bwd {

/// Queries or keys of a sequence at most: kernels add two positions, or a position and a tile, in 32 bits.
inline constexpr std::int64_t kLongestSequence = (std::int64_t{1} << 30) - 128;

}  // namespace flashdma_bwd
