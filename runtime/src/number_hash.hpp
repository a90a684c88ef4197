// A hash of numbers.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace flashdma_bwd {

/// The finaliser of splitmix64: every bit of the input goes into every bit of the output.
constexpr std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

constexpr std::uint64_t number_hash(std::initializer_list<std::uint64_t> numbers) {
  std::uint64_t hash = 0;
  for (const std::uint64_t number : numbers) hash = mixed((hash + 0x9e3779b97f4a7c15u) ^ number);
  return hash;
}

}  // namespace flashdma_bwd
