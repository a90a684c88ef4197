// What a problem's buffers hold: seeded random numbers, a mask of the wanted structure, and the forward's O and LSE.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "reference/number_formats.hpp"
#include "support/forward.hpp"
#include "support/mask_structures.hpp"
#include "support/problem.hpp"
#include "support/random.hpp"

namespace flashdma_bwd::testing {
namespace {

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Fills a tensor with normal numbers and returns their root mean square.
double fill_tensor(const flashdma_bwd_arguments& a, const flashdma_bwd_tensor& tensor, std::int64_t rows,
                   std::int64_t heads, std::uint64_t seed) {
  Random random(seed);
  double squares = 0, count = 0;
  const std::int64_t batches = a.cu_seqlens_q == nullptr ? a.batch : 1;
  for (std::int64_t b = 0; b < batches; ++b) {
    for (std::int64_t r = 0; r < (tensor.stride_row == 0 ? 1 : rows); ++r) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t start = b * tensor.stride_batch + r * tensor.stride_row + h * tensor.stride_head;
        for (int c = 0; c < a.head_dim; ++c) {
          const double value = random.normal();
          store_element(tensor.data, a.data_type, start + c, value);
          squares += value * value;
          count += 1;
        }
      }
    }
  }
  return count > 0 ? std::sqrt(squares / count) : 0;
}

std::int64_t pair_offset(const flashdma_bwd_pair_tensor& t, std::int64_t b, std::int64_t h, std::int64_t r,
                         std::int64_t c) {
  return (t.batch > 1 ? b * t.stride_batch : 0) + (t.heads > 1 ? h * t.stride_head : 0) +
         (t.rows > 1 ? r * t.stride_row : 0) + (t.columns > 1 ? c * t.stride_column : 0);
}

void fill_mask(const flashdma_bwd_arguments& a, const MaskSpec& spec, std::uint64_t seed) {
  const flashdma_bwd_pair_tensor& mask = a.mask;
  auto* bytes = static_cast<std::uint8_t*>(mask.data);
  for (std::int64_t b = 0; b < mask.batch; ++b)
    for (std::int64_t h = 0; h < mask.heads; ++h)
      for (std::int64_t r = 0; r < mask.rows; ++r)
        for (std::int64_t c = 0; c < mask.columns; ++c) bytes[pair_offset(mask, b, h, r, c)] = 0;
  for_each_kept_pair(spec, {mask.batch, mask.heads, mask.rows, mask.columns, a.seqlen_q, a.seqlen_k}, seed,
                     [&](std::int64_t b, std::int64_t h, std::int64_t r, std::int64_t c) {
                       const std::int64_t offset = pair_offset(mask, b, h, r, c);
                       bytes[offset] = static_cast<std::uint8_t>(1 + mix(static_cast<std::uint64_t>(offset)) %
                                                                         255);  // any but 0 keeps
                     });
}

std::uint64_t mask_seed(const ProblemSpec& spec) {
  return mix(spec.seed * 64 + 4);
}

void fill_bias(const flashdma_bwd_arguments& a, const BiasSpec& spec, std::uint64_t seed) {
  Random random(seed);
  for (std::int64_t b = 0; b < a.bias.batch; ++b)
    for (std::int64_t h = 0; h < a.bias.heads; ++h)
      for (std::int64_t r = 0; r < a.bias.rows; ++r)
        for (std::int64_t c = 0; c < a.bias.columns; ++c) {
          const double value = random.normal();
          const bool masks = random.uniform() < spec.minus_infinity;
          store_element(a.bias.data, a.bias.data_type, pair_offset(a.bias, b, h, r, c),
                        masks ? -std::numeric_limits<double>::infinity() : value);
        }
}

/// Fills K and V of keys that the mask keeps for no query with values near the largest finite ones.
void fill_masked_keys(const flashdma_bwd_arguments& a) {
  const double huge = a.data_type == FLASHDMA_BWD_FP16 ? 65000.0 : 3.3e38;
  const auto* mask = static_cast<const std::uint8_t*>(a.mask.data);
  for (std::int64_t b = 0; b < a.batch; ++b) {
    for (std::int64_t head_kv = 0; head_kv < a.heads_kv; ++head_kv) {
      const std::int64_t group = a.heads / a.heads_kv;
      const std::int64_t first_row = a.cu_seqlens_k != nullptr ? a.cu_seqlens_k[b] : 0;
      const std::int64_t keys = a.cu_seqlens_k != nullptr ? a.cu_seqlens_k[b + 1] - first_row : a.seqlen_k;
      for (std::int64_t key = 0; key < keys; ++key) {
        bool kept = false;
        for (std::int64_t head = head_kv * group; head < (head_kv + 1) * group && !kept; ++head)
          for (std::int64_t row = 0; row < a.mask.rows && !kept; ++row)
            kept = mask[pair_offset(a.mask, b, head / (a.heads / a.mask.heads), row, key)] != 0;
        if (kept) continue;
        for (const flashdma_bwd_tensor* tensor : {&a.k, &a.v}) {
          const std::int64_t start = (a.cu_seqlens_k != nullptr ? 0 : b * tensor->stride_batch) +
                                     (first_row + key) * tensor->stride_row + head_kv * tensor->stride_head;
          for (int c = 0; c < a.head_dim; ++c)
            store_element(tensor->data, a.data_type, start + c, (key + c) % 2 == 0 ? huge : -huge);
        }
      }
    }
  }
}

}  // namespace

