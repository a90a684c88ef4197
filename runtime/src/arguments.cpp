// The rules of the problem: sizes, types, flags, and which pointers are given.
#include "arguments.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <limits>
#include <string>

#include "argument_rules.hpp"
#include "common/visibility.hpp"
#include "selection/key_layout.hpp"
#include "selection/problem_domain.hpp"

namespace flashdma_bwd {
namespace {

constexpr float kSmallestSoftcap = 1e-3f;
constexpr float kLargestSoftcap = 1e6f;

// So that an LSE over the scale, which kernels subtract from products, and a product times the scale are finite.
constexpr float kSmallestScale = 1e-20f;
constexpr float kLargestScale = 1e20f;
/// Of the scale over the softcap, whose fifth power is a coefficient of the kernels' tanh.
constexpr float kSteepestSoftcap = 1e7f;

constexpr std::int64_t kMaxCount = std::numeric_limits<std::int32_t>::max();
/// Positions in a whole sequence: sums of four of them stay in 64 bits.
constexpr std::int64_t kMaxPosition = std::int64_t{1} << 60;
constexpr std::int64_t kMaxGrid = std::numeric_limits<std::int32_t>::max();
constexpr std::uint32_t kKnownFlags = FLASHDMA_BWD_FLAG_DETERMINISTIC | FLASHDMA_BWD_FLAG_TABLE_ONLY;

/// As printf's %g: std::to_string has six digits behind the point, so that 1e-21 would be 0.
std::string number_text(float value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", static_cast<double>(value));
  return text.data();
}

/// A size that must be in 0 ... high.
Check check_size(const char* name, std::int64_t value, std::int64_t high) {
  if (value < 0) return invalid(is(name, value) + "a size must be at least 0");
  if (value > high) return unsupported(is(name, value) + "the kernels compute up to " + std::to_string(high));
  return {};
}

Check check_sizes(const flashdma_bwd_arguments& a) {
  for (const auto& [name, value] : {Named{"batch", a.batch}, Named{"heads", a.heads}, Named{"heads_kv", a.heads_kv}})
    if (Check failure = check_size(name, value, kMaxCount)) return failure;
  for (const auto& [name, value] : {Named{"seqlen_q", a.seqlen_q}, Named{"seqlen_k", a.seqlen_k}})
    if (Check failure = check_size(name, value, kLongestSequence)) return failure;
  if (a.heads_kv == 0 ? a.heads != 0 : a.heads % a.heads_kv != 0)
    return invalid(is("heads", a.heads) + "it must be a multiple of heads_kv, " + std::to_string(a.heads_kv) +
                   ", because each KV head serves the same number of query heads");
  if (a.heads == 0 && a.heads_kv != 0)
    return invalid("heads is 0 and heads_kv is " + std::to_string(a.heads_kv) +
                   ": without query heads there is no gradient of keys; set both to 0");
  if (a.head_dim <= 0 || a.head_dim % 8 != 0)
    return invalid(
        is("head_dim", a.head_dim) +
        "it must be a multiple of 8 in 8 ... 256, because rows are read 16 bytes at a time; pad the tensors' "
        "rows with zeros to the next multiple of 8");
  if (a.head_dim > kMaxHeadDim)
    return unsupported(is("head_dim", a.head_dim) + "the kernels compute up to " + std::to_string(kMaxHeadDim));
  return {};
}

Check check_numbers(const flashdma_bwd_arguments& a) {
  if (a.data_type != FLASHDMA_BWD_FP16 && a.data_type != FLASHDMA_BWD_BF16)
    return invalid(is("data_type", a.data_type) + "it must be FLASHDMA_BWD_FP16 or FLASHDMA_BWD_BF16");
  if (!std::isfinite(a.scale))
    return invalid("scale is not finite: give the factor of the scores, or 0 for 1/sqrt(head_dim)");
  if (a.softcap != 0 && !(a.softcap >= kSmallestSoftcap && a.softcap <= kLargestSoftcap))
    return invalid(
        "softcap is " + number_text(a.softcap) +
        ": it must be 0, which means none, or between 0.001 and 1000000, beyond which float32 cannot tell it "
        "from none");
  if (const float size = std::fabs(a.scale); size != 0 && !(size >= kSmallestScale && size <= kLargestScale))
    return invalid("scale is " + number_text(a.scale) +
                   ": it must be 0, which means 1/sqrt(head_dim), or between 1e-20 and 1e20 but for its sign, beyond "
                   "which float32 cannot hold the scores' terms; scale q or k instead");
  if (a.softcap != 0 && std::fabs(a.scale) > kSteepestSoftcap * a.softcap)
    return invalid("scale is " + number_text(a.scale) + " and softcap is " + number_text(a.softcap) +
                   ": their quotient must be at most 1e7, beyond which tanh is a step to float32");
  for (const auto& [name, value] : {Named{"causal", a.causal}, Named{"lse_base_two", a.lse_base_two}})
    if (value != 0 && value != 1) return invalid(is(name, value) + "it must be 0 or 1");
  if (a.mask_layout < FLASHDMA_BWD_MASK_AUTO || a.mask_layout > FLASHDMA_BWD_MASK_REORDERED)
    return invalid(is("mask_layout", a.mask_layout) + "it is no flashdma_bwd_mask_layout; 0 lets the library choose");
  if (a.mask_density < 0 || a.mask_density > 1000)
    return invalid(is("mask_density", a.mask_density) +
                   "it counts active pairs per 1000 that causality and the window leave, 0 ... 1000; 0 means unknown");
  for (const auto& [name, value] : {Named{"window_left", a.window_left}, Named{"window_right", a.window_right}})
    if (value < -1) return invalid(is(name, value) + "it must be a number of keys, or -1 for no limit");
  for (const auto& [name, value] :
       {Named{"query_offset", a.query_offset}, Named{"key_offset", a.key_offset},
        Named{"global_seqlen_q", a.global_seqlen_q}, Named{"global_seqlen_k", a.global_seqlen_k}})
    if (value < 0 || value > kMaxPosition)
      return invalid(is(name, value) + "it is a position or length in the whole sequence, 0 ... 2^60");
  if ((a.flags & ~kKnownFlags) != 0)
    return unsupported("flags has unknown bits, " + std::to_string(a.flags & ~kKnownFlags) +
                       ": this version knows FLASHDMA_BWD_FLAG_DETERMINISTIC and FLASHDMA_BWD_FLAG_TABLE_ONLY");
  return {};
}

Check check_variable_length(const flashdma_bwd_arguments& a) {
  if ((a.cu_seqlens_q == nullptr) != (a.cu_seqlens_k == nullptr))
    return invalid(std::string(a.cu_seqlens_q == nullptr ? "cu_seqlens_q" : "cu_seqlens_k") +
                   " is NULL and the other is not: give both for variable length, neither for fixed length");
  if (a.cu_seqlens_q == nullptr) return {};
  struct Packed {
    const char* total_name;
    const char* seqlen_name;
    std::int64_t total, seqlen;
  };
  for (const auto& [total_name, seqlen_name, total, seqlen] :
       {Packed{"total_q", "seqlen_q", a.total_q, a.seqlen_q}, Packed{"total_k", "seqlen_k", a.total_k, a.seqlen_k}}) {
    if (Check failure = check_size(total_name, total, kMaxCount)) return failure;
    if (a.batch == 0 && total > 0)
      return invalid(is(total_name, total) + "the packed tensors have rows of no sequence, for batch is 0; give 0");
    if (a.batch > 0 && (total == 0) != (seqlen == 0))
      return invalid(is(total_name, total) +
                     "with variable length it is the number of rows of the packed tensors, and " + seqlen_name +
                     ", the longest sequence's, is " + std::to_string(seqlen) +
                     "; give both, or 0 for both where all sequences are empty");
  }
  if ((a.global_seqlen_q == 0) != (a.global_seqlen_k == 0))
    return invalid(
        std::string(a.global_seqlen_q == 0 ? "global_seqlen_q" : "global_seqlen_k") +
        " is 0 and the other is not: with variable length give both, or neither for each sequence's own length");
  return {};
}

/// Fields that this version does not compute.
Check check_reserved(const flashdma_bwd_arguments& a) {
  struct Reserved {
    const char* name;
    bool used;
  };
  for (const auto& [name, used] :
       {Reserved{"d_lse", a.d_lse != nullptr}, Reserved{"row_dot", a.row_dot != nullptr},
        Reserved{"beta_q", a.beta_q != 0}, Reserved{"beta_k", a.beta_k != 0}, Reserved{"beta_v", a.beta_v != 0},
        Reserved{"beta_bias", a.beta_bias != 0}, Reserved{"d_q_accumulator", a.d_q_accumulator != nullptr},
        Reserved{"d_k_accumulator", a.d_k_accumulator != nullptr},
        Reserved{"d_v_accumulator", a.d_v_accumulator != nullptr}, Reserved{"sm_limit", a.sm_limit != 0},
        Reserved{"bias.encoding", a.bias.encoding != 0}, Reserved{"d_bias.encoding", a.d_bias.encoding != 0}})
    if (used)
      return unsupported(std::string(name) +
                         " is not 0: this version does not compute it; leave it as "
                         "flashdma_bwd_arguments_init set it");
  return {};
}

/// Grids have 31 bits. The side kernels take at least 8 rows, 256 chunks of 8 elements or 256 elements of dBias a
/// block.
Check check_grid(const flashdma_bwd_arguments& a) {
  const std::int64_t rows = std::max(a.seqlen_q, a.seqlen_k) / 8 + 16;
  std::int64_t blocks = 0;
  if (__builtin_mul_overflow(a.batch * a.heads, rows, &blocks) || blocks > kMaxGrid)
    return unsupported("batch " + std::to_string(a.batch) + " x heads " + std::to_string(a.heads) + " x " +
                       std::to_string(rows) +
                       " blocks of 8 rows are more than the 2147483647 blocks of a grid; split the batch or the heads");
  const std::int64_t key_rows = a.cu_seqlens_k != nullptr ? a.total_k : a.batch * a.seqlen_k;
  if (__builtin_mul_overflow(key_rows, a.heads_kv * (a.head_dim / 8), &blocks) || blocks / 256 >= kMaxGrid)
    return unsupported(std::to_string(key_rows) + " rows of K x heads_kv " + std::to_string(a.heads_kv) +
                       " x head_dim " + std::to_string(a.head_dim) +
                       " need more than the 2147483647 blocks of a grid; split the batch");
  // Statistics and dQ are kept for the padded rows of all sequences, which kernels number in 32 bits.
  const std::int64_t rows_q = a.cu_seqlens_q != nullptr ? padded_rows(a.total_q + a.batch * kScratchRowAlignment)
                                                        : a.batch * padded_rows(a.seqlen_q);
  if (rows_q > kMaxGrid)
    return unsupported("batch " + std::to_string(a.batch) + " has " + std::to_string(rows_q) +
                       " rows of Q, each sequence padded to a multiple of " + std::to_string(kScratchRowAlignment) +
                       ", which are more than the 2147483647 that kernels can number; split the batch");
  const flashdma_bwd_pair_tensor& d = a.d_bias;
  if (d.data == nullptr) return {};
  const auto too_many = [](std::int64_t queries, std::int64_t keys, std::int64_t batch, std::int64_t heads) {
    std::int64_t pairs = 0;
    std::int64_t count = 0;
    return __builtin_mul_overflow(queries, keys, &pairs) || __builtin_mul_overflow(batch * heads, pairs, &count) ||
           count / 256 >= kMaxGrid;
  };
  if (too_many(d.rows, d.columns, d.batch, d.heads))
    return unsupported(
        "d_bias has more elements than 2147483647 blocks of 256 can write; split the batch or the heads");
  const bool deterministic = (a.flags & FLASHDMA_BWD_FLAG_DETERMINISTIC) != 0;
  if (deterministic && !is_key_vector(a.bias, a.seqlen_k) && too_many(a.seqlen_q, a.seqlen_k, a.batch, a.heads))
    return unsupported(
        "the deterministic gradient of a bias with rows " + std::to_string(a.bias.rows) + " and columns " +
        std::to_string(a.bias.columns) +
        " keeps a float32 for each of batch x heads x seqlen_q x seqlen_k, which are more than 2147483647 blocks of "
        "256 can add up; split the batch or the heads, or leave FLASHDMA_BWD_FLAG_DETERMINISTIC");
  return {};
}

bool is_masked(const flashdma_bwd_arguments& a) {
  return a.plan != nullptr || a.mask.data != nullptr;
}

/// What a tensor map asks of an address and of strides. One of 0, that of the queries apart, broadcasts.
bool is_copied_tensor(const flashdma_bwd_pair_tensor& t) {
  constexpr std::int64_t kLongestStride = std::int64_t{1} << 39;  // elements
  const auto fits = [](std::int64_t size, std::int64_t stride) {
    return size <= 1 || (stride % 8 == 0 && stride >= 0 && stride < kLongestStride);
  };
  return reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0 && (t.columns == 1 || t.stride_column == 1) &&
         fits(t.batch, t.stride_batch) && fits(t.heads, t.stride_head) && fits(t.rows, t.stride_row) &&
         (t.rows == 1 || t.stride_row > 0);
}

/// The arguments with the size 1 for a dimension that repeats itself by a stride of 0: the batch and the heads of a
/// mask, seqlen_q rows and seqlen_k columns of one of bytes, rows of one of bits, and all of a bias without a gradient,
/// whose shape would be another. So a mask that is expanded over heads has one plan, not one a head.
flashdma_bwd_arguments with_broadcast_sizes(const flashdma_bwd_arguments& arguments) {
  flashdma_bwd_arguments a = arguments;
  // A size that the call does not have is left, to be refused.
  const auto shrink = [](std::int64_t& size, std::int64_t stride, std::initializer_list<std::int64_t> wholes) {
    if (stride == 0 && size > 1 && std::find(wholes.begin(), wholes.end(), size) != wholes.end()) size = 1;
  };
  const auto shrink_batch_and_heads = [&](flashdma_bwd_pair_tensor& t) {
    shrink(t.batch, t.stride_batch, {a.batch});
    shrink(t.heads, t.stride_head, {a.heads, a.heads_kv});
  };
  const auto shrink_rows = [&](flashdma_bwd_pair_tensor& t) { shrink(t.rows, t.stride_row, {a.seqlen_q}); };
  const auto shrink_columns = [&](flashdma_bwd_pair_tensor& t) { shrink(t.columns, t.stride_column, {a.seqlen_k}); };
  shrink_batch_and_heads(a.mask);
  const bool bytes = a.mask.encoding == FLASHDMA_BWD_ENCODING_BYTES;
  if (bytes || a.mask.encoding == FLASHDMA_BWD_ENCODING_BITS) shrink_rows(a.mask);
  if (bytes) shrink_columns(a.mask);
  if (a.d_bias.data == nullptr) {
    shrink_batch_and_heads(a.bias);
    shrink_rows(a.bias);
    shrink_columns(a.bias);
  }
  return a;
}

}  // namespace

bool is_key_vector(const flashdma_bwd_pair_tensor& bias, std::int64_t seqlen_k) {
  return bias.rows == 1 && bias.columns == seqlen_k;
}

Check check_problem(const flashdma_bwd_arguments* arguments) {
  if (arguments == nullptr)
    return invalid("arguments is NULL: pass a block that flashdma_bwd_arguments_init has filled");
  const flashdma_bwd_arguments& a = *arguments;
  if (a.struct_size != sizeof(flashdma_bwd_arguments))
    return invalid(is("struct_size", a.struct_size) + "this library's flashdma_bwd_arguments has " +
                   std::to_string(sizeof(flashdma_bwd_arguments)) +
                   " bytes; fill the block with flashdma_bwd_arguments_init first and compile against this library's "
                   "flashdma_bwd.h");
  for (const auto check : {check_numbers, check_sizes, check_reserved, check_variable_length, check_pairs, check_plan,
                           check_schedule, check_grid})
    if (Check failure = check(a)) return failure;
  return {};
}

Check take_problem(const flashdma_bwd_arguments* given, flashdma_bwd_arguments& arguments) {
  // Before its size is known to be this library's, nothing else of the block is read.
  if (given == nullptr || given->struct_size != sizeof(arguments)) return check_problem(given);
  arguments = with_broadcast_sizes(*given);
  return check_problem(&arguments);
}

bool has_no_rows(const flashdma_bwd_arguments& a) {
  return a.batch == 0 || a.heads == 0 || (a.seqlen_q == 0 && a.seqlen_k == 0);
}

flashdma_bwd_arguments without_idle_parts(const flashdma_bwd_arguments& arguments) {
  flashdma_bwd_arguments a = arguments;
  if (a.seqlen_q == 0 || a.seqlen_k == 0 || has_no_rows(a)) {
    a.mask.data = nullptr;
    a.plan = nullptr;
    a.schedule = nullptr;
    a.flags &= ~FLASHDMA_BWD_FLAG_DETERMINISTIC;
  }
  // Its batch and heads are those that there are, or 1.
  if (a.d_bias.rows == 0 || a.d_bias.columns == 0) a.d_bias.data = nullptr;
  return a;
}

std::optional<KeyLayout> layout_asked_for(std::int32_t mask_layout) {
  switch (mask_layout) {
    case FLASHDMA_BWD_MASK_NATURAL:
      return KeyLayout::natural;
    case FLASHDMA_BWD_MASK_COMPACTED:
      return KeyLayout::compacted;
    case FLASHDMA_BWD_MASK_REORDERED:
      return KeyLayout::reordered;
    default:
      return std::nullopt;
  }
}

KeyLayout layout_of_plan(const flashdma_bwd_mask_plan& plan) {
  if (plan.layout == FLASHDMA_BWD_LAYOUT_COMPACTED) return KeyLayout::compacted;
  return plan.layout == FLASHDMA_BWD_LAYOUT_REORDERED ? KeyLayout::reordered : KeyLayout::natural;
}

LayoutChoice layout_choice_of(const flashdma_bwd_arguments& a) {
  if (const auto asked = layout_asked_for(a.mask_layout)) return {*asked, LayoutRule::asked_for};
  const bool tile_bias = a.bias.data != nullptr && !is_key_vector(a.bias, a.seqlen_k);
  return automatic_layout(a.mask.rows == 1, tile_bias, a.seqlen_k);
}

KeyLayout key_layout_of(const flashdma_bwd_arguments& a) {
  return a.plan != nullptr ? layout_of_plan(*a.plan) : layout_choice_of(a).layout;
}

bool is_copied_bias(const flashdma_bwd_arguments& a, bool whatever_memory) {
  if (a.bias.data == nullptr || is_key_vector(a.bias, a.seqlen_k)) return false;
  // Keys that a plan has put into another order are no box of a tensor.
  if (is_masked(a) && key_layout_of(a) != KeyLayout::natural) return false;
  if (a.bias.rows != a.seqlen_q || a.bias.columns != a.seqlen_k || a.bias.rows == 0) return false;
  if (!whatever_memory && !is_copied_tensor(a.bias)) return false;
  const flashdma_bwd_pair_tensor& d = a.d_bias;
  if (d.data == nullptr) return true;
  // A copy writes 16 bytes at a time, also those behind a row's last element.
  if (d.columns % 8 != 0) return false;
  // What several pairs share is added up elsewhere, and may lie anywhere.
  const bool shared = d.batch != a.batch || d.heads != a.heads;
  return shared || whatever_memory || is_copied_tensor(d);
}

/// Queries that limits on both sides leave a key at most, or 0 where they leave all or a mask says more of it.
std::int64_t window_of(const flashdma_bwd_arguments& a) {
  const std::int64_t right = a.causal != 0 ? 0 : a.window_right;
  if (is_masked(a)) return 0;
  // Wider ones leave all, and their sum may not be a number.
  if (a.window_left < 0 || right < 0 || a.window_left >= a.seqlen_q || right >= a.seqlen_q) return 0;
  const std::int64_t width = a.window_left + right + 1;
  return width < a.seqlen_q ? width : 0;
}

Problem problem_of(const flashdma_bwd_arguments& a) {
  Problem problem;
  problem.data_type = a.data_type == FLASHDMA_BWD_FP16 ? DataType::fp16 : DataType::bf16;
  problem.head_dim = a.head_dim;
  if (a.bias.data != nullptr) problem.bias = is_key_vector(a.bias, a.seqlen_k) ? BiasKind::key_vector : BiasKind::tile;
  problem.softcap = a.softcap > 0;
  problem.causal = a.causal != 0 || a.window_left >= 0 || a.window_right >= 0;
  problem.deterministic = (a.flags & FLASHDMA_BWD_FLAG_DETERMINISTIC) != 0;
  problem.masked = is_masked(a);
  if (problem.masked) problem.layout = key_layout_of(a);
  problem.bias_copies = is_copied_bias(a, false);
  problem.mask_density = problem.masked && a.mask_density != 0 ? a.mask_density : 1000;
  problem.batch = a.batch;
  problem.heads = a.heads;
  problem.heads_kv = a.heads_kv;
  problem.seqlen_q = a.seqlen_q;
  problem.seqlen_k = a.seqlen_k;
  problem.window = window_of(a);
  return problem;
}

}  // namespace flashdma_bwd
