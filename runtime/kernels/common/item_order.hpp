// The order of items: which key tile of which group of heads a number means.
//
// Items are started in this order: groups of heads come in blocks, one block after the other, and within a block all
// groups' items with the first key tile before those with the second. Blocks are of one group as a rule, so that the
// heads at work, whose dQ the L2 cache has to hold, are few. But within a group the longest items come first, under
// causality, so that the last group's would start late and end alone: the last block has more groups, all of whose
// longest items come before the shorter ones.
#pragma once

#include "common/divisor.hpp"
#include "common/host_device.hpp"

namespace flashdma_bwd {

/// How groups are put into blocks. What comes before the tail is whole blocks.
struct ItemOrder {
  int block_groups = 1;
  int tail_groups = 0;  ///< of the last block
};

/// Which walks through an item's query tiles go from the last to the first.
enum class BackwardWalks : int {  // of fewer bits it costs ptxas registers
  none,
  keys_in_order,  ///< those of items whose keys are neighbours
  all,
};

struct ItemPlace {
  int key_tile;
  int group;  ///< of heads, through all batches
};

/// An order of items, prepared for finding their places.
class ItemPlaces {
 public:
  ItemPlaces() = default;
  /// `groups`: at least 1, as `key_tiles`.
  ItemPlaces(int key_tiles, int groups, const ItemOrder& order)
      : key_tiles_(key_tiles),
        first_of_tail_(groups - order.tail_groups),
        block_groups_(order.block_groups),
        tail_groups_(order.tail_groups),
        by_block_(order.block_groups),
        by_tail_(order.tail_groups > 0 ? order.tail_groups : 1),
        by_key_tiles_(key_tiles) {}

  FLASHDMA_HOST_DEVICE ItemPlace of(int index) const {
    int first = first_of_tail_;
    const bool in_tail = index >= first_of_tail_ * key_tiles_;
    // Whole blocks: as many items a group as there are key tiles.
    if (!in_tail) first = by_block_.quotient(by_key_tiles_.quotient(index)) * block_groups_;
    index -= first * key_tiles_;
    const int key_tile = in_tail ? by_tail_.quotient(index) : by_block_.quotient(index);
    return {key_tile, first + index - key_tile * (in_tail ? tail_groups_ : block_groups_)};
  }

 private:
  int key_tiles_ = 1;
  int first_of_tail_ = 1;
  int block_groups_ = 1;
  int tail_groups_ = 0;
  Divisor by_block_, by_tail_, by_key_tiles_;
};

}  // namespace flashdma_bwd
