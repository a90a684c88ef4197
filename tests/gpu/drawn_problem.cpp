// How a problem is drawn: first how much of everything there is, then what hides pairs, then where elements lie.
#include "gpu/drawn_problem.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>

#include "support/random.hpp"

namespace flashdma_bwd::testing {
namespace {

/// Of a problem, in pairs times head dim: what the CPU computes in a second or two.
constexpr std::int64_t kMostWork = 250'000'000;
/// Before limits and masks, as far as there are heads for it.
constexpr std::int64_t kFewestPairs = 100'000;

class Draw : public Random {
 public:
  using Random::Random;
  /// True once in n.
  bool once_in(std::int64_t n) { return below(n) == 0; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<std::int64_t>(values.size()))];
  }
  /// In [low, high], each octave as often as another.
  double octaves(double low, double high) { return low * std::exp2(uniform() * std::log2(high / low)); }
  /// 1 ... most: at an end of a tile or beside one as often as anywhere.
  std::int64_t length(std::int64_t most) {
    const std::int64_t tile = one_of<std::int64_t>({64, 96, 128});
    const std::int64_t at_a_tile = tile * (1 + below(std::max<std::int64_t>(most / tile, 1))) + below(3) - 1;
    const auto anywhere =
        static_cast<std::int64_t>(octaves(std::min(4.0, static_cast<double>(most)), static_cast<double>(most)));
    return std::clamp<std::int64_t>(once_in(2) ? at_a_tile : anywhere, 1, most);
  }
};

void draw_heads_and_lengths(Draw& draw, ProblemSpec& spec) {
  switch (draw.below(4)) {
    case 0:  // few items of many steps, which are cut into pieces
      spec.batch = 1;
      spec.heads_kv = 1 + draw.below(2);
      spec.heads = spec.heads_kv * draw.one_of({1, 1, 2, 4});
      spec.seqlen_q = draw.length(2400);
      spec.seqlen_k = draw.length(1200);
      break;
    case 1:  // more items than a GPU works at at once
      spec.batch = 1 + draw.below(4);
      spec.heads_kv = 8 + draw.below(40);
      spec.heads = spec.heads_kv * draw.one_of({1, 1, 2, 3});
      spec.seqlen_q = draw.length(300);
      spec.seqlen_k = draw.length(600);
      break;
    default:
      spec.batch = 1 + draw.below(3);
      spec.heads_kv = 1 + draw.below(5);
      spec.heads = spec.heads_kv * (1 + draw.below(5));
      spec.seqlen_q = draw.length(700);
      spec.seqlen_k = draw.length(900);
  }
  if (draw.once_in(4)) {
    const std::int64_t sequences = 1 + draw.below(7);
    for (std::int64_t i = 0; i < sequences; ++i) {
      const auto length = [&](std::int64_t most) {
        return draw.once_in(8) ? 0 : static_cast<std::int32_t>(draw.length(most));
      };
      spec.lengths_q.push_back(length(spec.seqlen_q));
      spec.lengths_k.push_back(length(spec.seqlen_k));
    }
    spec = spec.with_sizes();
    // A longest sequence without rows has packed tensors without rows.
    if (spec.seqlen_q > 0 && spec.seqlen_k > 0) {
      spec.length_margin = draw.once_in(3) ? draw.below(90) : 0;
      spec.packed_tail = draw.once_in(3) ? draw.below(150) : 0;
      spec = spec.with_sizes();
    }
  }
  // More heads where these have few pairs, of which limits and masks would leave too few to compare.
  while (spec.batch * spec.heads * spec.seqlen_q * spec.seqlen_k < kFewestPairs && spec.heads < 64) {
    spec.heads *= 2;
    spec.heads_kv *= 2;
  }
}

