// Division by a number that is known long before the dividend: by a multiplication, for a GPU's division of integers is
// some 25 instructions.
//
// Source: Granlund and Montgomery, "Division by invariant integers using multiplication" (1994), figure 4.1, for
// dividends of 31 bits, whose sum with the high half of the product fits 32.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"

namespace flashdma_bwd {

/// Divides by a number from 1 to 2^31 - 1; by 1 if none is given.
class Divisor {
 public:
  constexpr Divisor() = default;
  constexpr explicit Divisor(int divisor) {
    while (std::int64_t{1} << shift_ < divisor) ++shift_;
    const std::uint64_t excess = (std::uint64_t{1} << shift_) - static_cast<std::uint64_t>(divisor);
    multiplier_ = static_cast<std::uint32_t>((excess << 32) / static_cast<std::uint64_t>(divisor) + 1);
  }

  /// `dividend`: not negative.
  FLASHDMA_HOST_DEVICE int quotient(int dividend) const {
    const auto number = static_cast<std::uint32_t>(dividend);
    const auto high = static_cast<std::uint32_t>(static_cast<std::uint64_t>(multiplier_) * number >> 32);
    return static_cast<int>((high + number) >> shift_);
  }

 private:
  std::uint32_t multiplier_ = 1;
  int shift_ = 0;
};

}  // namespace flashdma_bwd
