// The demo's problem. See demo_problem.hpp.
#include "demo_problem.hpp"

#include <cmath>
#include <functional>
#include <random>

#include "mask_shapes.hpp"
#include "reference/number_formats.hpp"

namespace flashdma_bwd::bench {
namespace {

constexpr std::int64_t kGroup = DemoProblem::kHeads / DemoProblem::kHeadsKv;

std::vector<double> doubles(const std::vector<std::uint16_t>& values) {
  std::vector<double> result;
  result.reserve(values.size());
  for (const std::uint16_t value : values) result.push_back(static_cast<double>(bf16_to_float(value)));
  return result;
}

std::vector<double> moved(const std::vector<std::uint16_t>& values, const std::vector<double>& direction, double step) {
  std::vector<double> result = doubles(values);
  for (std::size_t i = 0; i < result.size(); ++i) result[i] += step * direction[i];
  return result;
}

// The forward in double precision: calls `row` with each row's head, query, output and logsumexp.
void forward(const DemoProblem& problem, const std::vector<double>& q, const std::vector<double>& k,
             const std::vector<double>& v, const std::vector<double>& bias,
             const std::function<void(std::int64_t, std::int64_t, const std::vector<double>&, double)>& row) {
  const std::int64_t seqlen = problem.seqlen;
  const std::int64_t dim = DemoProblem::kHeadDim;
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  const auto at = [](const std::vector<double>& values, std::int64_t index) {
    return values[static_cast<std::size_t>(index)];
  };
  for (std::int64_t head = 0; head < DemoProblem::kHeads; ++head) {
    const std::int64_t head_kv = head / kGroup;
    for (std::int64_t query = 0; query < seqlen; ++query) {
      std::vector<double> out(static_cast<std::size_t>(dim));
      double sum =
          0;  // scores of normally distributed inputs are small: no maximum needs to be taken out in double precision
      for (std::int64_t key = 0; key <= query; ++key) {
        if (problem.mask[static_cast<std::size_t>((head_kv * seqlen + query) * seqlen + key)] == 0) continue;
        double score = 0;
        for (std::int64_t c = 0; c < dim; ++c)
          score += at(q, (query * DemoProblem::kHeads + head) * dim + c) *
                   at(k, (key * DemoProblem::kHeadsKv + head_kv) * dim + c);
        const double weight = std::exp(scale * score + at(bias, head_kv * seqlen + key));
        sum += weight;
        for (std::int64_t c = 0; c < dim; ++c)
          out[static_cast<std::size_t>(c)] += weight * at(v, (key * DemoProblem::kHeadsKv + head_kv) * dim + c);
      }
      for (double& value : out) value /= sum;
      row(head, query, out, std::log(sum));
    }
  }
}

}  // namespace

DemoProblem::DemoProblem(std::int64_t length) : seqlen(length) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<std::uint16_t>& values, std::int64_t count) {
    values.resize(static_cast<std::size_t>(count));
    for (std::uint16_t& value : values) value = bf16_from_double(static_cast<double>(normal(random)));
  };
  const std::int64_t rows = seqlen * kHeadDim;
  fill(q, rows * kHeads);
  fill(k, rows * kHeadsKv);
  fill(v, rows * kHeadsKv);
  fill(d_out, rows * kHeads);
  fill(bias, seqlen * kHeadsKv);
  d_q.resize(q.size());
  d_k.resize(k.size());
  d_v.resize(v.size());
  d_bias.resize(bias.size());

  Problem shape;  // the mask keeps, for each query, the quarter of all keys with the largest bias among those that it
                  // may see
  shape.heads = kHeads;
  shape.heads_kv = kHeadsKv;
  shape.seqlen_q = shape.seqlen_k = seqlen;
  shape.causal = true;
  shape.mask = MaskShape::top_w;
  shape.top_w = seqlen / 4;
  std::vector<float> scores;
  for (const std::uint16_t value : bias) scores.push_back(bf16_to_float(value));
  mask = make_mask(shape, scores, 0).keep;

  out.resize(q.size());
  lse.resize(static_cast<std::size_t>(kHeads * seqlen));
  forward(*this, doubles(q), doubles(k), doubles(v), doubles(bias),
          [&](std::int64_t head, std::int64_t query, const std::vector<double>& row, double log_sum) {
            for (std::size_t c = 0; c < row.size(); ++c)
              out[static_cast<std::size_t>((query * kHeads + head) * kHeadDim) + c] = bf16_from_double(row[c]);
            lse[static_cast<std::size_t>(head * seqlen + query)] = static_cast<float>(log_sum);
          });
}

