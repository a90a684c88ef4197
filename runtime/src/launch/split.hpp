// Whether, and how finely, the items of a call are split into pieces, and in which order they come. Pure; what pieces
// and orders are say kernels/common/pieces.hpp and item_order.hpp.
#pragma once

#include "common/parameters.hpp"

namespace flashdma_bwd {

/// How items are split: nothing where there is no room for pieces.
struct Split {
  int piece_steps = 0;  ///< 0: the device chooses
  std::int64_t slots = 0;
  int most_pieces = 1;       ///< of an item
  int whole_items = 0;       ///< the first items, which stay whole and are not in the work table
  std::int64_t entries = 0;  ///< of the work table, at most
  ItemOrder order{};         ///< of items, whether any is split or not
  BackwardWalks backward_walks = BackwardWalks::none;  ///< whether any item is split or not
};

/// What the parameters do not say.
struct SplitRequest {
  bool masked = false;         ///< a mask decides what items take, too
  bool last_pieces = true;     ///< the last of many items may be split apart from the others
  bool deterministic = false;  ///< all items are split by one length or none is
  int piece_steps = 0;         ///< asked for; 0: whatever is estimated to be fastest
};

/// Reads the problem's lengths and limits, the tiles and `running`.
Split split_items(const BackwardParameters& p, const SplitRequest& request);

}  // namespace flashdma_bwd
