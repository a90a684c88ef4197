// A polynomial for tanh of arguments below 1: floating-point multiplications and additions alone, which the host can
// run, too.
#pragma once

#include <cmath>

#include "common/host_device.hpp"

namespace flashdma_bwd {

/// tanh(twice / 2) for |twice| < 2, odd in `twice`.
///
/// x (1 + c1 x^2 + ... + c5 x^10) with the least relative error over 0 < x < 1 (Remez exchange in 40 digits): 6.63e-7.
/// With coefficients and arithmetic in float32 it is below 8e-7, and the absolute error below 6e-7 (tests/kernels).
/// The first coefficient is held at 1, so that the relative error falls with x^2 where scores are small against their
/// cap. In powers of 2 x every c keeps its digits.
FLASHDMA_HOST_DEVICE inline float tanh_of_half(float twice) {
  const float square = twice * twice;
  float ratio = fmaf(square, -1.52665018e-06f, 3.30203402e-05f);
  ratio = fmaf(square, ratio, -4.04439779e-04f);
  ratio = fmaf(square, ratio, 4.15265327e-03f);
  ratio = fmaf(square, ratio, -4.16628495e-02f);
  ratio = fmaf(square, ratio, 0.5f);
  return twice * ratio;
}

}  // namespace flashdma_bwd
