// Norms and bars.
#include "support/compare.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
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

namespace {

/// Whether no query sees a key: by its exact dV, of a KV head.
class UnseenKeys {
 public:
  UnseenKeys(const Problem& problem, const Gradients& expected)
      : a_(problem.arguments()), rows_(problem.key_rows()), d_v_(expected.d_v) {}

  bool row(std::int64_t row, std::int64_t head_kv) const {
    const auto begin = d_v_.begin() + static_cast<std::ptrdiff_t>((row * a_.heads_kv + head_kv) * a_.head_dim);
    return std::all_of(begin, begin + a_.head_dim, [](double value) { return value == 0; });
  }
  /// By its position in a sequence, which has it or not.
  bool key(std::int64_t batch, std::int64_t head_kv, std::int64_t key) const {
    if (a_.cu_seqlens_k == nullptr) return row(batch * rows_ + key, head_kv);
    const std::int64_t begin = a_.cu_seqlens_k[batch];
    return begin + key >= a_.cu_seqlens_k[batch + 1] || row(begin + key, head_kv);
  }

 private:
  const flashdma_bwd_arguments& a_;
  std::int64_t rows_;
  const std::vector<double>& d_v_;
};

/// Whether a row of Q's tensor, of all batches, sees no key.
bool empty_row(const Problem& problem, std::int64_t row, std::int64_t head) {
  const flashdma_bwd_arguments& a = problem.arguments();
  if (a.cu_seqlens_q != nullptr) {
    if (row >= a.cu_seqlens_q[a.batch]) return true;
    return std::isinf(a.lse[head * a.lse_stride_head + row * a.lse_stride_row]);
  }
  const std::int64_t rows = problem.query_rows();
  return std::isinf(a.lse[row / rows * a.lse_stride_batch + head * a.lse_stride_head + row % rows * a.lse_stride_row]);
}

std::string not_zero(const char* name, double value, std::initializer_list<std::int64_t> place, const char* why) {
  std::ostringstream text;
  text << name;
  for (const std::int64_t i : place) text << '[' << i << ']';
  text << " is " << value << " and not 0: " << why;
  return text.str();
}

/// Of a tensor in the order of tensor_values, `must_be_zero(row, head)`.
template <class MustBeZero>
std::string nonzero_row(const char* name, const std::vector<double>& values, std::int64_t heads, std::int64_t head_dim,
                        const MustBeZero& must_be_zero, const char* why) {
  const std::int64_t rows = static_cast<std::int64_t>(values.size()) / (heads * head_dim);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t head = 0; head < heads; ++head) {
      if (!must_be_zero(row, head)) continue;
      for (std::int64_t c = 0; c < head_dim; ++c)
        if (const double value = values[static_cast<std::size_t>((row * heads + head) * head_dim + c)]; !(value == 0))
          return not_zero(name, value, {row, head, c}, why);
    }
  return {};
}

std::string nonzero_bias_gradient(const Problem& problem, const UnseenKeys& unseen, const std::vector<double>& values) {
  const flashdma_bwd_arguments& a = problem.arguments();
  const flashdma_bwd_pair_tensor& t = a.d_bias;
  if (t.data == nullptr || t.columns == 1) return {};
  // Of all batches and KV heads that are summed into an element.
  const auto unseen_by_all = [&](std::int64_t b, std::int64_t h, std::int64_t key) {
    const std::int64_t group = a.heads / a.heads_kv;
    for (std::int64_t batch = t.batch > 1 ? b : 0; batch < (t.batch > 1 ? b + 1 : a.batch); ++batch)
      for (std::int64_t head = a.heads / t.heads * h; head < a.heads / t.heads * (h + 1); ++head)
        if (!unseen.key(batch, head / group, key)) return false;
    return true;
  };
  for (std::int64_t b = 0; b < t.batch; ++b)
    for (std::int64_t h = 0; h < t.heads; ++h)
      for (std::int64_t key = 0; key < t.columns; ++key) {
        if (!unseen_by_all(b, h, key)) continue;
        for (std::int64_t row = 0; row < t.rows; ++row)
          if (const double value =
                  values[static_cast<std::size_t>(((b * t.heads + h) * t.rows + row) * t.columns + key)];
              !(value == 0))
            return not_zero("dBias", value, {b, h, row, key}, "no query sees the key");
      }
  return {};
}

}  // namespace

std::string nonzero_defect(const Problem& problem, const Gradients& got, const Gradients& expected) {
  const flashdma_bwd_arguments& a = problem.arguments();
  const UnseenKeys unseen(problem, expected);
  const auto empty = [&](std::int64_t row, std::int64_t head) { return empty_row(problem, row, head); };
  const auto unseen_row = [&](std::int64_t row, std::int64_t head) { return unseen.row(row, head); };
  constexpr const char* kUnseen = "no query sees the key";
  std::string defect = nonzero_row("dQ", got.d_q, a.heads, a.head_dim, empty, "the row sees no key");
  if (defect.empty()) defect = nonzero_row("dK", got.d_k, a.heads_kv, a.head_dim, unseen_row, kUnseen);
  if (defect.empty()) defect = nonzero_row("dV", got.d_v, a.heads_kv, a.head_dim, unseen_row, kUnseen);
  return defect.empty() ? nonzero_bias_gradient(problem, unseen, got.d_bias) : defect;
}

double error_bar(flashdma_bwd_data_type type) {
  return type == FLASHDMA_BWD_FP16 ? 6e-4 : 4e-3;
}

}  // namespace flashdma_bwd::testing
