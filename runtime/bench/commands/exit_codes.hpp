// What flashdma-bench tells the program that called it.
#pragma once

namespace flashdma_bwd::bench {

inline constexpr int kFine = 0;
inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;

}  // namespace flashdma_bwd::bench
