// Computes tiles of P and dS; masked pairs are selected away, so whatever a masked key holds has no effect.
#include "reference/score_tile.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "reference/number_formats.hpp"
#include "reference/tile_product.hpp"

namespace flashdma_bwd {

double score_scale(const flashdma_bwd_arguments& arguments) {
  return arguments.scale != 0 ? static_cast<double>(arguments.scale) : 1.0 / std::sqrt(arguments.head_dim);
}

ScoreTile::ScoreTile(const flashdma_bwd_arguments& arguments)
    : arguments_(arguments),
      mask_(arguments),
      bias_(arguments.bias, arguments.heads),
      scale_(score_scale(arguments)),
      head_dim_(arguments.head_dim) {
  const std::size_t rows = static_cast<std::size_t>(kTile) * static_cast<std::size_t>(head_dim_);
  for (std::vector<double>* buffer : {&q_, &d_out_, &k_, &v_, &out_, &k_transposed_, &v_transposed_})
    buffer->resize(rows);
  for (std::vector<double>* buffer : {&p_, &ds_, &g_}) buffer->resize(kTile * kTile);
  lse_.resize(kTile);
  row_dot_.resize(kTile);
  active_.resize(kTile * kTile);
}

void ScoreTile::load_rows(std::vector<double>& rows, const flashdma_bwd_tensor& tensor, std::int64_t offset,
                          int count) const {
  for (int i = 0; i < kTile; ++i) {
    double* row = rows.data() + i * head_dim_;
    if (i >= count) {
      std::fill_n(row, head_dim_, 0.0);
      continue;
    }
    const std::int64_t start = offset + i * tensor.stride_row;
    for (int c = 0; c < head_dim_; ++c)
      row[c] = static_cast<double>(load_element(tensor.data, arguments_.data_type, start + c));
  }
}

void ScoreTile::load_queries(const Sequence& sequence, std::int64_t head, std::int64_t query) {
  sequence_ = sequence;
  head_ = head;
  query_ = query;
  queries_ = static_cast<int>(std::min<std::int64_t>(kTile, sequence.queries - query));
  const auto load = [&](std::vector<double>& rows, const flashdma_bwd_tensor& tensor) {
    load_rows(rows, tensor, row_offset(tensor, sequence, sequence.query_begin, query, head), queries_);
  };
  load(q_, arguments_.q);
  load(d_out_, arguments_.d_out);
  load(out_, arguments_.out);
  for (int i = 0; i < queries_; ++i) {
    const std::int64_t row = sequence.query_begin + query + i;
    const double lse =
        static_cast<double>(arguments_.lse[sequence.tensor_batch * arguments_.lse_stride_batch +
                                           head * arguments_.lse_stride_head + row * arguments_.lse_stride_row]);
    lse_[static_cast<std::size_t>(i)] = arguments_.lse_base_two != 0 ? lse * std::numbers::ln2 : lse;
    double dot = 0;
    for (int c = 0; c < head_dim_; ++c) {
      const std::size_t at = static_cast<std::size_t>(i * head_dim_ + c);
      dot += d_out_[at] * out_[at];
    }
    row_dot_[static_cast<std::size_t>(i)] = dot;
  }
}

void ScoreTile::load_keys(const Sequence& sequence, std::int64_t head_kv, std::int64_t key) {
  sequence_ = sequence;
  key_ = key;
  keys_ = static_cast<int>(std::min<std::int64_t>(kTile, sequence.keys - key));
  const auto load = [&](std::vector<double>& rows, std::vector<double>& transposed, const flashdma_bwd_tensor& tensor) {
    load_rows(rows, tensor, row_offset(tensor, sequence, sequence.key_begin, key, head_kv), keys_);
    for (int j = 0; j < kTile; ++j)
      for (int c = 0; c < head_dim_; ++c)
        transposed[static_cast<std::size_t>(c * kTile + j)] = rows[static_cast<std::size_t>(j * head_dim_ + c)];
  };
  load(k_, k_transposed_, arguments_.k);
  load(v_, v_transposed_, arguments_.v);
}

bool tile_reachable(const flashdma_bwd_arguments& arguments, const Sequence& sequence, std::int64_t query,
                    std::int64_t key) {
  const KeyLimits limits(arguments, sequence);
  const std::int64_t last_query = std::min(query + kTile, sequence.queries) - 1;
  return limits.first(query) < key + kTile && limits.last(last_query) >= key;  // neither decreases with the query
}

bool ScoreTile::find_active() {
  const KeyLimits limits(arguments_, sequence_);
  const bool biased = arguments_.bias.data != nullptr;
  bool any = false;
  std::fill(active_.begin(), active_.end(), static_cast<unsigned char>(0));
  for (int i = 0; i < queries_; ++i) {
    if (std::isinf(lse_[static_cast<std::size_t>(i)])) continue;  // an empty row
    const std::int64_t query = query_ + i;
    const std::int64_t first = std::max(limits.first(query), key_);
    const std::int64_t last = std::min(limits.last(query), key_ + keys_ - 1);
    const std::int64_t bias_row = bias_.row_start(sequence_.batch, head_, query);
    for (std::int64_t key = first; key <= last; ++key) {
      const std::size_t at = static_cast<std::size_t>(i * kTile + (key - key_));
      if (mask_.present() && !mask_.keeps(sequence_.batch, head_, query, key)) continue;
      double bias = 0;
      if (biased) {
        bias = static_cast<double>(
            load_element(arguments_.bias.data, arguments_.bias.data_type, bias_row + key * bias_.column_stride()));
        if (std::isinf(bias) && bias < 0) continue;
      }
      active_[at] = 1;
      g_[at] = bias;  // until compute() overwrites it
      any = true;
    }
  }
  return any;
}

bool ScoreTile::compute() {
  if (!find_active()) return false;
  std::fill(p_.begin(), p_.end(), 0.0);    // receives the scores
  std::fill(ds_.begin(), ds_.end(), 0.0);  // receives dP
  tile_product(p_.data(), kTile, q_.data(), head_dim_, 1, k_transposed_.data(), kTile, kTile, head_dim_, kTile);
  tile_product(ds_.data(), kTile, d_out_.data(), head_dim_, 1, v_transposed_.data(), kTile, kTile, head_dim_, kTile);
  const double cap = static_cast<double>(arguments_.softcap);
  for (int i = 0; i < kTile; ++i) {
    for (int j = 0; j < kTile; ++j) {
      const std::size_t at = static_cast<std::size_t>(i * kTile + j);
      if (active_[at] == 0) {
        p_[at] = ds_[at] = g_[at] = 0;
        continue;
      }
      double score = scale_ * p_[at];
      double slope = 1;
      if (cap > 0) {
        const double tanh = std::tanh(score / cap);
        score = cap * tanh;
        slope = 1 - tanh * tanh;
      }
      p_[at] = std::exp(score + g_[at] - lse_[static_cast<std::size_t>(i)]);
      ds_[at] = p_[at] * (ds_[at] - row_dot_[static_cast<std::size_t>(i)]);
      g_[at] = ds_[at] * slope;
    }
  }
  return true;
}

}  // namespace flashdma_bwd
