// Whether, and how finely, the items of a call are split into pieces. Pure; what pieces are says
// kernels/common/pieces.hpp.
#pragma once

#include "common/parameters.hpp"

namespace flashdma_bwd {

/// How items are split: nothing where there is no room for pieces.
struct Split {
  int piece_steps = 0;  ///< 0: the device chooses
  std::int64_t slots = 0;
  int most_pieces = 1;  ///< of an item
};

/// Reads the problem's lengths and limits, the tiles and `running`. `masked`: a mask decides what items take, too.
/// `asked_for`: steps of a piece, or 0: whatever is estimated to be fastest.
Split split_items(const BackwardParameters& p, bool masked, int asked_for);

}  // namespace flashdma_bwd
