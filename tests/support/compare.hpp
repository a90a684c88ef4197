// How far two results of the same problem are apart.
#pragma once

#include <flashdma_bwd/flashdma_bwd.h>

#include <limits>
#include <string>
#include <vector>

#include "support/problem.hpp"

namespace flashdma_bwd::testing {

/// |a - b| / max(|b|, floor) in the Frobenius norm. NaN or infinity in `a` or `b` gives infinity, which passes no bar.
/// A zero denominator gives 0 if a is exactly zero, and infinity otherwise.
double relative_error(const std::vector<double>& a, const std::vector<double>& b, double floor = 0);

/// The gradients of a problem, widened: the four outputs in the orders of tensor_values and pair_values.
struct Gradients {
  std::vector<double> d_q, d_k, d_v, d_bias;
};

/// Reads the output buffers of `problem`.
Gradients read_gradients(const Problem& problem);

/// Runs the CPU backend on the problem's own buffers. Throws std::runtime_error with its message if it refuses.
Gradients reference_gradients(Problem& problem, int threads = 0);

/// The same gradients in double precision: what the rounding of outputs is an error of, too. The problem's buffers stay
/// as they are.
Gradients exact_gradients(const Problem& problem, int threads = 0);

/// Relative errors of the four gradients; 0 for one that is not wanted.
struct GradientErrors {
  double d_q = 0, d_k = 0, d_v = 0, d_bias = 0;
  double largest() const;  ///< infinity if any is NaN
  std::string text() const;
};

/// Gradients that nearly cancel are compared with the size of what cancels, not with what is left: a hundredth of the
/// size that the gradient has where nothing cancels (from |P|, |dO|, |V|, |K| and |Q|) is the smallest denominator.
GradientErrors gradient_errors(const Problem& problem, const Gradients& got, const Gradients& expected);

/// What no bar allows: gradients that must be exactly 0 and are not, of either sign. Empty, or the first of them. They
/// are dQ of rows without an active pair, which have an infinite lse, and of packed rows of no sequence; dK, dV and
/// dBias of keys that no query sees: those whose dV is exactly 0 in `expected`. Other gradients that are exactly 0
/// there have cancelled, as dS does where a row has one key, and need not cancel so where sums are rounded.
std::string nonzero_defect(const Problem& problem, const Gradients& got, const Gradients& expected);

/// The bar of the project for `largest`: 4e-3 in bf16, 6e-4 in fp16.
double error_bar(flashdma_bwd_data_type type);

}  // namespace flashdma_bwd::testing
