// The polynomials that stand in for tanh of less than 1, against double precision.
#include "common/tanh_polynomial.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "support/catch.hpp"

namespace {

/// The other factor, beside 1, that they are asked for.
constexpr float kFactor = 128.0f;

/// A polynomial, what it multiplies tanh's argument by, and its bounds in exact arithmetic and in float32.
struct Polynomial {
  const char* name;
  float (*function)(float, float);
  float multiple;
  double relative_error;
};
float up_to_sixth(float twelvefold, float factor) {
  static const auto plain = flashdma_bwd::tanh_up_to_sixth(1.0 / 12);
  static const auto scaled = flashdma_bwd::tanh_up_to_sixth(1.0 / 12, kFactor);
  return factor == 1.0f ? plain(twelvefold) : scaled(twelvefold);
}
float up_to_third(float sixfold, float factor) {
  static const auto plain = flashdma_bwd::tanh_up_to_third(1.0 / 6);
  static const auto scaled = flashdma_bwd::tanh_up_to_third(1.0 / 6, kFactor);
  return factor == 1.0f ? plain(sixfold) : scaled(sixfold);
}
constexpr Polynomial kPolynomials[] = {{"tanh_up_to_sixth", up_to_sixth, 12.0f, 1.747e-5},
                                       {"tanh_up_to_third", up_to_third, 6.0f, 2.67e-6},
                                       {"tanh_of_sixth", flashdma_bwd::tanh_of_sixth, 6.0f, 2.67e-6},
                                       {"tanh_of_half", flashdma_bwd::tanh_of_half, 2.0f, 6.63e-7}};
/// What float32 adds to it.
constexpr double kRoundings = 2e-7;

struct Errors {
  double relative = 0;
};

/// The largest errors over the floats from `first` up to `end`, of which each `stride`-th is taken.
Errors largest_errors(const Polynomial& polynomial, float first, float end, std::uint32_t stride) {
  Errors worst;
  for (auto bits = std::bit_cast<std::uint32_t>(first); bits < std::bit_cast<std::uint32_t>(end); bits += stride) {
    const float argument = std::bit_cast<float>(bits);
    const double exact = std::tanh(static_cast<double>(argument) / static_cast<double>(polynomial.multiple));
    const double error = std::abs(static_cast<double>(polynomial.function(argument, 1.0f)) - exact);
    worst.relative = std::max(worst.relative, error / exact);
  }
  return worst;
}

}  // namespace

TEST_CASE("the polynomials for tanh keep their error bounds at every float32 below their end") {
  for (const Polynomial& polynomial : kPolynomials) {
    INFO(polynomial.name);
    // Every float of the eight binades where the polynomial has more than two terms that count.
    const Errors errors = largest_errors(polynomial, 0x1p-7f, 2.0f, 1);
    CHECK(errors.relative < polynomial.relative_error + kRoundings);
    CHECK(errors.relative > polynomial.relative_error * 0.9);  // the bound is that of the polynomial
  }
}

TEST_CASE("the polynomials for tanh are as good as float32 where their argument is small") {
  // Below, tanh is the argument but for less than a rounding; half an ulp is a relative error of 6e-8.
  for (const Polynomial& polynomial : kPolynomials) {
    INFO(polynomial.name);
    const Errors errors = largest_errors(polynomial, std::numeric_limits<float>::min() * 16, 0x1p-7f, 997);
    CHECK(errors.relative < kRoundings);
  }
}

TEST_CASE("the polynomials for tanh are odd, stay below 1 and keep zeros") {
  for (const Polynomial& polynomial : kPolynomials) {
    INFO(polynomial.name);
    for (float x = 0x1p-20f; x < 2.0f; x *= 1.001f) {
      CHECK(polynomial.function(-x, 1.0f) == -polynomial.function(x, 1.0f));
      CHECK(std::abs(polynomial.function(x, 1.0f)) < 1.0f);
    }
    CHECK(polynomial.function(0.0f, 1.0f) == 0.0f);
    CHECK(std::signbit(polynomial.function(-0.0f, 1.0f)));
  }
}

TEST_CASE("a factor that is a power of 2 changes nothing of tanh's polynomials but the exponent") {
  for (const Polynomial& polynomial : kPolynomials) {
    INFO(polynomial.name);
    for (float x = 0x1p-20f; x < 2.0f; x *= 1.01f)
      CHECK(polynomial.function(x, kFactor) == kFactor * polynomial.function(x, 1.0f));
  }
}

TEST_CASE("the short polynomials of tanh take any scale in, and hold up to its end") {
  const auto check = [](const auto& polynomial, double scale, double end, double bound) {
    CAPTURE(scale, end);
    CHECK(std::abs(static_cast<double>(polynomial.end) * std::abs(scale) - end) < 1e-6);
    for (float part = -1.0f; part <= 1.0f; part += 0.01f) {
      const float y = part * polynomial.end;
      const double exact = std::tanh(scale * static_cast<double>(y));
      CHECK(std::abs(static_cast<double>(polynomial(y)) - exact) <= std::abs(exact) * (bound + kRoundings));
    }
  };
  // Of scores of 16 bits and caps from 1e-3 to 1e6.
  for (const double scale : {1e-7, 1.0 / (16 * 50), 0.125 / 30, -0.125 / 30, 1.0, 1e3}) {
    check(flashdma_bwd::tanh_up_to_sixth(scale), scale, 1.0 / 6, 1.747e-5);
    check(flashdma_bwd::tanh_up_to_third(scale), scale, 1.0 / 3, 2.67e-6);
  }
  CHECK(flashdma_bwd::tanh_up_to_third(0.0).end == std::numeric_limits<float>::infinity());
  CHECK(flashdma_bwd::tanh_up_to_third(0.0)(5.0f) == 0.0f);
}
