// The order of items: which key tile of which group of heads a number means.
//
// Items are started in this order: groups of heads come in blocks, one block after the other, and within a block all
// groups' items with the first key tile before those with the second. Blocks are of one group as a rule, so that the
// heads at work, whose dQ the L2 cache has to hold, are few. But within a group the longest items come first, under
// causality, so that the last group's would start late and end alone: the last block has more groups, all of whose
// longest items come before the shorter ones.
#pragma once

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

FLASHDMA_HOST_DEVICE inline ItemPlace place_of_item(int index, int key_tiles, int groups, const ItemOrder& order) {
  const int first_of_tail = groups - order.tail_groups;
  int block = order.block_groups;
  int first = 0;
  if (index >= first_of_tail * key_tiles) {
    first = first_of_tail;
    block = order.tail_groups;
  } else {
    first = index / (block * key_tiles) * block;
  }
  index -= first * key_tiles;
  return {index / block, first + index % block};
}

}  // namespace flashdma_bwd
