// A few long sequences, each at many places.
#include "normal_sequence.hpp"

#include <array>
#include <random>

namespace flashdma_bwd::bench {
namespace {

/// Neighbouring seeds have sequences of their own: from places in the same one, some row of Q would be a row of K.
const std::vector<float>& sequence_of(std::uint64_t seed) {
  constexpr std::size_t kSequences = 16;
  static std::array<std::vector<float>, kSequences> sequences;
  std::vector<float>& values = sequences[seed % kSequences];
  if (values.empty()) {
    std::mt19937_64 random(seed % kSequences + 1);
    std::normal_distribution<float> normal;
    values.resize(NormalSequence::kPeriod);
    for (float& value : values) value = normal(random);
  }
  return values;
}

}  // namespace

NormalSequence::NormalSequence(std::uint64_t seed, float deviation)
    : values_(sequence_of(seed)), offset_(seed * 104729 % kPeriod), deviation_(deviation) {}

}  // namespace flashdma_bwd::bench
