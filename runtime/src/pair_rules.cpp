// The rules of the tensors over pairs, mask, bias and dBias, and of mask plans.
#include <initializer_list>
#include <tuple>

#include "argument_rules.hpp"
#include "arguments.hpp"
#include "common/parameters.hpp"
#include "launch/call.hpp"
#include "launch/launch.hpp"
#include "plan_view.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd {
namespace {

/// A size that is 1 or `whole`.
Check check_broadcast(const std::string& tensor, const char* dimension, std::int64_t size, const char* whole_name,
                      std::int64_t whole) {
  if (size == 1 || size == whole) return {};
  return invalid(is(tensor + '.' + dimension, size) + "it must be 1, which broadcasts, or " + whole_name + ", " +
                 std::to_string(whole));
}

Check check_heads(const std::string& tensor, std::int64_t size, const flashdma_bwd_arguments& a) {
  if (size == 1 || size == a.heads_kv || size == a.heads) return {};
  return invalid(is(tensor + ".heads", size) + "it must be 1, which broadcasts, heads_kv, " +
                 std::to_string(a.heads_kv) + ", or heads, " + std::to_string(a.heads));
}

Check check_batch_and_heads(const char* name, const flashdma_bwd_pair_tensor& t, const flashdma_bwd_arguments& a) {
  if (Check failure = check_broadcast(name, "batch", t.batch, "batch", a.batch)) return failure;
  return check_heads(name, t.heads, a);
}

Check check_shape(const char* name, const flashdma_bwd_pair_tensor& t, const flashdma_bwd_arguments& a) {
  if (Check failure = check_batch_and_heads(name, t, a)) return failure;
  if (Check failure = check_broadcast(name, "rows", t.rows, "seqlen_q", a.seqlen_q)) return failure;
  return check_broadcast(name, "columns", t.columns, "seqlen_k", a.seqlen_k);
}

/// A mask of key lists has a row of so many keys at most.
constexpr std::int64_t kLongestKeyList = std::int64_t{1} << 30;

Check check_key_lists(const flashdma_bwd_pair_tensor& mask) {
  if (mask.rows != 1)
    return invalid(is("mask.rows", mask.rows) +
                   "it must be 1, because all queries see the keys of a list of FLASHDMA_BWD_ENCODING_KEY_LIST");
  if (mask.columns < 0 || mask.columns > kLongestKeyList)
    return invalid(is("mask.columns", mask.columns) +
                   "it is the length of the lists of FLASHDMA_BWD_ENCODING_KEY_LIST, 0 ... 2^30");
  return {};
}

Check check_blocks(const flashdma_bwd_arguments& a) {
  for (const auto& [name, size] : {Named{"mask_block_q", a.mask_block_q}, Named{"mask_block_k", a.mask_block_k}})
    if (size == 0 || size % kMaskAtom != 0)
      return invalid(
          is(name, size) +
          "the blocks of a mask of FLASHDMA_BWD_ENCODING_BLOCKS have multiples of 64 queries and keys, 65472 "
          "at most; give a mask of smaller blocks as bits, and one of larger blocks as several");
  const auto blocks = [](std::int64_t length, std::int64_t block) { return (length + block - 1) / block; };
  if (Check failure = check_broadcast("mask", "rows", a.mask.rows, "ceil(seqlen_q / mask_block_q)",
                                      blocks(a.seqlen_q, a.mask_block_q)))
    return failure;
  return check_broadcast("mask", "columns", a.mask.columns, "ceil(seqlen_k / mask_block_k)",
                         blocks(a.seqlen_k, a.mask_block_k));
}

Check check_mask(const flashdma_bwd_arguments& a) {
  const flashdma_bwd_pair_tensor& mask = a.mask;
  if (!is_encoding(mask.encoding))
    return invalid(is("mask.encoding", mask.encoding) +
                   "it is no flashdma_bwd_mask_encoding; 0 is that of bytes, one a pair");
  if (mask.encoding != FLASHDMA_BWD_ENCODING_BLOCKS)
    for (const auto& [name, size] : {Named{"mask_block_q", a.mask_block_q}, Named{"mask_block_k", a.mask_block_k}})
      if (size != 0)
        return invalid(is(name, size) +
                       "only a mask of FLASHDMA_BWD_ENCODING_BLOCKS has blocks, and mask.encoding is " +
                       std::to_string(mask.encoding) + "; set one of the two");
  if (Check failure = check_batch_and_heads("mask", mask, a)) return failure;
  switch (mask.encoding) {
    case FLASHDMA_BWD_ENCODING_KEY_LIST:
      return check_key_lists(mask);
    case FLASHDMA_BWD_ENCODING_INTERVALS:
      if (mask.rows != 2)
        return invalid(is("mask.rows", mask.rows) +
                       "it must be 2, the begins and the ends of the intervals of FLASHDMA_BWD_ENCODING_INTERVALS");
      return check_broadcast("mask", "columns", mask.columns, "seqlen_k", a.seqlen_k);
    case FLASHDMA_BWD_ENCODING_BLOCKS:
      return check_blocks(a);
    default:
      return check_shape("mask", mask, a);
  }
}

Check check_bias(const flashdma_bwd_arguments& a) {
  if (Check failure = check_shape("bias", a.bias, a)) return failure;
  if (a.bias.data_type == a.data_type) return {};
  if (a.bias.data_type != FLASHDMA_BWD_FP32)
    return invalid(is("bias.data_type", a.bias.data_type) + "it must be data_type, " + std::to_string(a.data_type) +
                   ", or FLASHDMA_BWD_FP32 where the bias is one value per key");
  if (!is_key_vector(a.bias, a.seqlen_k))
    return invalid("bias.data_type is FLASHDMA_BWD_FP32, which needs rows 1 and columns seqlen_k, " +
                   std::to_string(a.seqlen_k) + ", and the bias has rows " + std::to_string(a.bias.rows) +
                   " and columns " + std::to_string(a.bias.columns) +
                   ", where a stride of 0 counts as 1: convert it to data_type");
  return {};
}

Check check_d_bias(const flashdma_bwd_arguments& a) {
  if (a.bias.data == nullptr)
    return invalid("d_bias.data is given and bias.data is NULL: without a bias there is no gradient of it");
  struct Dimension {
    const char* name;
    std::int64_t gradient, bias;
  };
  for (const auto& [name, gradient, bias] :
       {Dimension{"batch", a.d_bias.batch, a.bias.batch}, Dimension{"heads", a.d_bias.heads, a.bias.heads},
        Dimension{"rows", a.d_bias.rows, a.bias.rows}, Dimension{"columns", a.d_bias.columns, a.bias.columns}})
    if (gradient != bias)
      return invalid(is(std::string("d_bias.") + name, gradient) + "it must be bias." + name + ", " +
                     std::to_string(bias) + ", because the gradient has the bias's shape");
  if (a.d_bias.data_type != a.bias.data_type && a.d_bias.data_type != FLASHDMA_BWD_FP32)
    return invalid(is("d_bias.data_type", a.d_bias.data_type) + "it must be bias.data_type, " +
                   std::to_string(a.bias.data_type) + ", or FLASHDMA_BWD_FP32");
  return {};
}

/// The end of a plan's limits, which is a sentinel where there is none.
std::string offset_text(std::int64_t offset) {
  return offset <= -kUnlimited || offset >= kUnlimited ? "unlimited" : std::to_string(offset);
}

std::string mask_text(std::int32_t encoding, std::int64_t batch, std::int64_t heads, std::int64_t rows) {
  return std::string(encoding_name(encoding)) + " with batch " + std::to_string(batch) + ", heads " +
         std::to_string(heads) + " and rows " + std::to_string(rows);
}

}  // namespace

