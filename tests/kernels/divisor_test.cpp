// Division by multiplication.
#include "common/divisor.hpp"

#include <random>

#include "support/catch.hpp"

namespace {

using flashdma_bwd::Divisor;

TEST_CASE("a divisor divides as division does") {
  constexpr int kLargest = 0x7fffffff;
  const auto check = [](int divisor, int dividend) {
    if (Divisor(divisor).quotient(dividend) == dividend / divisor) return;
    CAPTURE(divisor, dividend);
    REQUIRE(Divisor(divisor).quotient(dividend) == dividend / divisor);
  };
  for (int divisor = 1; divisor <= 300; ++divisor)
    for (int dividend = 0; dividend <= 5000; ++dividend) check(divisor, dividend);
  std::mt19937 generator(7);
  for (int round = 0; round < 200000; ++round) {
    const int bits = std::uniform_int_distribution<int>(1, 31)(generator);
    const int divisor = std::uniform_int_distribution<int>(1, static_cast<int>((1u << bits) - 1))(generator);
    // Where quotients change, and at the ends.
    const int quotient = std::uniform_int_distribution<int>(0, kLargest / divisor)(generator);
    check(divisor, quotient * divisor);
    if (quotient > 0) check(divisor, quotient * divisor - 1);
    check(divisor, kLargest);
    check(divisor, std::uniform_int_distribution<int>(0, kLargest)(generator));
  }
  check(kLargest, kLargest);
  check(kLargest, kLargest - 1);
  REQUIRE(Divisor().quotient(kLargest) == kLargest);
}

}  // namespace
