// A 64 x 64 matrix of bits in the registers of a warp, and its transposition.
#pragma once

#include <cstdint>

namespace flashdma_bwd {

/// Two rows of a warp's 64 x 64 bits. Lane 4 g + q has rows 16 q + g and 16 q + 8 + g: as four lanes that read 16
/// columns each of 8 rows at a time come to have them.
struct BitRows {
  std::uint32_t low[2];   ///< columns 0 ... 31
  std::uint32_t high[2];  ///< columns 32 ... 63

  static __device__ __forceinline__ int row(int lane, int half) { return lane % 4 * 16 + half * 8 + lane / 4; }
  __device__ __forceinline__ std::uint64_t word(int half) const { return std::uint64_t{high[half]} << 32 | low[half]; }
  __device__ __forceinline__ void set(int half, std::uint64_t word) {
    low[half] = static_cast<std::uint32_t>(word);
    high[half] = static_cast<std::uint32_t>(word >> 32);
  }
};

/// Exchanges bit `kBit` of the row's number, which is bit `kLane` of the lane's, with the same bit of the column's, for
/// columns that lie in one word: kBit < 5. Two words make one word of what leaves the lane.
template <int kBit, int kLane>
__device__ __forceinline__ void exchange_within_words(std::uint32_t& a, std::uint32_t& b, int lane) {
  constexpr int kShift = 1 << kBit;
  constexpr std::uint32_t kLower = 0xffffffffu / ((1u << kShift) + 1u);  // columns whose bit is 0
  const bool upper = (lane & kLane) != 0;
  const int of_lower = upper ? 0 : kShift;
  const int of_upper = upper ? kShift : 0;
  const std::uint32_t kept = upper ? ~kLower : kLower;
  const std::uint32_t sent = (a >> of_lower & kLower) | (b << of_upper & ~kLower);
  const std::uint32_t received = __shfl_xor_sync(0xffffffffu, sent, kLane);
  a = (a & kept) | (received << of_lower & ~kept);
  b = (b & kept) | (received >> of_upper & ~kept);
}

/// The columns in which any row has a bit. All lanes of the warp.
__device__ __forceinline__ std::uint64_t columns_with_bits(const BitRows& m) {
  const std::uint64_t high = __reduce_or_sync(0xffffffffu, m.high[0] | m.high[1]);
  return high << 32 | __reduce_or_sync(0xffffffffu, m.low[0] | m.low[1]);
}

/// Rows become columns. All lanes of the warp.
__device__ __forceinline__ void transpose_bits(BitRows& m, int lane) {
  // Bits 5 and 4 of a row's number are the lane's bits 1 and 0, bit 3 is the half, bits 2, 1, 0 are the lane's 4, 3, 2.
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool upper = (lane & 2) != 0;
    const std::uint32_t received = __shfl_xor_sync(0xffffffffu, upper ? m.low[half] : m.high[half], 2);
    if (upper)
      m.low[half] = received;
    else
      m.high[half] = received;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) exchange_within_words<4, 1>(m.low[half], m.high[half], lane);
  const auto exchange_halves = [](std::uint32_t(&v)[2]) {
    const std::uint32_t first = (v[0] & 0x00ff00ffu) | (v[1] & 0x00ff00ffu) << 8;
    v[1] = (v[0] >> 8 & 0x00ff00ffu) | (v[1] & 0xff00ff00u);
    v[0] = first;
  };
  exchange_halves(m.low);
  exchange_halves(m.high);
#pragma unroll
  for (int half = 0; half < 2; ++half) exchange_within_words<2, 16>(m.low[half], m.high[half], lane);
#pragma unroll
  for (int half = 0; half < 2; ++half) exchange_within_words<1, 8>(m.low[half], m.high[half], lane);
#pragma unroll
  for (int half = 0; half < 2; ++half) exchange_within_words<0, 4>(m.low[half], m.high[half], lane);
}

}  // namespace flashdma_bwd
