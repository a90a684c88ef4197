// Normally distributed values that are the same on every run. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flashdma_bwd::bench {

/// The values of a seed. They repeat after about a million, an odd number, so that no two rows of a tensor are alike,
/// nor two of tensors with neighbouring seeds. Not for several threads at once.
class NormalSequence {
 public:
  static constexpr std::size_t kPeriod = (1u << 20) + 7;

  NormalSequence(std::uint64_t seed, float deviation);
  float operator[](std::size_t i) const { return deviation_ * values_[(i + offset_) % kPeriod]; }

  /// A period in 16 bits, from the first of the values that seeds share on: that of this seed's i-th value is at
  /// (i + offset()) % kPeriod. Rounded once for all seeds that share it, and kept.
  const std::vector<std::uint16_t>& rounded(bool bf16) const;
  std::size_t offset() const { return offset_; }

 private:
  std::size_t sequence_;
  const std::vector<float>& values_;
  std::size_t offset_;
  float deviation_;
};

}  // namespace flashdma_bwd::bench
