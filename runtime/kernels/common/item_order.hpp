// The order of items: which key tile of which group of heads a number means.
//
// Items are started in this order. One group of heads comes after the other, so that those at work, whose dQ the L2
// cache has to hold, are few. Within a group the longest items come first, under causality; so the last group's would
// start late and end alone. The last groups therefore go key tile by key tile, all their longest items before the
// shorter ones.
#pragma once

#include "common/host_device.hpp"

namespace flashdma_bwd {

struct ItemPlace {
  int key_tile;
  int group;  ///< of heads, through all batches
};

/// `tail_groups`: how many groups go key tile by key tile.
FLASHDMA_HOST_DEVICE inline ItemPlace place_of_item(int index, int key_tiles, int groups, int tail_groups) {
  const int tail = (groups - tail_groups) * key_tiles;
  if (index < tail) return {index % key_tiles, index / key_tiles};
  index -= tail;
  return {index / tail_groups, groups - tail_groups + index % tail_groups};
}

}  // namespace flashdma_bwd
