// The float32 that lies in two bf16 columns of a product: both are finite, and it is the nearest such.
#include "common/statistic_terms.hpp"

#include <bit>
#include <cstdint>
#include <vector>

#include "support/catch.hpp"

using flashdma_bwd::kLargestTerm;
using flashdma_bwd::with_finite_halves;

namespace {

bool is_finite_bf16(std::uint32_t bits) {
  return (bits & 0x7f80u) != 0x7f80u;
}
bool has_finite_halves(std::uint32_t bits) {
  return is_finite_bf16(bits & 0xffffu) && is_finite_bf16(bits >> 16);
}

}  // namespace

TEST_CASE("an LSE among terms has finite halves and is the nearest such") {
  // All lower halves, below upper ones from zero to the largest.
  const auto largest = std::bit_cast<std::uint32_t>(kLargestTerm);
  std::vector<std::uint32_t> upper_halves = {0x0000u, 0x3f7fu, 0x3f80u, 0x4150u, 0x7f7eu, 0x8000u, 0xc1ffu, 0xff7eu};
  std::int64_t farthest = 0;
  for (const std::uint32_t upper : upper_halves)
    for (std::uint32_t lower = 0; lower <= 0xffffu; ++lower) {
      const std::uint32_t bits = upper << 16 | lower;
      const std::uint32_t chosen = with_finite_halves(bits);
      const std::int64_t distance = std::int64_t{chosen} - std::int64_t{bits};
      bool right = has_finite_halves(chosen);
      if (has_finite_halves(bits)) right = right && chosen == bits;
      // None between is finite, nor is one that lies nearer on the other side.
      const std::int64_t away = distance < 0 ? -distance : distance;
      for (std::int64_t step = 0; right && step < away; ++step)
        right = !has_finite_halves(static_cast<std::uint32_t>(bits + step)) &&
                !has_finite_halves(static_cast<std::uint32_t>(bits - step));
      if (!right) {
        CAPTURE(bits, chosen);
        FAIL("not the nearest with finite halves");
      }
      farthest = away > farthest ? away : farthest;
    }
  CHECK(farthest == 64);
  CHECK(with_finite_halves(largest) == largest);
  CHECK(with_finite_halves(0x80000000u | largest) == (0x80000000u | largest));
}