/// Fewer heads, then fewer sequences, then fewer queries.
void limit_work(ProblemSpec& spec) {
  const auto work = [&] { return spec.batch * spec.heads * spec.seqlen_q * spec.seqlen_k * spec.head_dim; };
  while (work() > kMostWork && spec.heads_kv > 4) {
    spec.heads = spec.heads / spec.heads_kv * (spec.heads_kv / 2);
    spec.heads_kv /= 2;
  }
  if (work() > kMostWork && spec.lengths_q.empty()) spec.batch = 1;
  while (work() > kMostWork) {
    for (std::int32_t& length : spec.lengths_q) length = (length + 1) / 2;
    spec.seqlen_q = (spec.seqlen_q + 1) / 2;
    spec.length_margin = 0;
    spec = spec.with_sizes();
  }
}

PairShape drawn_shape(Draw& draw, bool rows) {
  return {.batch = draw.once_in(2),
          .heads = draw.one_of({PairHeads::one, PairHeads::kv, PairHeads::query}),
          .rows = rows,
          .columns = !draw.once_in(10)};
}

void draw_limits(Draw& draw, ProblemSpec& spec) {
  const std::int64_t kind = draw.below(6);
  spec.causal = kind < 3;
  if (kind >= 2 && kind < 5) spec.window_left = draw.length(spec.seqlen_k + 1) - 1;
  if (kind == 3 || kind == 4) spec.window_right = draw.once_in(4) ? -1 : draw.length(spec.seqlen_k + 1) - 1;
  if (!draw.once_in(8) || !spec.lengths_q.empty()) return;
  spec.query_offset = draw.below(500);
  spec.key_offset = std::max<std::int64_t>(spec.query_offset + draw.below(200) - 100, 0);
  spec.global_seqlen_q = spec.query_offset + spec.seqlen_q + draw.below(300);
  spec.global_seqlen_k = spec.key_offset + spec.seqlen_k + draw.below(300);
}

void draw_mask(Draw& draw, ProblemSpec& spec) {
  MaskSpec& mask = spec.mask;
  mask.structure = draw.one_of(
      {MaskStructure::keep_all, MaskStructure::keep_nothing, MaskStructure::alternating_tiles,
       MaskStructure::empty_rows, MaskStructure::empty_columns, MaskStructure::one_key_per_row, MaskStructure::one_tile,
       MaskStructure::bernoulli, MaskStructure::bernoulli, MaskStructure::causal_top_w, MaskStructure::causal_top_w,
       MaskStructure::window_with_sinks, MaskStructure::documents, MaskStructure::block_sparse});
  mask.shape = drawn_shape(draw, !draw.once_in(4));
  mask.probability = mask.structure == MaskStructure::bernoulli ? draw.octaves(0.003, 1.0) : draw.octaves(0.1, 1.0);
  const bool blocks =
      mask.structure == MaskStructure::alternating_tiles || mask.structure == MaskStructure::block_sparse;
  mask.width = blocks ? draw.one_of<std::int64_t>({32, 64, 128, 192}) : draw.length(400);
  mask.row_padding = draw.once_in(3) ? draw.below(20) : 0;
  mask.huge_masked_keys = draw.once_in(6);
  mask.layout = draw.one_of({FLASHDMA_BWD_MASK_AUTO, FLASHDMA_BWD_MASK_AUTO, FLASHDMA_BWD_MASK_NATURAL,
                             FLASHDMA_BWD_MASK_REORDERED, FLASHDMA_BWD_MASK_COMPACTED});
  if (mask.layout == FLASHDMA_BWD_MASK_COMPACTED && mask.shape.rows) mask.layout = FLASHDMA_BWD_MASK_REORDERED;
  mask.encoding = kMaskEncodings[draw.below(std::size(kMaskEncodings))];
  mask.block_q = draw.one_of<std::uint16_t>({64, 128, 192});
  mask.block_k = draw.one_of<std::uint16_t>({64, 128, 192});
  const bool compacted_intervals =
      mask.encoding == FLASHDMA_BWD_ENCODING_INTERVALS && mask.layout == FLASHDMA_BWD_MASK_COMPACTED;
  if (compacted_intervals || !expresses_mask(spec)) mask.encoding = FLASHDMA_BWD_ENCODING_BYTES;
  mask.garbage = mask.encoding != FLASHDMA_BWD_ENCODING_BYTES && draw.once_in(2);
}

