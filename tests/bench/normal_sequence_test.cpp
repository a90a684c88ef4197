// What tensors on the device are filled with.
#include "normal_sequence.hpp"

#include <cstdint>
#include <set>
#include <vector>

#include "reference/number_formats.hpp"
#include "support/catch.hpp"

using namespace flashdma_bwd;
using bench::NormalSequence;

TEST_CASE("a seed's values in 16 bits are its values, rounded", "[normal-sequence]") {
  for (const std::uint64_t seed : {0, 1, 2024, 2031, 2040})
    for (const float deviation : {1.0f, 0.1f})
      for (const bool bf16 : {false, true}) {
        const NormalSequence values(seed, deviation);
        const std::vector<std::uint16_t>& rounded = values.rounded(bf16);
        REQUIRE(rounded.size() == NormalSequence::kPeriod);
        for (std::size_t i = 0; i < 2 * NormalSequence::kPeriod; i += 12345) {
          const auto value = static_cast<double>(values[i]);
          CHECK(rounded[(i + values.offset()) % NormalSequence::kPeriod] ==
                (bf16 ? bf16_from_double(value) : fp16_from_double(value)));
        }
      }
}

TEST_CASE("tensors of a problem begin with values of their own", "[normal-sequence]") {
  std::set<float> first;
  for (std::uint64_t seed = 2024; seed < 2024 + 256; ++seed) first.insert(NormalSequence(seed, 1)[0]);
  CHECK(first.size() == 256);
}