Check check_pairs(const flashdma_bwd_arguments& a) {
  if (a.mask.data != nullptr) {
    if (Check failure = check_mask(a)) return failure;
    if (a.plan == nullptr && a.mask_layout == FLASHDMA_BWD_MASK_COMPACTED && a.mask.rows != 1)
      return invalid(is("mask_layout", a.mask_layout) +
                     "FLASHDMA_BWD_MASK_COMPACTED needs a mask with one row, and mask.rows is " +
                     std::to_string(a.mask.rows));
  } else if (a.plan == nullptr && a.mask.encoding != FLASHDMA_BWD_ENCODING_BYTES) {
    // A list without keys keeps nothing, and an allocator may have no address for it: that must not become no mask.
    return invalid("mask.data is NULL and mask.encoding is " + std::to_string(a.mask.encoding) +
                   (is_encoding(a.mask.encoding) ? ", " + std::string(encoding_name(a.mask.encoding)) : std::string()) +
                   ": clear encoding for no mask; an empty list needs any non-NULL address");
  } else if (a.plan == nullptr && (a.mask_block_q != 0 || a.mask_block_k != 0)) {
    return invalid("mask.data is NULL and mask_block_q is " + std::to_string(a.mask_block_q) + ", mask_block_k " +
                   std::to_string(a.mask_block_k) + ": give the mask of these blocks, or clear both for no mask");
  }
  if (a.bias.data != nullptr)
    if (Check failure = check_bias(a)) return failure;
  if (a.d_bias.data != nullptr)
    if (Check failure = check_d_bias(a)) return failure;
  return {};
}

