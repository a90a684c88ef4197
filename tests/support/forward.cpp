// One row at a time, one key at a time.
#include "support/forward.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "reference/parallel.hpp"
#include "support/problem.hpp"

namespace flashdma_bwd::testing {
namespace {

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

struct Lengths {
  std::int64_t first_query_row, first_key_row, queries, keys;  // rows of the flattened [batch * row] tensors
};

Lengths lengths_of(const flashdma_bwd_arguments& a, std::int64_t batch) {
  if (a.cu_seqlens_q == nullptr) return {batch * a.seqlen_q, batch * a.seqlen_k, a.seqlen_q, a.seqlen_k};
  return {a.cu_seqlens_q[batch], a.cu_seqlens_k[batch], a.cu_seqlens_q[batch + 1] - a.cu_seqlens_q[batch],
          a.cu_seqlens_k[batch + 1] - a.cu_seqlens_k[batch]};
}

/// "causal keeps j <= i + delta, a window (left, right) keeps i + delta - left <= j <= i + delta + right"
bool within_limits(const flashdma_bwd_arguments& a, const Lengths& lengths, std::int64_t i, std::int64_t j) {
  const std::int64_t whole_q = a.global_seqlen_q != 0 ? a.global_seqlen_q : lengths.queries;
  const std::int64_t whole_k = a.global_seqlen_k != 0 ? a.global_seqlen_k : lengths.keys;
  const std::int64_t delta = whole_k - whole_q + a.query_offset - a.key_offset;
  if (a.causal != 0 && j > i + delta) return false;
  // Windows may be as large as their type has numbers.
  if (a.window_left >= 0 && i + delta - j > a.window_left) return false;
  if (a.window_right >= 0 && j - i - delta > a.window_right) return false;
  return true;
}

std::int64_t tensor_head(const flashdma_bwd_pair_tensor& t, std::int64_t heads, std::int64_t head) {
  return head / (heads / t.heads);
}

bool mask_keeps(const flashdma_bwd_arguments& a, std::int64_t b, std::int64_t head, std::int64_t i, std::int64_t j) {
  const flashdma_bwd_pair_tensor& t = a.mask;
  if (t.data == nullptr) return true;
  std::int64_t offset = 0;
  if (t.batch > 1) offset += b * t.stride_batch;
  if (t.heads > 1) offset += tensor_head(t, a.heads, head) * t.stride_head;
  if (t.rows > 1) offset += i * t.stride_row;
  if (t.columns > 1) offset += j * t.stride_column;
  return static_cast<const std::uint8_t*>(t.data)[offset] != 0;
}

double bias_of(const flashdma_bwd_arguments& a, const std::vector<double>& bias, std::int64_t b, std::int64_t head,
               std::int64_t i, std::int64_t j) {
  const flashdma_bwd_pair_tensor& t = a.bias;
  if (t.data == nullptr) return 0;
  const std::int64_t at_batch = t.batch > 1 ? b : 0;
  const std::int64_t at_head = tensor_head(t, a.heads, head);
  const std::int64_t at_row = t.rows > 1 ? i : 0;
  const std::int64_t at_column = t.columns > 1 ? j : 0;
  return bias[index(((at_batch * t.heads + at_head) * t.rows + at_row) * t.columns + at_column)];
}

double dot(const double* x, const double* y, int n) {
  double sums[8] = {};  // n is a multiple of 8
  for (int c = 0; c < n; c += 8)
    for (int lane = 0; lane < 8; ++lane) sums[lane] += x[c + lane] * y[c + lane];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

}  // namespace

ForwardInputs forward_inputs(const flashdma_bwd_arguments& a) {
  const std::int64_t query_rows = a.cu_seqlens_q != nullptr ? a.total_q : a.seqlen_q;
  const std::int64_t key_rows = a.cu_seqlens_k != nullptr ? a.total_k : a.seqlen_k;
  ForwardInputs inputs;
  inputs.q = tensor_values(a, a.q, query_rows, a.heads);
  inputs.k = tensor_values(a, a.k, key_rows, a.heads_kv);
  inputs.v = tensor_values(a, a.v, key_rows, a.heads_kv);
  if (a.bias.data != nullptr) inputs.bias = pair_values(a.bias);
  return inputs;
}

ScoreRow score_row(const flashdma_bwd_arguments& a, const ForwardInputs& inputs, std::int64_t b, std::int64_t head,
                   std::int64_t i) {
  const Lengths lengths = lengths_of(a, b);
  const std::int64_t head_kv = head / (a.heads / a.heads_kv);
  const double scale = a.scale != 0 ? static_cast<double>(a.scale) : 1 / std::sqrt(static_cast<double>(a.head_dim));
  const double cap = static_cast<double>(a.softcap);
  const double* q = inputs.q.data() + ((lengths.first_query_row + i) * a.heads + head) * a.head_dim;
  ScoreRow row;
  for (std::int64_t j = 0; j < lengths.keys; ++j) {
    if (!within_limits(a, lengths, i, j) || !mask_keeps(a, b, head, i, j)) continue;
    const double bias = bias_of(a, inputs.bias, b, head, i, j);
    if (bias == -std::numeric_limits<double>::infinity()) continue;
    const double* k = inputs.k.data() + ((lengths.first_key_row + j) * a.heads_kv + head_kv) * a.head_dim;
    const double t = scale * dot(q, k, a.head_dim);
    row.keys.push_back(j);
    row.scores.push_back((cap > 0 ? cap * std::tanh(t / cap) : t) + bias);
  }
  return row;
}

ForwardOutputs forward(const flashdma_bwd_arguments& a, const ForwardInputs& inputs, int threads) {
  ForwardOutputs outputs;
  outputs.out.resize(inputs.q.size());
  outputs.lse.resize(inputs.q.size() / index(a.head_dim), -std::numeric_limits<double>::infinity());
  // Sums of each row apart, added in order at the end, so that they do not depend on the threads.
  std::vector<double> square_sums(outputs.lse.size()), counts(outputs.lse.size());
  parallel_tasks(a.batch * a.heads * a.seqlen_q, threads, [&] {
    return [&](std::int64_t task) {
      const std::int64_t i = task % a.seqlen_q;
      const std::int64_t head = task / a.seqlen_q % a.heads;
      const std::int64_t b = task / a.seqlen_q / a.heads;
      const Lengths lengths = lengths_of(a, b);
      if (i >= lengths.queries) return;
      const ScoreRow row = score_row(a, inputs, b, head, i);
      if (row.keys.empty()) return;
      const double largest = *std::max_element(row.scores.begin(), row.scores.end());
      double sum = 0;
      for (double score : row.scores) sum += std::exp(score - largest);
      const std::int64_t at = (lengths.first_query_row + i) * a.heads + head;
      outputs.lse[index(at)] = largest + std::log(sum);
      counts[index(at)] = static_cast<double>(row.keys.size());
      double* out = outputs.out.data() + at * a.head_dim;
      for (std::size_t n = 0; n < row.keys.size(); ++n) {
        const double p = std::exp(row.scores[n] - outputs.lse[index(at)]);
        square_sums[index(at)] += p * p;
        const std::int64_t v_row = (lengths.first_key_row + row.keys[n]) * a.heads_kv + head / (a.heads / a.heads_kv);
        const double* v = inputs.v.data() + v_row * a.head_dim;
        for (int c = 0; c < a.head_dim; ++c) out[c] += p * v[c];
      }
    };
  });
  for (double sum : square_sums) outputs.probability_square_sum += sum;
  for (double count : counts) outputs.active_pairs += count;
  return outputs;
}

double backward_potential(const flashdma_bwd_arguments& a, const ForwardInputs& inputs) {
  const std::int64_t query_rows = a.cu_seqlens_q != nullptr ? a.total_q : a.seqlen_q;
  const std::vector<double> out = tensor_values(a, a.out, query_rows, a.heads);
  const std::vector<double> d_out = tensor_values(a, a.d_out, query_rows, a.heads);
  double potential = 0;
  for (std::int64_t b = 0; b < a.batch; ++b) {
    const Lengths lengths = lengths_of(a, b);
    for (std::int64_t head = 0; head < a.heads; ++head) {
      for (std::int64_t i = 0; i < lengths.queries; ++i) {
        const std::int64_t flat = lengths.first_query_row + i;
        const bool packed = a.cu_seqlens_q != nullptr;
        double lse = static_cast<double>(a.lse[(packed ? 0 : b * a.lse_stride_batch) + head * a.lse_stride_head +
                                               (packed ? flat : i) * a.lse_stride_row]);
        if (std::isinf(lse)) continue;
        if (a.lse_base_two != 0) lse *= std::numbers::ln2;
        const double* d_out_row = d_out.data() + (flat * a.heads + head) * a.head_dim;
        const double row_dot = dot(d_out_row, out.data() + (flat * a.heads + head) * a.head_dim, a.head_dim);
        const ScoreRow row = score_row(a, inputs, b, head, i);
        for (std::size_t n = 0; n < row.keys.size(); ++n) {
          const std::int64_t v_row = (lengths.first_key_row + row.keys[n]) * a.heads_kv + head / (a.heads / a.heads_kv);
          const double d_p = dot(d_out_row, inputs.v.data() + v_row * a.head_dim, a.head_dim);
          potential += std::exp(row.scores[n] - lse) * (d_p - row_dot);
        }
      }
    }
  }
  return potential;
}

}  // namespace flashdma_bwd::testing
