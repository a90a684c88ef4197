// The product by which S and dP become less by LSE and D: a step of the reduction, whose columns are the StatisticTerms
// of the queries.
#pragma once

#include "common/statistic_terms.hpp"
#include "hopper/consumer_warp.cuh"
#include "hopper/wgmma.cuh"

namespace flashdma_bwd::hopper {

/// The A operand, the same for all keys. A lane's first two words have columns 2 (lane % 4) and the next of its keys;
/// in the columns of the others the terms are read once more.
using StatisticOperand = std::uint32_t[4];

/// -1 in one column, of two that lie together.
inline constexpr std::uint32_t kFirstColumn = 0xbf80;
inline constexpr std::uint32_t kSecondColumn = kFirstColumn << 16;

__device__ __forceinline__ void select_columns(StatisticOperand& operand, std::uint32_t word) {
  operand[0] = operand[1] = word;
  operand[2] = operand[3] = 0;
}
/// What subtracts D.
__device__ __forceinline__ void select_dot(StatisticOperand& operand) {
  const int pair = lane() % 4;
  select_columns(operand, pair == 0 ? kFirstColumn | kSecondColumn : pair == 1 ? kFirstColumn : 0);
}
/// What subtracts LSE / scale.
__device__ __forceinline__ void select_lse(StatisticOperand& operand) {
  const int pair = lane() % 4;
  select_columns(operand, pair == 2 ? kFirstColumn | kSecondColumn : pair == 3 ? kFirstColumn : 0);
}

/// Issues the product of an operand and the terms of kQueries queries at a shared address.
template <int kQueries, int kCount>
__device__ __forceinline__ void start_statistic_product(float (&scores)[kCount], const StatisticOperand& operand,
                                                        std::uint32_t terms) {
  static_assert(kCount == kQueries / 2);
  // Without a swizzle: eight queries' 16 bytes lie together, the next eight queries' 128 bytes further, and the next
  // eight columns, which are the same again, at a distance of 0.
  constexpr std::uint32_t kHigh = 8 * sizeof(StatisticTerms) >> 4;
  const std::uint64_t b = std::uint64_t{kHigh} << 32 | (terms & 0x3ffffu) >> 4;
  ptx::Wgmma<kQueries, true>::template rs<false, false>(scores, operand, b);
}

}  // namespace flashdma_bwd::hopper
