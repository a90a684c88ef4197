// Polynomials for tanh of arguments below 1: floating-point multiplications and additions alone, which the host can
// run, too.
#pragma once

#include <cmath>

#include "common/host_device.hpp"

namespace flashdma_bwd {

// Each is x (1 + c1 x^2 + c2 x^4 + ...) with the least relative error over its range, which is given (Remez exchange in
// 40 digits). The first coefficient is held at 1, so that the relative error falls with x^2 where scores are small
// against their cap: what counts is the absolute error of a score, a part of the cap. In powers of a multiple of x
// every c keeps its digits; float32 adds less than 2e-7 (tests/kernels). `factor`, a power of 2, multiplies the result:
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
