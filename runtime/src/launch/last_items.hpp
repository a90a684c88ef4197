// The choice of the order of the last items, and of how many of them are split, and how finely, where there are many.
// Pure.
//
// Multiprocessors that find no item left idle until the last is done: for half a round of items on average where all
// are equal. Only what comes last can level that, and everything before it is better left whole. Where items are not
// equal, as under causality, their order levels more than splitting them does, and costs nothing.
#pragma once

#include "launch/split.hpp"

namespace flashdma_bwd {

/// Whether there is anything to be gained beyond what a split of all items can. `longest`: steps of an item.
bool may_level_last_items(const BackwardParameters& p, int longest);

/// The best of an order of the last items, of a split of them in that order, and of `otherwise`, which splits all or
/// none, for a problem whose items causality and a window alone decide. Where they may not be split,
/// only an order, and that only of items of one head.
Split level_last_items(const BackwardParameters& p, int longest, const Split& otherwise, bool may_split);

}  // namespace flashdma_bwd