Arguments DemoProblem::shapes() const {
  Arguments arguments;
  arguments.data_type = FLASHDMA_BWD_BF16;
  arguments.batch = 1;
  arguments.heads = kHeads;
  arguments.heads_kv = kHeadsKv;
  arguments.head_dim = kHeadDim;
  arguments.seqlen_q = arguments.seqlen_k = seqlen;
  arguments.causal = 1;
  const auto strides = [&](Tensor& tensor, std::int64_t heads) {
    tensor.stride_head = kHeadDim;
    tensor.stride_row = heads * kHeadDim;
    tensor.stride_batch = seqlen * tensor.stride_row;
  };
  for (Tensor* tensor : {&arguments.q, &arguments.out, &arguments.d_out, &arguments.d_q}) strides(*tensor, kHeads);
  for (Tensor* tensor : {&arguments.k, &arguments.v, &arguments.d_k, &arguments.d_v}) strides(*tensor, kHeadsKv);
  arguments.lse_stride_row = 1;
  arguments.lse_stride_head = seqlen;
  arguments.lse_stride_batch = kHeads * seqlen;
  const auto pairs = [&](PairTensor& tensor, std::int64_t tensor_rows) {
    tensor.data_type = FLASHDMA_BWD_BF16;
    tensor.batch = 1;
    tensor.heads = kHeadsKv;
    tensor.rows = tensor_rows;
    tensor.columns = seqlen;
    tensor.stride_column = 1;
    tensor.stride_row = seqlen;
    tensor.stride_head = tensor_rows * seqlen;
    tensor.stride_batch = kHeadsKv * tensor.stride_head;
  };
  pairs(arguments.mask, seqlen);
  pairs(arguments.bias, 1);
  pairs(arguments.d_bias, 1);
  return arguments;
}

Arguments DemoProblem::host_arguments() {
  Arguments arguments = shapes();
  arguments.q.data = q.data();
  arguments.k.data = k.data();
  arguments.v.data = v.data();
  arguments.out.data = out.data();
  arguments.d_out.data = d_out.data();
  arguments.d_q.data = d_q.data();
  arguments.d_k.data = d_k.data();
  arguments.d_v.data = d_v.data();
  arguments.lse = lse.data();
  arguments.mask.data = mask.data();
  arguments.bias.data = bias.data();
  arguments.d_bias.data = d_bias.data();
  return arguments;
}

double DemoProblem::loss(const DemoDirection& direction, double step) const {
  double sum = 0;
  forward(*this, moved(q, direction.q, step), moved(k, direction.k, step), moved(v, direction.v, step),
          moved(bias, direction.bias, step),
          [&](std::int64_t head, std::int64_t query, const std::vector<double>& row, double) {
            for (std::size_t c = 0; c < row.size(); ++c)
              sum += row[c] * static_cast<double>(bf16_to_float(
                                  d_out[static_cast<std::size_t>((query * kHeads + head) * kHeadDim) + c]));
          });
  return sum;
}

DemoDirection random_direction(const DemoProblem& problem) {
  std::mt19937_64 random(2);
  std::normal_distribution<double> normal;
  const auto fill = [&](std::size_t count) {
    std::vector<double> values(count);
    for (double& value : values) value = normal(random);
    return values;
  };
  DemoDirection direction;
  direction.q = fill(problem.q.size());
  direction.k = fill(problem.k.size());
  direction.v = fill(problem.v.size());
  direction.bias = fill(problem.bias.size());
  return direction;
}

double directional_derivative(const DemoProblem& problem, const DemoDirection& direction) {
  double sum = 0;
  const auto add = [&](const std::vector<std::uint16_t>& gradient, const std::vector<double>& along) {
    for (std::size_t i = 0; i < along.size(); ++i) sum += along[i] * static_cast<double>(bf16_to_float(gradient[i]));
  };
  add(problem.d_q, direction.q);
  add(problem.d_k, direction.k);
  add(problem.d_v, direction.v);
  add(problem.d_bias, direction.bias);
  return sum;
}

double relative_error(const std::vector<std::uint16_t>& a, const std::vector<std::uint16_t>& b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(bf16_to_float(a[i]));
    const auto y = static_cast<double>(bf16_to_float(b[i]));
    difference += (x - y) * (x - y);
    norm += y * y;
  }
  return std::sqrt(difference / norm);
}

}  // namespace flashdma_bwd::bench