Check check_plan(const flashdma_bwd_arguments& a) {
  if (a.plan == nullptr) return {};
  const flashdma_bwd_mask_plan& plan = *a.plan;
  if (Check failure = check_plan_struct(plan)) return failure;
  if (Check failure = check_broadcast("plan", "batch", plan.batch, "batch", a.batch)) return failure;
  if (Check failure = check_heads("plan", plan.heads, a)) return failure;
  for (const auto& [name, planned, called] :
       {std::tuple{"seqlen_q", plan.seqlen_q, a.seqlen_q}, std::tuple{"seqlen_k", plan.seqlen_k, a.seqlen_k}})
    if (planned != called)
      return invalid(is(std::string("plan.") + name, planned) + "the call's is " + std::to_string(called) +
                     "; build a plan for these lengths");
  if (const auto asked = layout_asked_for(a.mask_layout); asked && *asked != layout_of_plan(plan))
    return invalid(is("mask_layout", a.mask_layout) + "it asks for keys that are " + std::string(word(*asked)) +
                   ", and those of the plan are " + std::string(word(layout_of_plan(plan))) +
                   "; give FLASHDMA_BWD_MASK_AUTO, which takes a plan as it is, or build a plan with this mask_layout");
  const flashdma_bwd_pair_tensor& mask = a.mask;
  if (mask.data != nullptr && (plan.encoding != mask.encoding || plan.rows != mask.rows || plan.batch != mask.batch ||
                               plan.heads != mask.heads))
    return invalid("plan is of another mask: it was built of " +
                   mask_text(plan.encoding, plan.batch, plan.heads, plan.rows) + ", and mask is " +
                   mask_text(mask.encoding, mask.batch, mask.heads, mask.rows) +
                   "; build a plan of this mask, or leave mask.data NULL");
  if (Check failure = check_plan_memory(plan, mask_plan_bytes(a))) return failure;
  if (const Limits limits = mask_limits(a); limits.low < plan.lowest_offset || limits.high > plan.highest_offset)
    return invalid("plan was built for narrower limits: it holds the pairs with key - query in " +
                   offset_text(plan.lowest_offset) + " ... " + offset_text(plan.highest_offset) +
                   ", and the call's causality, window and offsets leave " + offset_text(limits.low) + " ... " +
                   offset_text(limits.high) + "; build the plan with the widest limits of its calls");
  return {};
}

Check check_schedule(const flashdma_bwd_arguments& a) {
  if (a.schedule == nullptr) return {};
  const flashdma_bwd_schedule& schedule = *a.schedule;
  if (schedule.struct_size != sizeof(flashdma_bwd_schedule))
    return invalid(is("schedule.struct_size", schedule.struct_size) + "flashdma_bwd_schedule_build sets it to " +
                   std::to_string(sizeof(flashdma_bwd_schedule)) + "; build the schedule with this library");
  if (a.plan == nullptr)
    return invalid("schedule is given and plan is NULL: give the plan that the schedule was built of, too");
  if (Check failure = check_may_be_scheduled(a)) return failure;
  if (schedule.building != a.plan->building)
    return invalid("schedule is of another building of a plan: it was built of number " +
                   std::to_string(schedule.building) + ", and plan.building is " + std::to_string(a.plan->building) +
                   "; build a schedule of this plan, or leave schedule NULL");
  if (schedule.bytes > 0 &&
      (schedule.memory == nullptr || reinterpret_cast<std::uintptr_t>(schedule.memory) % 256 != 0))
    return invalid(
        "schedule.memory must be device memory that is 256-byte aligned, as it was for flashdma_bwd_schedule_build");
  return {};
}

Check check_may_be_scheduled(const flashdma_bwd_arguments& a) {
  if (a.cu_seqlens_q != nullptr)
    return unsupported(
        "a call of variable length has no schedule, for its lengths lie on the device; leave schedule NULL");
  if ((a.flags & FLASHDMA_BWD_FLAG_DETERMINISTIC) != 0)
    return unsupported("a deterministic call has no schedule; leave schedule NULL");
  return {};
}

}  // namespace flashdma_bwd
