// The item of a CTA: which keys of which heads, which query tiles, and where their data lies.
//
// It lives in shared memory. In registers it would stay alive through the loop, where the accumulators need every one
// of them.
#pragma once

#include "common/fragments.hpp"
#include "common/parameters.hpp"
#include "common/visibility.hpp"

namespace flashdma_bwd::ampere {

struct Item {
  // The whole item.
  SequenceRows sequence;
  Limits limits;
  int batch;
  int key_tile;
  int head_item;  ///< number of the group of heads
  int keys;       ///< of this tile; fewer than block_n at the end of the sequence
  int first_position;
  int last_position;
  const std::int32_t* active;  ///< compacted layout: the tile's keys

  // The query head at work.
  int head;
  int count;        ///< query tiles to take
  int begin;        ///< without a list: the first
  int whole_begin;  ///< without a list: tiles in [whole_begin, whole_end) have no masked pair
  int whole_end;
  bool bias_masks;  ///< some bias of the tile is -inf
  int start;        ///< slot where the walk begins; it wraps, so that CTAs do not add to the same dQ tile at once
  const std::uint32_t* entries;  ///< the list, or nullptr
  const std::int32_t* ranks;
  const std::uint16_t* q;
  const std::uint16_t* d_out;
  std::int64_t d_q_row;  ///< of the head's first query in the scratch of dQ and the statistics
};

/// A step of the walk.
struct TileStep {
  int tile;
  bool partial;  ///< some of its pairs are masked
};

__device__ __forceinline__ int slot_of(const Item& item, int step) {
  const int slot = step + item.start;
  return slot < item.count ? slot : slot - item.count;
}

__device__ __forceinline__ TileStep step_of(const Item& item, int step) {
  const int slot = slot_of(item, step);
  if (item.entries != nullptr) {
    const std::uint32_t entry = __ldg(item.entries + slot);
    return {static_cast<int>(entry >> 1), (entry & 1u) != 0};
  }
  const int tile = item.begin + slot;
  return {tile, tile < item.whole_begin || tile >= item.whole_end};
}

/// Fills the parts of the whole item. False: there are no such keys.
__device__ inline bool find_item(Item& item, const BackwardParameters& p, int index, int block_n) {
  item.key_tile = index % p.key_tiles;
  const int rest = index / p.key_tiles;
  const int head_items = p.heads / p.heads_per_item;
  item.head_item = rest % head_items;
  item.batch = rest / head_items;
  item.sequence = sequence_of(p, item.batch);
  item.limits = limits_of(p, item.sequence);

  const int first_key = item.key_tile * block_n;
  int keys = item.sequence.length_k;
  item.active = nullptr;
  if (p.active_keys != nullptr) {
    const int mask_head =
        item.batch * p.compact_batch_stride + item.head_item * p.heads_per_item / p.mask_heads_per_head;
    const std::int32_t* active = p.active_keys + static_cast<std::int64_t>(mask_head) * p.seqlen_k;
    keys = active_keys_in_sequence(p, mask_head, item.sequence);
    item.active = active + first_key;
  }
  item.keys = min(block_n, keys - first_key);
  if (item.keys <= 0) return false;
  item.first_position = item.active != nullptr ? item.active[0] : first_key;
  item.last_position = item.active != nullptr ? item.active[item.keys - 1] : first_key + item.keys - 1;
  return true;
}

/// Fills the parts of one query head.
__device__ inline void find_head(Item& item, const BackwardParameters& p, int head, int block_m, int block_n) {
  item.head = head;
  item.bias_masks = false;
  item.entries = nullptr;
  item.ranks = nullptr;
  if (p.list_entries != nullptr) {
    const std::int64_t list =
        (static_cast<std::int64_t>(item.batch) * p.list_heads + head / p.list_heads_per_head) * p.key_tiles +
        item.key_tile;
    item.entries = p.list_entries + list * p.query_tiles;
    item.ranks = p.list_ranks == nullptr ? nullptr : p.list_ranks + list * p.query_tiles;
    item.count = p.list_counts[list];
  } else {
    const TileRange seen =
        visible_query_tiles(item.limits, item.sequence.length_q, item.first_position, item.last_position, block_m);
    item.begin = seen.begin;
    item.count = seen.end - seen.begin;
    const TileRange whole =
        whole_query_tiles(item.limits, item.sequence.length_q, item.first_position, item.last_position, block_m);
    item.whole_begin = whole.begin;
    item.whole_end = item.keys == block_n ? whole.end : whole.begin;
  }
  item.start = p.d_q_turns != nullptr || item.count == 0
                   ? 0
                   : static_cast<int>(static_cast<std::int64_t>(item.key_tile) * item.count / p.key_tiles);

  const bool packed = p.cu_seqlens_q != nullptr;
  const SequenceRows& s = item.sequence;
  item.q = static_cast<const std::uint16_t*>(p.q.data) + (packed ? 0 : item.batch * p.q.stride_batch) +
           s.row_q * p.q.stride_row + head * p.q.stride_head;
  item.d_out = static_cast<const std::uint16_t*>(p.d_out.data) + (packed ? 0 : item.batch * p.d_out.stride_batch) +
               s.row_q * p.d_out.stride_row + head * p.d_out.stride_head;
  item.d_q_row = head * p.scratch_rows + s.scratch_row;
}

}  // namespace flashdma_bwd::ampere
