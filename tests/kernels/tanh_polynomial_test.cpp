// The polynomial that stands in for tanh below 1, against double precision.
#include "common/tanh_polynomial.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "support/catch.hpp"

using flashdma_bwd::tanh_of_half;

namespace {

struct Errors {
  double absolute = 0;
  double relative = 0;
};

/// The largest errors over the floats from `first` up to `end`, of which each `stride`-th is taken.
Errors largest_errors(float first, float end, std::uint32_t stride) {
  Errors worst;
  for (auto bits = std::bit_cast<std::uint32_t>(first); bits < std::bit_cast<std::uint32_t>(end); bits += stride) {
    const float twice = std::bit_cast<float>(bits);
    const double exact = std::tanh(0.5 * static_cast<double>(twice));
    const double error = std::abs(static_cast<double>(tanh_of_half(twice)) - exact);
    worst.absolute = std::max(worst.absolute, error);
    worst.relative = std::max(worst.relative, error / exact);
  }
  return worst;
}

}  // namespace

TEST_CASE("the polynomial for tanh keeps its error bounds at every float32 below its end") {
  // Every float of the eight binades where the polynomial has more than two terms that count.
  const Errors errors = largest_errors(0x1p-7f, 2.0f, 1);
  CHECK(errors.absolute < 6e-7);
  CHECK(errors.relative < 8e-7);
}

TEST_CASE("the polynomial for tanh is as good as float32 where its argument is small") {
  // Below, tanh is a half of the argument but for less than a rounding; half an ulp is a relative error of 6e-8.
  const Errors errors = largest_errors(std::numeric_limits<float>::min() * 4, 0x1p-7f, 997);
  CHECK(errors.relative < 1.3e-7);
}

TEST_CASE("the polynomial for tanh is odd, stays below 1 and keeps zeros") {
  for (float twice = 0x1p-20f; twice < 2.0f; twice *= 1.001f) {
    CHECK(tanh_of_half(-twice) == -tanh_of_half(twice));
    CHECK(std::abs(tanh_of_half(twice)) < 1.0f);
  }
  CHECK(tanh_of_half(0.0f) == 0.0f);
  CHECK(std::signbit(tanh_of_half(-0.0f)));
}
