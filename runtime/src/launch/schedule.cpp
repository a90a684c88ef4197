// The schedule of a call: its parts, and what calls that share one have in common.
#include "launch/schedule.hpp"

#include "number_hash.hpp"

namespace flashdma_bwd {

std::int32_t* take_schedule(BackwardParameters& p, WorkspaceParts& parts) {
  // A compacted plan's keys are all active: nothing is listed of it.
  if (p.mask_classes != nullptr) {
    const std::int64_t lists = std::int64_t{p.batch} * p.list_heads * p.key_tiles;
    p.list_counts = parts.take<std::int32_t>(lists);
    p.list_times = parts.take<std::int32_t>(lists);
    p.list_entries = parts.take<std::uint32_t>(lists * p.query_tiles);
  }
  if (p.piece_slots == 0) return nullptr;
  p.work = parts.take<WorkItem>(p.ctas - p.whole_items);
  p.item_steps = parts.take<std::int32_t>(p.items - p.whole_items);
  // Where dK and dV of several items are added up no piece is summed later.
  const bool adds_items = p.heads / p.heads_per_item != p.heads_kv;
  p.slot_entries = parts.take<std::int32_t>(adds_items ? 0 : later_slots(p));
  return parts.take<std::int32_t>(std::int64_t{p.piece_slots} * kPieceParts);
}

std::uint64_t schedule_hash(const BackwardParameters& p) {
  const auto number = [](auto value) { return static_cast<std::uint64_t>(value); };
  return number_hash({
      number(p.batch),
      number(p.heads),
      number(p.heads_kv),
      number(p.head_dim),
      number(p.seqlen_q),
      number(p.seqlen_k),
      number(p.position_delta),
      number(p.delta_from_lengths),
      number(p.window_left),
      number(p.window_right),
      // Tiles and items.
      number(p.block_m),
      number(p.block_n),
      number(p.key_tiles),
      number(p.query_tiles),
      number(p.heads_per_item),
      number(p.items),
      number(p.order.block_groups),
      number(p.order.tail_groups),
      number(p.leaves_out_halves),
      // How they are cut.
      number(p.running),
      number(p.overhead),
      number(p.scratch_rows),
      number(p.whole_items),
      number(p.ctas),
      number(p.piece_steps),
      number(p.piece_slots),
      // How the plan is read.
      number(p.mask_heads_per_head),
      number(p.list_heads),
      number(p.list_heads_per_head),
      number(p.compact_batch_stride),
      number(p.active_batch_stride),
      number(p.mask_batch_stride),
      number(p.limits_in_mask),
  });
}

}  // namespace flashdma_bwd
