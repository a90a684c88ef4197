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

 private:
  const std::vector<float>& values_;
  std::size_t offset_;
  float deviation_;
};

}  // namespace flashdma_bwd::bench
