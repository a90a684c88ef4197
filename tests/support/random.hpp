// A small random generator whose numbers are the same on every machine.
#pragma once

#include <cstdint>

namespace flashdma_bwd::testing {

/// Mixes the bits of a counter (the finaliser of splitmix64).
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(mix(seed)) {}
  std::uint64_t bits() { return mix(state_++); }
  /// In [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  /// In [0, n).
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(n)); }
  /// Nearly normal, mean 0, variance 1: the sum of four uniform numbers.
  double normal() {
    const std::uint64_t x = bits();
    const auto part = [x](int shift) { return static_cast<double>(x >> shift & 0xffffu) / 65535.0; };
    return (part(0) + part(16) + part(32) + part(48) - 2.0) * 1.7320508075688772;
  }

 private:
  std::uint64_t state_;
};

}  // namespace flashdma_bwd::testing