BoolMask bool_mask(const ProblemSpec& unsized) {
  const ProblemSpec spec = unsized.with_sizes();
  const PairShape& shape = spec.mask.shape;
  BoolMask mask;
  mask.batch = shape.batch ? spec.batch : 1;
  mask.heads = shape.heads == PairHeads::one ? 1 : shape.heads == PairHeads::kv ? spec.heads_kv : spec.heads;
  mask.rows = shape.rows ? spec.seqlen_q : 1;
  mask.columns = shape.columns ? spec.seqlen_k : 1;
  mask.seqlen_q = spec.seqlen_q;
  mask.seqlen_k = spec.seqlen_k;
  mask.kept.resize(index(mask.batch * mask.heads * mask.rows * mask.columns));
  for_each_kept_pair(spec.mask, {mask.batch, mask.heads, mask.rows, mask.columns, mask.seqlen_q, mask.seqlen_k},
                     mask_seed(spec), [&](std::int64_t b, std::int64_t h, std::int64_t r, std::int64_t c) {
                       mask.kept[index(((b * mask.heads + h) * mask.rows + r) * mask.columns + c)] = true;
                     });
  return mask;
}

bool expresses_mask(const ProblemSpec& spec) {
  const MaskSpec& mask = spec.mask;
  return encode_mask(bool_mask(spec), {mask.encoding, mask.block_q, mask.block_k, false, 0}, 0).has_value();
}

void Problem::fill() {
  const flashdma_bwd_arguments& a = arguments_;
  const auto seed = [this](std::uint64_t which) { return mix(spec_.seed * 64 + which); };
  magnitudes_.q = fill_tensor(a, a.q, query_rows(), a.heads, seed(0));
  magnitudes_.k = fill_tensor(a, a.k, key_rows(), a.heads_kv, seed(1));
  magnitudes_.v = fill_tensor(a, a.v, key_rows(), a.heads_kv, seed(2));
  magnitudes_.d_out = fill_tensor(a, a.d_out, query_rows(), a.heads, seed(3));
  if (a.mask.data != nullptr) fill_mask(a, spec_.mask, mask_seed(spec_));
  if (a.bias.data != nullptr) fill_bias(a, spec_.bias, seed(5));
  if (a.mask.data != nullptr && spec_.mask.huge_masked_keys) fill_masked_keys(a);

  const ForwardOutputs outputs = forward(a, forward_inputs(a));
  const double pairs = static_cast<double>(a.batch * a.heads) * static_cast<double>(a.seqlen_q * a.seqlen_k);
  density_ = pairs > 0 ? outputs.active_pairs / pairs : 0;
  probability_norm_ = std::sqrt(outputs.probability_square_sum);
  if (spec_.random_out) fill_tensor(a, a.out, query_rows(), a.heads, seed(6));
  const std::int64_t rows = query_rows();
  const std::int64_t batches = a.cu_seqlens_q == nullptr ? a.batch : 1;
  auto* lse = reinterpret_cast<float*>(lse_.data);
  for (std::int64_t b = 0; b < batches; ++b) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t h = 0; h < a.heads; ++h) {
        const std::int64_t at = (b * rows + r) * a.heads + h;
        double value = outputs.lse[index(at)];
        if (std::isinf(value) && spec_.lse.empty_is_plus_infinity) value = -value;
        lse[b * a.lse_stride_batch + h * a.lse_stride_head + r * a.lse_stride_row] =
            static_cast<float>(spec_.lse.base_two ? value / std::numbers::ln2 : value);
        if (spec_.random_out) continue;
        const std::int64_t start = b * a.out.stride_batch + r * a.out.stride_row + h * a.out.stride_head;
        for (int c = 0; c < a.head_dim; ++c)
          store_element(a.out.data, a.data_type, start + c, outputs.out[index(at * a.head_dim + c)]);
      }
    }
  }
}

}  // namespace flashdma_bwd::testing
