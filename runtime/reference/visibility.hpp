// Which pairs exist: sequences of a batch, limits of causality and windows, and tensors over (batch, head, query, key).
#pragma once

#include <flashdma_bwd/flashdma_bwd.h>

#include <algorithm>
#include <cstdint>

namespace flashdma_bwd {

/// One sequence of the batch: its rows in the tensors and its lengths.
struct Sequence {
  std::int64_t batch = 0;        ///< its index
  std::int64_t query_begin = 0;  ///< first row within the batch's Q: 0 for fixed length
  std::int64_t key_begin = 0;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t tensor_batch = 0;  ///< factor of stride_batch: 0 for variable length
};

inline Sequence sequence_of(const flashdma_bwd_arguments& arguments, std::int64_t batch) {
  if (arguments.cu_seqlens_q == nullptr) return {batch, 0, 0, arguments.seqlen_q, arguments.seqlen_k, batch};
  const std::int32_t* q = arguments.cu_seqlens_q + batch;
  const std::int32_t* k = arguments.cu_seqlens_k + batch;
  return {batch, q[0], k[0], q[1] - q[0], k[1] - k[0], 0};
}

/// Element offset of the first column of a row of Q, K, V, O, dO or a gradient; `row` counts within the sequence from
/// `begin`.
inline std::int64_t row_offset(const flashdma_bwd_tensor& tensor, const Sequence& sequence, std::int64_t begin,
                               std::int64_t row, std::int64_t head) {
  return sequence.tensor_batch * tensor.stride_batch + (begin + row) * tensor.stride_row + head * tensor.stride_head;
}

/// The keys that causality and the window leave to a query i of a sequence: [first(i), last(i)], clamped to the
/// sequence.
class KeyLimits {
 public:
  KeyLimits(const flashdma_bwd_arguments& arguments, const Sequence& sequence) : keys_(sequence.keys) {
    const std::int64_t queries = arguments.global_seqlen_q > 0 ? arguments.global_seqlen_q : sequence.queries;
    const std::int64_t keys = arguments.global_seqlen_k > 0 ? arguments.global_seqlen_k : sequence.keys;
    delta_ = keys - queries + arguments.query_offset - arguments.key_offset;
    // Wider ones hide as little, and sums of positions with them stay in 64 bits.
    constexpr std::int64_t kWidest = std::int64_t{1} << 62;
    left_ = std::min(arguments.window_left, kWidest);
    right_ = std::min(arguments.window_right, kWidest);
    if (arguments.causal != 0) right_ = right_ < 0 ? 0 : std::min<std::int64_t>(right_, 0);
  }
  std::int64_t first(std::int64_t query) const {
    return left_ < 0 ? 0 : std::max<std::int64_t>(0, query + delta_ - left_);
  }
  std::int64_t last(std::int64_t query) const {
    return right_ < 0 ? keys_ - 1 : std::min(keys_ - 1, query + delta_ + right_);
  }

 private:
  std::int64_t keys_, delta_, left_, right_;
};

/// Query heads for each head of a mask, bias or dBias: at least 1, also where there are none of either.
inline std::int64_t heads_per_head(const flashdma_bwd_pair_tensor& tensor, std::int64_t heads) {
  return tensor.heads > 0 && heads > 0 ? heads / tensor.heads : 1;
}

/// Addresses elements of a mask, bias or dBias by the problem's batch, query head, query and key.
class PairAddress {
 public:
  PairAddress(const flashdma_bwd_pair_tensor& tensor, std::int64_t heads)
      : batch_(tensor.batch > 1 ? tensor.stride_batch : 0),
        head_(tensor.heads > 1 ? tensor.stride_head : 0),
        row_(tensor.rows > 1 ? tensor.stride_row : 0),
        column_(tensor.columns > 1 ? tensor.stride_column : 0),
        heads_per_head_(heads_per_head(tensor, heads)) {}
  std::int64_t row_start(std::int64_t batch, std::int64_t query_head, std::int64_t query) const {
    return batch * batch_ + query_head / heads_per_head_ * head_ + query * row_;
  }
  std::int64_t column_stride() const { return column_; }

 private:
  std::int64_t batch_, head_, row_, column_, heads_per_head_;
};

}  // namespace flashdma_bwd
