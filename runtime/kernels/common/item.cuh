// The item of a CTA: which keys of which heads, and which query tiles see them.
#pragma once

#include "common/fragments.hpp"
#include "common/parameters.hpp"
#include "common/visibility.hpp"

namespace flashdma_bwd {

/// A tile of keys of one (batch, group of query heads).
struct KeyItem {
  SequenceRows sequence;
  Limits limits;
  int batch;
  int key_tile;
  int head_item;  ///< number of the group of heads
  int keys;       ///< of this tile; fewer than block_n at the end of the sequence
  int first_position;
  int last_position;
  const std::int32_t* active;  ///< the tile's keys where they are not neighbours
};

/// The query tiles of one head of an item, in the order in which they are taken.
struct HeadWalk {
  int head;
  int count;        ///< query tiles to take
  int begin;        ///< without a list: the first
  int whole_begin;  ///< without a list: tiles in [whole_begin, whole_end) have no masked pair
  int whole_end;
  int start;  ///< slot where the walk begins; it wraps, so that CTAs do not add to the same dQ tile at once
  const std::uint32_t* entries;  ///< the list, or nullptr
  const std::int32_t* ranks;     ///< deterministic mode: whose turn this item's addition to a query tile is
};

/// A step of the walk.
struct TileStep {
  int tile;
  bool partial;  ///< some of its pairs are masked
};

__device__ __forceinline__ int slot_of(const HeadWalk& walk, int step) {
  const int slot = step + walk.start;
  return slot < walk.count ? slot : slot - walk.count;
}

__device__ __forceinline__ TileStep step_of(const HeadWalk& walk, int step) {
  const int slot = slot_of(walk, step);
  if (walk.entries != nullptr) {
    const std::uint32_t entry = __ldg(walk.entries + slot);
    return {static_cast<int>(entry >> 1), (entry & 1u) != 0};
  }
  const int tile = walk.begin + slot;
  return {tile, tile < walk.whole_begin || tile >= walk.whole_end};
}

/// False: there are no such keys.
__device__ inline bool find_item(KeyItem& item, const BackwardParameters& p, int index, int block_n) {
  const int head_items = p.heads / p.heads_per_item;
  int rest;
  if (p.key_orders != nullptr) {  // the first tiles have the longest lists, and many of the last have no keys
    item.key_tile = index / (p.batch * head_items);
    rest = index % (p.batch * head_items);
  } else {
    item.key_tile = index % p.key_tiles;
    rest = index / p.key_tiles;
  }
  item.head_item = rest % head_items;
  item.batch = rest / head_items;
  item.sequence = sequence_of(p, item.batch);
  item.limits = limits_of(p, item.sequence);

  const int first_key = item.key_tile * block_n;
  const KeyList list = keys_of(p, item.batch, item.head_item * p.heads_per_item / p.mask_heads_per_head, item.sequence);
  item.active = list.keys != nullptr ? list.keys + first_key : nullptr;
  item.keys = min(block_n, list.count - first_key);
  if (item.keys <= 0) return false;
  item.first_position = item.active != nullptr ? item.active[0] : first_key;
  item.last_position = item.active != nullptr ? item.active[item.keys - 1] : first_key + item.keys - 1;
  return true;
}

/// The key of a row of the item's tile; kPastEnd past the end.
__device__ __forceinline__ int position_of_row(const KeyItem& item, int row) {
  return row >= item.keys ? kPastEnd : item.active != nullptr ? item.active[row] : item.first_position + row;
}

/// The row of a key in one of K, V, dK, dV.
__device__ __forceinline__ std::uint16_t* key_row_address(const BackwardParameters& p, const KeyItem& item,
                                                          const TensorView& tensor, int key) {
  const bool packed = p.cu_seqlens_k != nullptr;
  const int head = item.head_item * p.heads_per_item / (p.heads / p.heads_kv);
  return static_cast<std::uint16_t*>(tensor.data) + (packed ? 0 : item.batch * tensor.stride_batch) +
         (item.sequence.row_k + key) * tensor.stride_row + head * tensor.stride_head;
}

__device__ inline void find_head(HeadWalk& walk, const KeyItem& item, const BackwardParameters& p, int head,
                                 int block_m, int block_n) {
  walk.head = head;
  walk.entries = nullptr;
  walk.ranks = nullptr;
  if (p.list_entries != nullptr) {
    const std::int64_t list =
        (static_cast<std::int64_t>(item.batch) * p.list_heads + head / p.list_heads_per_head) * p.key_tiles +
        item.key_tile;
    walk.entries = p.list_entries + list * p.query_tiles;
    walk.ranks = p.list_ranks == nullptr ? nullptr : p.list_ranks + list * p.query_tiles;
    walk.count = p.list_counts[list];
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
  walk.start = p.d_q_turns != nullptr || walk.count == 0
                   ? 0
                   : static_cast<int>(static_cast<std::int64_t>(item.key_tile) * walk.count / p.key_tiles);
}

/// The first query's row in the scratch of dQ and of the statistics.
__device__ __forceinline__ std::int64_t scratch_row_of(const KeyItem& item, const BackwardParameters& p, int head) {
  return head * p.scratch_rows + item.sequence.scratch_row;
}

}  // namespace flashdma_bwd
