// A few long sequences, each at many places.
#include "normal_sequence.hpp"

#include <array>
#include <map>
#include <random>
#include <tuple>

#include "reference/number_formats.hpp"

namespace flashdma_bwd::bench {
namespace {

/// Neighbouring seeds have sequences of their own: from places in the same one, some row of Q would be a row of K.
constexpr std::size_t kSequences = 16;

const std::vector<float>& values_of(std::size_t sequence) {
  static std::array<std::vector<float>, kSequences> sequences;
  std::vector<float>& values = sequences[sequence];
  if (values.empty()) {
    std::mt19937_64 random(sequence + 1);
    std::normal_distribution<float> normal;
    values.resize(NormalSequence::kPeriod);
    for (float& value : values) value = normal(random);
  }
  return values;
}

}  // namespace

NormalSequence::NormalSequence(std::uint64_t seed, float deviation)
    : sequence_(seed % kSequences),
      values_(values_of(sequence_)),
      offset_(seed * 104729 % kPeriod),
      deviation_(deviation) {}

const std::vector<std::uint16_t>& NormalSequence::rounded(bool bf16) const {
  static std::map<std::tuple<std::size_t, float, bool>, std::vector<std::uint16_t>> periods;
  std::vector<std::uint16_t>& period = periods[{sequence_, deviation_, bf16}];
  if (period.empty()) {
    period.reserve(kPeriod);
    for (const float value : values_) {
      const auto scaled = static_cast<double>(deviation_ * value);
      period.push_back(bf16 ? bf16_from_double(scaled) : fp16_from_double(scaled));
    }
  }
  return period;
}

}  // namespace flashdma_bwd::bench
