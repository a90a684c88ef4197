// P as two CTAs hand it over, packed and unpacked on the host: fp16 problems, whose words are made of bits alone.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <random>

#include "common/launch_kernel.hpp"
// The other headers need what that one defines.
#include "hopper/owners/probability_words.cuh"
#include "support/catch.hpp"

namespace {

using namespace flashdma_bwd;

constexpr KernelConfig config_of(int head_dim, bool softcap) {
  return {
      Architecture::sm90, head_dim, DataType::fp16,
      BiasKind::none,     softcap,  {.family = KernelFamily::hopper, .block_m = 64, .block_n = 128, .cta_pair = true}};
}
using Words = hopper::owners::ProbabilityWords<config_of(192, false)>;
using WeightWords = hopper::owners::ProbabilityWords<config_of(256, true)>;

struct Pair {
  double first, second;
};

/// What the key owner gets of two probabilities.
template <class AnyWords = Words>
Pair handed_over(float first, float second, float scale = 1.0f) {
  const float2 unpacked = AnyWords::unpack(AnyWords::pack(first * scale, second * scale));
  return {static_cast<double>(unpacked.x) * static_cast<double>(AnyWords::kUnit),
          static_cast<double>(unpacked.y) * static_cast<double>(AnyWords::kUnit)};
}

/// Eleven bits of the fraction are kept and the rest is cut, which the factor before it spreads over both signs.
constexpr double kCut = 0x1p-11, kRaised = 0.7213 * 0x1p-12, kSmallest = 0x1p-31;

/// Whether a number is what a probability may have become.
bool is_near(double got, float probability) {
  const auto exact = static_cast<double>(probability);
  const double room = 0x1p-22 * exact;  // of the float32 operations
  return got <= exact * (1 + kRaised) + kSmallest + room && got >= exact * (1 + kRaised) * (1 - kCut) - room;
}

TEST_CASE("a probability of 0 is handed over as 0, whatever its neighbour is") {
  for (float other : {0.0f, 0x1p-31f, 0.3f, 1.0f, 1.999f}) {
    CHECK(handed_over(0.0f, other).first == 0.0);
    CHECK(handed_over(other, 0.0f).second == 0.0);
    CHECK(handed_over<WeightWords>(0.0f, other, kPackedWeightScale).first == 0.0);
  }
}

TEST_CASE("probabilities below 2 keep 12 significant bits, and neither of a word touches the other") {
  std::mt19937 generator(11);
  std::uniform_real_distribution<float> exponent(-31.0f, 0.999f);
  double sum = 0, worst = 0;
  constexpr int kRounds = 200000;
  for (int round = 0; round < kRounds; ++round) {
    const float first = std::exp2(exponent(generator)), second = std::exp2(exponent(generator));
    const Pair got = handed_over(first, second);
    INFO(first << " and " << second << " became " << got.first << " and " << got.second);
    REQUIRE(is_near(got.first, first));
    REQUIRE(is_near(got.second, second));
    const Pair weights = handed_over<WeightWords>(first, second, kPackedWeightScale);
    REQUIRE(is_near(weights.first, first));
    REQUIRE(is_near(weights.second, second));
    if (first < 0x1p-16f) continue;  // the smallest number, which is added, is part of those below
    const double error = got.first / static_cast<double>(first) - 1;
    sum += error;
    worst = std::max(worst, std::abs(error));
  }
  CHECK(worst < 1.29 * 0x1p-12);
  CHECK(worst > 1.2 * 0x1p-12);  // the bound is that of the format
  CHECK(std::abs(sum / kRounds) < 0.02 * 0x1p-12);
  // Exactly 1 is what a row with one key has.
  CHECK(is_near(handed_over(1.0f, 1.0f).first, 1.0f));
}

TEST_CASE("probabilities that vanish beside 1 become no more than the smallest number") {
  for (float small : {0x1p-126f, 0x1p-60f, 0x1p-32f}) {
    const Pair got = handed_over(small, 1.0f);
    CHECK((got.first >= 0 && got.first <= 2 * kSmallest));
    CHECK(is_near(got.second, 1.0f));
  }
}

// The limit that the C header states: only an LSE that is too small makes such probabilities.
TEST_CASE("a probability of 2 and more is lost, and its neighbour is not") {
  for (float lost : {2.0f, 2.5f, 3.999f, 4.0f, 1000.0f}) {
    const Pair got = handed_over(lost, 0.25f);
    INFO(lost << " became " << got.first);
    CHECK((got.first >= 0 && got.first <= static_cast<double>(lost) * 0x1p-31));
    CHECK(is_near(got.second, 0.25f));
    CHECK(handed_over(0.25f, lost).second <= static_cast<double>(lost) * 0x1p-31);
  }
  // The factor that spreads the error takes the last numbers below 2 there.
  constexpr auto kEnd = static_cast<float>(2 / (1 + kRaised));
  CHECK(is_near(handed_over(kEnd * (1 - 0x1p-21f), 0.0f).first, kEnd));
  CHECK(handed_over(kEnd * (1 + 0x1p-21f), 0.0f).first < 0x1p-30);
}

}  // namespace
