// Polynomials for tanh of arguments below 1: floating-point multiplications and additions alone, which the host can
// run, too.
#pragma once

#include <cmath>
#include <limits>

#include "common/host_device.hpp"

namespace flashdma_bwd {

// Each is x (1 + c1 x^2 + c2 x^4 + ...) with the least relative error over its range, which is given (Remez exchange in
// 40 digits). The first coefficient is held at 1, so that the relative error falls with x^2 where scores are small
// against their cap: what counts is the absolute error of a score, a part of the cap. float32 adds less than 2e-7
// (tests/kernels).

/// tanh(scale y) times a factor, as an odd polynomial of y: coefficients that take the scale and the factor in, so that
/// no instruction multiplies y by it.
template <int kCoefficients>
struct TanhPolynomial {
  float coefficients[kCoefficients] = {};
  float end = 0;  ///< it holds for |y| below

  FLASHDMA_HOST_DEVICE float operator()(float y) const {
    const float square = y * y;
    float ratio = coefficients[kCoefficients - 1];
    for (int i = kCoefficients - 2; i >= 0; --i) ratio = fmaf(square, ratio, coefficients[i]);
    return y * ratio;
  }
};

/// That of x with coefficients `c` for |x| < `end`.
template <int kCoefficients>
TanhPolynomial<kCoefficients> tanh_polynomial(const double (&c)[kCoefficients], double end, double scale,
                                              double factor) {
  TanhPolynomial<kCoefficients> polynomial;
  double power = scale;
  for (int i = 0; i < kCoefficients; ++i, power *= scale * scale)
    polynomial.coefficients[i] = static_cast<float>(factor * c[i] * power);
  polynomial.end = scale == 0 ? std::numeric_limits<float>::infinity() : static_cast<float>(end / std::fabs(scale));
  return polynomial;
}

/// |x| < 1/6: 1.75e-5, so that a score is wrong by less than 3e-6 of the cap, which is for bf16.
inline TanhPolynomial<2> tanh_up_to_sixth(double scale, double factor = 1) {
  return tanh_polynomial({1.0, -0.330293911}, 1.0 / 6, scale, factor);
}
/// |x| < 1/3: 2.67e-6, and less than 9e-7 of the cap.
inline TanhPolynomial<3> tanh_up_to_third(double scale, double factor = 1) {
  return tanh_polynomial({1.0, -0.333063892, 0.125378604}, 1.0 / 3, scale, factor);
}

// Those of a multiple of x, in whose powers every c keeps its digits. `factor`, a power of 2, multiplies the result:
// where it is a constant it costs nothing.

/// tanh(sixfold / 6) for |sixfold| < 2, odd in `sixfold`; 2.67e-6.
FLASHDMA_HOST_DEVICE inline float tanh_of_sixth(float sixfold, float factor = 1.0f) {
  const float square = sixfold * sixfold;
  float ratio = fmaf(square, factor * 1.612379165e-05f, factor * -1.541962463e-03f);
  ratio = fmaf(square, ratio, factor * (1.0f / 6.0f));
  return sixfold * ratio;
}

/// tanh(twice / 2) for |twice| < 2, odd in `twice`; 6.63e-7.
FLASHDMA_HOST_DEVICE inline float tanh_of_half(float twice, float factor = 1.0f) {
  const float square = twice * twice;
  float ratio = fmaf(square, factor * -1.52665018e-06f, factor * 3.30203402e-05f);
  ratio = fmaf(square, ratio, factor * -4.04439779e-04f);
  ratio = fmaf(square, ratio, factor * 4.15265327e-03f);
  ratio = fmaf(square, ratio, factor * -4.16628495e-02f);
  ratio = fmaf(square, ratio, factor * 0.5f);
  return twice * ratio;
}

}  // namespace flashdma_bwd