void draw_bias(Draw& draw, ProblemSpec& spec) {
  BiasSpec& bias = spec.bias;
  bias.present = true;
  bias.shape = drawn_shape(draw, draw.once_in(2));
  bias.fp32 = !bias.shape.rows && bias.shape.columns && draw.once_in(4);
  bias.minus_infinity = draw.one_of({0.0, 0.0, 0.1, 0.5});
  bias.gradient = !draw.once_in(6);
  bias.gradient_fp32 = bias.gradient && draw.once_in(4);
  if (draw.once_in(2)) {  // rows begin and, if keys allow it, end with whole copies
    bias.row_padding = bias.gradient_row_padding = (8 - spec.seqlen_k % 8) % 8;
  } else {
    bias.row_padding = draw.below(9);
    bias.gradient_row_padding = draw.below(9);
  }
}

TensorLayout drawn_layout(Draw& draw) {
  if (!draw.once_in(3)) return {};
  return {.heads_outer = draw.once_in(2),
          .row_padding = 8 * draw.below(4),
          .batch_padding = 8 * draw.below(3),
          .shift = 8 * draw.below(4)};
}

/// Whether a query, or a key's gradient, has so few pairs that dS, which has a sum of 0 in each row, may cancel to what
/// roundings leave of it.
bool may_cancel(const ProblemSpec& spec) {
  return std::min(spec.seqlen_q, spec.seqlen_k) < 64 || !spec.lengths_q.empty() || spec.window_left >= 0 ||
         spec.window_right >= 0 || spec.global_seqlen_q > 0 || spec.mask.structure != MaskStructure::none ||
         (spec.bias.present && (!spec.bias.shape.columns || spec.bias.minus_infinity > 0)) ||
         (spec.causal && spec.seqlen_q > spec.seqlen_k);
}

}  // namespace

ProblemSpec drawn_problem(std::uint64_t seed) {
  Draw draw(mix(seed));
  ProblemSpec spec;
  spec.name = "drawn";
  spec.seed = seed;
  spec.data_type = draw.one_of({FLASHDMA_BWD_FP16, FLASHDMA_BWD_BF16});
  const std::int64_t bucket = draw.below(6);
  constexpr int kBuckets[] = {0, 32, 64, 96, 128, 192, 256};
  spec.head_dim = kBuckets[bucket + 1];
  if (draw.once_in(3)) spec.head_dim -= 8 * static_cast<int>(draw.below((spec.head_dim - kBuckets[bucket]) / 8));
  if (draw.once_in(4)) spec.scale = static_cast<float>(draw.octaves(0.5, 1.5) / std::sqrt(spec.head_dim));
  if (draw.once_in(4)) spec.softcap = draw.one_of({0.5f, 3.0f, 30.0f});
  draw_heads_and_lengths(draw, spec);
  limit_work(spec);
  draw_limits(draw, spec);
  if (!draw.once_in(3)) draw_mask(draw, spec);
  if (!draw.once_in(3)) draw_bias(draw, spec);
  spec.deterministic = draw.once_in(4);
  spec.inputs = drawn_layout(draw);
  spec.outputs = drawn_layout(draw);
  spec.lse = {.heads_inner = draw.once_in(4),
              .row_padding = draw.once_in(4) ? draw.below(20) : 0,
              .base_two = draw.once_in(4),
              .empty_is_plus_infinity = draw.once_in(4)};
  spec.broadcast_d_out_rows = draw.once_in(16);
  spec.random_out = may_cancel(spec) || draw.once_in(2);
  return spec;
}

}  // namespace flashdma_bwd::testing
