// The item of a CTA: which keys of which heads, and which query tiles see them.
#pragma once

#include <cstring>

#include "common/fragments.hpp"
#include "common/parameters.hpp"
#include "common/registers.cuh"
#include "common/tile_step.hpp"
#include "common/visibility.hpp"

namespace flashdma_bwd {

/// A tile of keys of one (batch, group of query heads).
struct KeyItem {
  SequenceRows sequence;
  Limits limits;
  int batch;
  int key_tile;
  int head_item;  ///< number of the group of heads
  int head_kv;    ///< theirs
  int keys;       ///< of this tile; fewer than block_n at the end of the sequence
  int first_position;
  int last_position;
  int listed_steps;            ///< of the first head, where lists say which query tiles are active
  const std::int32_t* active;  ///< the tile's keys where they are not neighbours
  int piece;                   ///< which of the item's pieces this is,
  int pieces;                  ///< of how many
  int slot;                    ///< of the item's first piece, where it has several
  bool summed_later;           ///< its pieces leave rows, which a kernel behind the main one adds up
  int first_step;              ///< of all steps of its heads, one head after the other, the piece takes
  int end_step;                ///< [first_step, end_step)
};

/// The query tiles of one head of an item, in the order in which they are taken.
struct HeadWalk {
  int head;
  int count;        ///< query tiles that the piece takes
  int end_step;     ///< the item's steps up to this head's last
  int begin;        ///< without a list: the first
  int whole_begin;  ///< without a list: tiles in [whole_begin, whole_end) have no masked pair
  int whole_end;
  int start;       ///< slot where the walk begins; it wraps, so that CTAs do not add to the same dQ tile at once
  bool backwards;  ///< from the last slot to the first
  const std::uint32_t* entries;  ///< the list, or nullptr
  const std::int32_t* ranks;     ///< deterministic mode: whose turn this item's addition to a query tile is
};

__device__ __forceinline__ int slot_of(const HeadWalk& walk, int step) {
  if (walk.backwards) return walk.count - 1 - step;
  const int slot = step + walk.start;
  return slot < walk.count ? slot : slot - walk.count;
}

/// Without a list, either half of the keys is taken for what the tile is.
__device__ __forceinline__ TileStep step_of(const HeadWalk& walk, int step) {
  const int slot = slot_of(walk, step);
  if (walk.entries != nullptr) return step_of_entry(walk.entries[slot]);
  const int tile = walk.begin + slot;
  const bool partial = tile < walk.whole_begin || tile >= walk.whole_end;
  const StepFacts half = partial ? kSomeActive | kSomeMasked : kSomeActive;
  return {tile, facts_of_halves(half, half)};
}

/// What is known of a query tile's pairs with a half of an item's keys, by the limits alone. Keys that the last tile
/// lacks are masked.
__device__ __forceinline__ StepFacts facts_by_limits(const KeyItem& item, int half, int tile, int block_m) {
  constexpr int kKeysOfHalf = kKeysOfTwoHalves / 2;
  const int first = item.first_position + half * kKeysOfHalf;
  const int last = min(first + kKeysOfHalf - 1, item.last_position);
  const MaskClass pairs = class_by_limits(item.limits, item.sequence.length_q, first, last, tile, block_m);
  const bool lacks_keys = last - first + 1 < kKeysOfHalf;
  return facts_of_half(pairs == MaskClass::full && lacks_keys ? MaskClass::partial : pairs, false);
}

/// As step_of(), but without a list, where the keys are neighbours, each half is taken for what its own pairs are.
__device__ __forceinline__ TileStep step_of_halves(const HeadWalk& walk, const KeyItem& item, int step, int block_m) {
  TileStep found = step_of(walk, step);
  if (walk.entries == nullptr && item.active == nullptr && found.is_partial())
    found.facts =
        facts_of_halves(facts_by_limits(item, 0, found.tile, block_m), facts_by_limits(item, 1, found.tile, block_m));
  return found;
}

/// The list of the query tiles that are active with an item's keys and a head.
__device__ __forceinline__ std::int64_t list_of(const BackwardParameters& p, const KeyItem& item, int head) {
  return (static_cast<std::int64_t>(item.batch) * p.list_heads + p.by.heads_per_list.quotient(head)) * p.key_tiles +
         item.key_tile;
}

/// The item whose place is in `key_tile` and, for the group, `head_item`: memory, for the registers. What of it is
/// taken is left to take_whole() and find_item(). False: there are no such keys.
__device__ inline bool find_placed_item(KeyItem& item, const BackwardParameters& p, int block_n) {
  item.batch = p.by.head_items.quotient(item.head_item);
  item.head_item -= item.batch * p.head_items;
  const int head = item.head_item * p.heads_per_item;
  item.head_kv = p.by.heads_per_kv.quotient(head);
  // Beside CTAs that keep the memory busy a read takes a microsecond: this one is under way while the keys are counted.
  const int listed_steps = p.list_counts != nullptr ? p.list_counts[list_of(p, item, head)] : 0;
  ptx::reread_memory();
  item.sequence = sequence_of(p, item.batch);
  ptx::reread_memory();
  item.limits = limits_of(p, item.sequence);
  ptx::reread_memory();

  const KeyList list = keys_of(p, item.batch, p.by.heads_per_mask.quotient(head), item.sequence);
  item.active = list.keys;
  item.keys = list.count;
  item.listed_steps = listed_steps;
  ptx::reread_memory();
  const int first_key = item.key_tile * block_n;
  if (item.active != nullptr) item.active += first_key;
  item.keys = min(block_n, item.keys - first_key);
  if (item.keys <= 0) return false;
  item.first_position = first_key;
  item.last_position = first_key + item.keys - 1;
  // Of scattered keys they only say which query tiles see any, which a list says, too.
  if (item.active != nullptr && p.list_entries == nullptr) {
    item.first_position = item.active[0];
    item.last_position = item.active[item.keys - 1];
  }
  return true;
}

/// Makes a placed item one that is not cut.
__device__ __forceinline__ void take_whole(KeyItem& item) {
  item.piece = 0;
  item.pieces = 1;
  item.slot = 0;
  item.summed_later = false;
  item.first_step = 0;
  item.end_step = kAllSteps;
}

/// Whether items are taken by groups of heads, whatever the order: reordered masks leave so few tiles that all start at
/// once.
__device__ __forceinline__ bool stays_grouped(const BackwardParameters& p) {
  return p.key_orders != nullptr && p.key_orders->natural == 0 && p.key_orders->keys <= p.most_grouped_keys;
}
__device__ __forceinline__ ItemPlace place_of_item(const BackwardParameters& p, int index, bool grouped) {
  if (!grouped) return p.places.of(index);
  const int group = p.by.key_tiles.quotient(index);
  return {index - group * p.key_tiles, group};
}

/// All of the item of a number. False: there are no such keys.
__device__ inline bool find_whole_item(KeyItem& item, const BackwardParameters& p, int index, int block_n) {
  const ItemPlace place = place_of_item(p, index, stays_grouped(p));
  item.key_tile = place.key_tile;
  item.head_item = place.group;
  take_whole(item);
  ptx::reread_memory();
  return find_placed_item(item, p, block_n);
}

/// The index-th entry of the work table.
__device__ __forceinline__ WorkItem work_item(const BackwardParameters& p, int index) {
  // Its words in two loads, at the same time: what follows waits for these only.
  const auto* const entry = reinterpret_cast<const int4*>(p.work + index);
  WorkItem work;
  const int4 words[] = {__ldcg(entry), __ldcg(entry + 1)};
  static_assert(sizeof work == sizeof words);
  memcpy(&work, &words, sizeof work);
  return work;
}

/// The item of the index-th CTA, or its piece of one. False: it has nothing to do.
__device__ inline bool find_item(KeyItem& item, const BackwardParameters& p, int index, int block_n) {
  if (index < p.whole_items) return find_whole_item(item, p, index, block_n);
  const WorkItem work = work_item(p, index - p.whole_items);
  if (work.item < 0) return false;
  item.key_tile = work.key_tile;
  item.head_item = work.group;
  item.piece = work.piece;
  item.pieces = work.pieces;
  item.summed_later = work.slot < 0;
  item.slot = work.slot < 0 ? ~work.slot : work.slot;
  item.first_step = work.pieces > 1 ? work.first_step : 0;
  item.end_step = work.pieces > 1 ? work.end_step : kAllSteps;
  ptx::reread_memory();
  return find_placed_item(item, p, block_n);
}

/// Where a piece of the item keeps its part of dK and dV, of `kFloats`; the parts of a slot lie one after the other.
template <int kFloats>
__device__ __forceinline__ float4* piece_part(const BackwardParameters& p, const KeyItem& item, int piece, int part,
                                              int parts) {
  return reinterpret_cast<float4*>(p.piece_sums) +
         (static_cast<std::int64_t>(item.slot + piece) * parts + part) * (kFloats / 4);
}
/// A counter of arrivals for a `part` of each of the item's pieces; what is counted there says who adds the parts up.
__device__ __forceinline__ std::int32_t* piece_arrivals(const BackwardParameters& p, const KeyItem& item, int piece,
                                                        int part) {
  return p.piece_arrivals + static_cast<std::int64_t>(item.slot + piece) * kPieceParts + part;
}

/// The key of a row of the item's tile; kPastEnd past the end.
__device__ __forceinline__ int position_of_row(const KeyItem& item, int row) {
  return row >= item.keys ? kPastEnd : item.active != nullptr ? item.active[row] : item.first_position + row;
}

/// Whether the item's pieces add up dK and dV themselves.
__device__ __forceinline__ bool is_added_up(const KeyItem& item) {
  return item.pieces > 1 && !item.summed_later;
}
/// Whether dK and dV leave the item as float32 rows, which are added up behind the main kernel: those of its pieces, or
/// of all items of a KV head.
__device__ __forceinline__ bool leaves_as_floats(const BackwardParameters& p, const KeyItem& item) {
  return item.summed_later || p.d_k_partial != nullptr;
}
/// The rows of dK, or of dV (`value`), of one of the item's pieces; of head_dim columns each.
__device__ __forceinline__ float* piece_rows(const BackwardParameters& p, const KeyItem& item, int piece, bool value) {
  return p.piece_sums + (std::int64_t{item.slot + piece} * 2 + (value ? 1 : 0)) * p.block_n * p.head_dim;
}
/// The same of the item's sequence, of all items of its heads.
__device__ __forceinline__ float* partial_rows(const BackwardParameters& p, const KeyItem& item, bool value) {
  return (value ? p.d_v_partial : p.d_k_partial) + (item.head_item * p.key_rows + item.sequence.key_row) * p.head_dim;
}
/// Where an item leaves those: the rows of its piece in their order, or of its sequence by key.
__device__ __forceinline__ float* float_rows(const BackwardParameters& p, const KeyItem& item, bool value) {
  return item.summed_later ? piece_rows(p, item, item.piece, value) : partial_rows(p, item, value);
}
/// Which of these is that of a row of the item's tile; kPastEnd: none.
__device__ __forceinline__ int float_row(const KeyItem& item, int row) {
  const int key = position_of_row(item, row);
  return item.summed_later && key != kPastEnd ? row : key;
}

/// The row of a key in one of K, V, dK, dV.
__device__ __forceinline__ std::uint16_t* key_row_address(const BackwardParameters& p, const KeyItem& item,
                                                          const TensorView& tensor, int key) {
  const bool packed = p.cu_seqlens_k != nullptr;
  return static_cast<std::uint16_t*>(tensor.data) + (packed ? 0 : item.batch * tensor.stride_batch) +
         (item.sequence.row_k + key) * tensor.stride_row + item.head_kv * tensor.stride_head;
}

/// The walk of the h-th of the item's heads. Heads are asked for in order, from the first on: `walk` keeps count of the
/// steps.
__device__ inline void find_head(HeadWalk& walk, const KeyItem& item, const BackwardParameters& p, int h, int block_m,
                                 int block_n) {
  const int head = item.head_item * p.heads_per_item + h;
  walk.head = head;
  walk.entries = nullptr;
  walk.ranks = nullptr;
  if (p.list_entries != nullptr) {
    const std::int64_t list = list_of(p, item, head);
    walk.entries = p.list_entries + list * p.query_tiles;
    walk.ranks = p.list_ranks == nullptr ? nullptr : p.list_ranks + list * p.query_tiles;
    walk.count = h == 0 ? item.listed_steps : p.list_counts[list];
  } else {
    const TileRange seen =
        visible_query_tiles(item.limits, item.sequence.length_q, item.first_position, item.last_position, block_m);
    walk.begin = seen.begin;
    walk.count = seen.end - seen.begin;
    const TileRange whole =
        whole_query_tiles(item.limits, item.sequence.length_q, item.first_position, item.last_position, block_m);
    walk.whole_begin = whole.begin;
    walk.whole_end = item.keys == block_n ? whole.end : whole.begin;
  }
  const int before = h == 0 ? 0 : walk.end_step;
  walk.end_step = before + walk.count;
  if (item.pieces > 1) {
    const int first = max(item.first_step - before, 0);
    walk.count = max(min(item.end_step - before, walk.count) - first, 0);
    if (walk.entries != nullptr)
      walk.entries += first;
    else
      walk.begin += first;
  }
  walk.backwards = p.backward_walks == BackwardWalks::all ||
                   (p.backward_walks == BackwardWalks::keys_in_order && item.active == nullptr);
  walk.start = 0;
  if (!walk.backwards && walk.count > 0) {
    const std::int64_t slots = static_cast<std::int64_t>(item.key_tile) * walk.count;
    // A division of 64 bits takes longer than all the rest.
    walk.start =
        slots >> 31 == 0 ? p.by.key_tiles.quotient(static_cast<int>(slots)) : static_cast<int>(slots / p.key_tiles);
  }
}

/// The steps of an item or piece. `first`: the walk of its first head.
__device__ __forceinline__ int steps_of_heads(const KeyItem& item, const BackwardParameters& p, const HeadWalk& first) {
  // What follows says the same; without this loops come to lie elsewhere (hopper/NOTES.md, "What ptxas does").
  if (p.heads_per_item == 1) return first.count;
  if (item.pieces > 1) return item.end_step - item.first_step;
  // Without lists all heads see the same.
  if (p.list_counts == nullptr) return first.count * p.heads_per_item;
  int steps = first.count;
  for (int h = 1; h < p.heads_per_item; ++h)
    steps += p.list_counts[list_of(p, item, item.head_item * p.heads_per_item + h)];
  return steps;
}

/// The first query's row in the scratch of dQ and of the statistics.
__device__ __forceinline__ std::int64_t scratch_row_of(const KeyItem& item, const BackwardParameters& p, int head) {
  return head * p.scratch_rows + item.sequence.scratch_row;
}

}  // namespace flashdma_bwd
