// Norms and bars.
#include "support/compare.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <stdexcept>

#include "reference/reference_backward.hpp"

namespace flashdma_bwd::testing {

double relative_error(const std::vector<double>& a, const std::vector<double>& b, double floor) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return kInfinity;
  double difference = 0, reference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return kInfinity;
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    reference += b[i] * b[i];
  }
  const double denominator = std::max(std::sqrt(reference), floor);
  if (difference == 0) return 0;
  return denominator > 0 ? std::sqrt(difference) / denominator : kInfinity;
}

Gradients read_gradients(const Problem& problem) {
  const flashdma_bwd_arguments& a = problem.arguments();
  Gradients gradients;
  gradients.d_q = tensor_values(a, a.d_q, problem.query_rows(), a.heads);
  gradients.d_k = tensor_values(a, a.d_k, problem.key_rows(), a.heads_kv);
  gradients.d_v = tensor_values(a, a.d_v, problem.key_rows(), a.heads_kv);
  if (a.d_bias.data != nullptr) gradients.d_bias = pair_values(a.d_bias);
  return gradients;
}

Gradients reference_gradients(Problem& problem, int threads) {
  problem.poison_outputs();
  std::string message;
  if (reference_backward(problem.arguments_with_bytes(), threads, message) != FLASHDMA_BWD_OK)
    throw std::runtime_error(message);
  return read_gradients(problem);
}

Gradients exact_gradients(const Problem& problem, int threads) {
  flashdma_bwd_arguments a = problem.arguments_with_bytes();
  // Without gaps, in the orders of tensor_values and pair_values. What is not written is no number.
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const std::int64_t batches = a.cu_seqlens_q == nullptr ? a.batch : 1;
  const auto prepare = [&](std::vector<double>& values, flashdma_bwd_tensor& tensor, std::int64_t rows,
                           std::int64_t heads) {
    values.assign(static_cast<std::size_t>(batches * rows * heads * a.head_dim), kNone);
    tensor = {values.data(), rows * heads * a.head_dim, heads * a.head_dim, a.head_dim};
  };
  Gradients gradients;
  prepare(gradients.d_q, a.d_q, problem.query_rows(), a.heads);
  prepare(gradients.d_k, a.d_k, problem.key_rows(), a.heads_kv);
  prepare(gradients.d_v, a.d_v, problem.key_rows(), a.heads_kv);
  if (a.d_bias.data != nullptr) {
    flashdma_bwd_pair_tensor& t = a.d_bias;
    gradients.d_bias.assign(static_cast<std::size_t>(t.batch * t.heads * t.rows * t.columns), kNone);
    t.data = gradients.d_bias.data();
    t.stride_column = 1;
    t.stride_row = t.columns;
    t.stride_head = t.rows * t.columns;
    t.stride_batch = t.heads * t.rows * t.columns;
  }
  std::string message;
  if (reference_backward(a, threads, message, OutputFormat::float64) != FLASHDMA_BWD_OK)
    throw std::runtime_error(message);
  return gradients;
}

double GradientErrors::largest() const {
  double largest = 0;
  for (double error : {d_q, d_k, d_v, d_bias}) {
    if (std::isnan(error)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, error);
  }
  return largest;
}

std::string GradientErrors::text() const {
  std::ostringstream text;
  text << "dQ " << d_q << ", dK " << d_k << ", dV " << d_v << ", dBias " << d_bias;
  return text.str();
}

GradientErrors gradient_errors(const Problem& problem, const Gradients& got, const Gradients& expected) {
  constexpr double kCancelled = 0.01;
  const flashdma_bwd_arguments& a = problem.arguments();
  const Problem::Magnitudes& size = problem.magnitudes();
  const double root_d = std::sqrt(static_cast<double>(a.head_dim));
  const double scale = a.scale != 0 ? std::fabs(static_cast<double>(a.scale)) : 1 / root_d;
  const double score_gradient = problem.probability_norm() * root_d * size.d_out * size.v;  // |dS|
  GradientErrors errors;
  errors.d_q = relative_error(got.d_q, expected.d_q, kCancelled * scale * score_gradient * root_d * size.k);
  errors.d_k = relative_error(got.d_k, expected.d_k, kCancelled * scale * score_gradient * root_d * size.q);
  errors.d_v = relative_error(got.d_v, expected.d_v, kCancelled * problem.probability_norm() * root_d * size.d_out);
  errors.d_bias = relative_error(got.d_bias, expected.d_bias, kCancelled * score_gradient);
  return errors;
}

double error_bar(flashdma_bwd_data_type type) {
  return type == FLASHDMA_BWD_FP16 ? 6e-4 : 4e-3;
}

}  // namespace flashdma_bwd::testing
