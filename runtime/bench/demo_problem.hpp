// The demo's problem in host memory: causal attention with a key-vector bias and a top-w mask, with its forward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <flashdma_bwd/flashdma_bwd.hpp>
#include <vector>

namespace flashdma_bwd::bench {

/// bf16 tensors as 16-bit patterns, and what the forward leaves.
struct DemoProblem {
  static constexpr std::int64_t kHeads = 4;
  static constexpr std::int64_t kHeadsKv = 2;
  static constexpr std::int64_t kHeadDim = 64;

  explicit DemoProblem(std::int64_t seqlen);

  /// Sizes, flags and strides; the caller sets the pointers, or takes them from `host_arguments`.
  Arguments shapes() const;
  /// Arguments whose pointers are these vectors.
  Arguments host_arguments();

  /// sum(dO * O) in double precision, with d_out as it is and the other inputs moved by `step` along `direction`.
  double loss(const struct DemoDirection& direction, double step) const;

  std::int64_t seqlen;
  std::vector<std::uint16_t> q, k, v, out, d_out, d_q, d_k, d_v, bias, d_bias;
  std::vector<std::uint8_t> mask;
  std::vector<float> lse;
};

/// A change of all differentiable inputs at once.
struct DemoDirection {
  std::vector<double> q, k, v, bias;
};

/// A random direction, the same for the same problem size.
DemoDirection random_direction(const DemoProblem& problem);

/// The gradients' inner product with a direction: what the loss changes by, per unit of `step`.
double directional_derivative(const DemoProblem& problem, const DemoDirection& direction);

/// |a - b| / |b| of two bf16 tensors, Euclidean norms.
double relative_error(const std::vector<std::uint16_t>& a, const std::vector<std::uint16_t>& b);

}  // namespace flashdma_bwd::bench
