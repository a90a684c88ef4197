// A plan without a call: the rules of its struct, where its parts lie, and what it promises.
#include "plan_view.hpp"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string>

#include "argument_rules.hpp"
#include "common/parameters.hpp"
#include "plan/mask_plan.hpp"
#include "plan/reordered_plan.hpp"
#include "selection/problem_domain.hpp"

namespace flashdma_bwd {
namespace {

// What the C header promises of the parts is what the plan kernels write.
static_assert(sizeof(flashdma_bwd_key_order) == sizeof(KeyOrder) &&
              offsetof(flashdma_bwd_key_order, keys) == offsetof(KeyOrder, keys) &&
              offsetof(flashdma_bwd_key_order, natural) == offsetof(KeyOrder, natural) &&
              offsetof(flashdma_bwd_key_order, natural_tiles) == offsetof(KeyOrder, natural_tiles) &&
              offsetof(flashdma_bwd_key_order, ordered_tiles) == offsetof(KeyOrder, ordered_tiles));
static_assert(sizeof(flashdma_bwd_key_range) == sizeof(KeyAtomRange) &&
              offsetof(flashdma_bwd_key_range, first_key) == offsetof(KeyAtomRange, first_position) &&
              offsetof(flashdma_bwd_key_range, last_key) == offsetof(KeyAtomRange, last_position) &&
              offsetof(flashdma_bwd_key_range, query_begin) == offsetof(KeyAtomRange, query_begin) &&
              offsetof(flashdma_bwd_key_range, query_end) == offsetof(KeyAtomRange, query_end));
static_assert(static_cast<int>(MaskClass::empty) == 0 && static_cast<int>(MaskClass::partial) == 1 &&
              static_cast<int>(MaskClass::full) == 2 && kMaskAtom == 64);

/// Tiles that key orders count: of 64 queries x 128 keys.
constexpr std::int64_t kCountedQueries = 64;
constexpr std::int64_t kCountedKeys = 128;

/// Rows of all masks of a plan at most.
constexpr std::int64_t kMostRows = std::int64_t{1} << 34;

std::size_t bytes_of(const flashdma_bwd_mask_plan& plan) {
  const std::int64_t masks = plan.batch * plan.heads;
  switch (plan.layout) {
    case FLASHDMA_BWD_LAYOUT_COMPACTED:
      return compacted_plan_layout(masks, plan.seqlen_k).bytes;
    case FLASHDMA_BWD_LAYOUT_REORDERED:
      return reordered_plan_layout(masks, plan.seqlen_q, plan.seqlen_k).bytes;
    default:
      return natural_plan_layout(masks, plan.seqlen_q, plan.seqlen_k).bytes;
  }
}

/// A plan without a call whose sizes it has to have.
Check check_lonely_plan(const flashdma_bwd_mask_plan* plan) {
  if (plan == nullptr) return invalid("plan is NULL: give one that flashdma_bwd_plan_build has filled");
  if (Check failure = check_plan_struct(*plan)) return failure;
  for (const auto& [name, size] : {Named{"plan.batch", plan->batch}, Named{"plan.heads", plan->heads},
                                   Named{"plan.seqlen_q", plan->seqlen_q}, Named{"plan.seqlen_k", plan->seqlen_k}})
    if (size < 0 || size > kLongestSequence)
      return invalid(is(name, size) + "no plan has it, 0 ... " + std::to_string(kLongestSequence) +
                     "; build the plan with flashdma_bwd_plan_build");
  // No call has more, see check_grid; bytes stay in 64 bits.
  if (plan->batch * plan->heads > kMostRows / std::max<std::int64_t>({plan->seqlen_q, plan->seqlen_k, 1}))
    return invalid("plan has batch " + std::to_string(plan->batch) + ", heads " + std::to_string(plan->heads) +
                   " and sequences of " + std::to_string(std::max(plan->seqlen_q, plan->seqlen_k)) +
                   ", more rows than any call; build the plan with flashdma_bwd_plan_build");
  return check_plan_memory(*plan, bytes_of(*plan));
}

template <class T>
const T* part(const flashdma_bwd_mask_plan& plan, std::size_t offset) {
  // A plan of no bytes may have no memory, and has no parts.
  return plan.memory == nullptr ? nullptr
                                : reinterpret_cast<const T*>(static_cast<const std::byte*>(plan.memory) + offset);
}

}  // namespace

Check check_plan_struct(const flashdma_bwd_mask_plan& plan) {
  if (plan.struct_size != sizeof(flashdma_bwd_mask_plan))
    return invalid(is("plan.struct_size", plan.struct_size) + "flashdma_bwd_plan_build sets it to " +
                   std::to_string(sizeof(flashdma_bwd_mask_plan)) + "; build the plan with this library");
  if (plan.layout < FLASHDMA_BWD_LAYOUT_NATURAL || plan.layout > FLASHDMA_BWD_LAYOUT_REORDERED)
    return invalid(is("plan.layout", plan.layout) +
                   "it is no flashdma_bwd_key_layout; build the plan with "
                   "flashdma_bwd_plan_build");
  if (!is_encoding(plan.encoding))
    return invalid(is("plan.encoding", plan.encoding) +
                   "it is no flashdma_bwd_mask_encoding; build the plan with flashdma_bwd_plan_build");
  return {};
}

Check check_plan_memory(const flashdma_bwd_mask_plan& plan, std::size_t needed) {
  if (needed == 0) return {};
  if (plan.memory == nullptr || reinterpret_cast<std::uintptr_t>(plan.memory) % 256 != 0)
    return invalid("plan.memory must be device memory that is 256-byte aligned, as it was for flashdma_bwd_plan_build");
  if (plan.bytes < needed)
    return invalid("plan.bytes is " + std::to_string(plan.bytes) + ": a plan of this shape has " +
                   std::to_string(needed) + " bytes; build it with flashdma_bwd_plan_build");
  return {};
}

Check view_plan(const flashdma_bwd_mask_plan* plan, flashdma_bwd_plan_parts& parts) {
  if (Check failure = check_lonely_plan(plan)) return failure;
  const std::int64_t masks = plan->batch * plan->heads;
  parts = {};
  parts.struct_size = sizeof parts;
  parts.layout = plan->layout;
  parts.batch = plan->batch;
  parts.heads = plan->heads;
  parts.seqlen_q = plan->seqlen_q;
  parts.seqlen_k = plan->seqlen_k;
  parts.query_atoms = mask_atoms(plan->seqlen_q);
  parts.key_atoms = mask_atoms(plan->seqlen_k);
  if (plan->layout == FLASHDMA_BWD_LAYOUT_COMPACTED) {
    const CompactedPlanLayout layout = compacted_plan_layout(masks, plan->seqlen_k);
    parts.counts = part<std::int32_t>(*plan, layout.counts);
    parts.keys = part<std::int32_t>(*plan, layout.keys);
  } else if (plan->layout == FLASHDMA_BWD_LAYOUT_REORDERED) {
    const ReorderedPlanLayout layout = reordered_plan_layout(masks, plan->seqlen_q, plan->seqlen_k);
    parts.orders = part<flashdma_bwd_key_order>(*plan, layout.orders);
    parts.keys = part<std::int32_t>(*plan, layout.keys);
    parts.ranges = part<flashdma_bwd_key_range>(*plan, layout.ranges);
    parts.classes = part<std::uint8_t>(*plan, layout.classes);
    parts.words = part<std::uint64_t>(*plan, layout.words);
  } else {
    const NaturalPlanLayout layout = natural_plan_layout(masks, plan->seqlen_q, plan->seqlen_k);
    parts.classes = part<std::uint8_t>(*plan, layout.classes);
    parts.words = part<std::uint64_t>(*plan, layout.words);
  }
  return {};
}

Check summarize_plan(const flashdma_bwd_mask_plan* plan, const flashdma_bwd_key_order* orders,
                     flashdma_bwd_plan_summary& summary) {
  if (Check failure = check_lonely_plan(plan)) return failure;
  if (plan->layout != FLASHDMA_BWD_LAYOUT_REORDERED)
    return unsupported(is("plan.layout", plan->layout) +
                       "only a reordered plan, FLASHDMA_BWD_LAYOUT_REORDERED, counts its tiles; build one with "
                       "mask_layout FLASHDMA_BWD_MASK_REORDERED to know them");
  const std::int64_t masks = plan->batch * plan->heads;
  if (orders == nullptr && masks > 0)
    return invalid("orders is NULL: give a copy in host memory of the first " +
                   std::to_string(masks * static_cast<std::int64_t>(sizeof *orders)) + " bytes of plan.memory");
  const std::int64_t tiles =
      (plan->seqlen_q + kCountedQueries - 1) / kCountedQueries * ((plan->seqlen_k + kCountedKeys - 1) / kCountedKeys);
  summary = {};
  summary.struct_size = sizeof summary;
  summary.masks = masks;
  summary.all_tiles = masks * tiles;
  for (std::int64_t mask = 0; mask < masks; ++mask) {
    const flashdma_bwd_key_order& order = orders[mask];
    struct Number {
      const char* name;
      std::int64_t value, most;
    };
    for (const auto& [name, value, most] :
         {Number{"keys", order.keys, plan->seqlen_k}, Number{"natural", order.natural, 1},
          Number{"natural_tiles", order.natural_tiles, tiles}, Number{"ordered_tiles", order.ordered_tiles, tiles}})
      if (value < 0 || value > most)
        return invalid(is("orders[" + std::to_string(mask) + "]." + name, value) + "a plan of this shape has 0 ... " +
                       std::to_string(most) + "; copy the orders from plan.memory when the building has run");
    summary.reordered_masks += order.natural == 0 ? 1 : 0;
    summary.keys += order.keys;
    summary.natural_tiles += order.natural_tiles;
    summary.predicted_tiles += order.natural != 0 ? order.natural_tiles : order.ordered_tiles;
  }
  return {};
}

}  // namespace flashdma_bwd
