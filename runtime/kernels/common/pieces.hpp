// Pieces of items: when the query tiles of a key tile are shared out among several CTAs, and how.
//
// An item takes one step for each query tile of each of its heads. Where there are fewer items than multiprocessors, or
// where one item is longer than all others, multiprocessors would idle; then items of more than `piece_steps` steps are
// cut into pieces, of which each is a CTA's (or a cluster's) work. What a piece adds to dK and dV lies in a slot until
// it is added to the others', in an order that does not depend on who comes first. The last piece writes the sum; but
// where items are few, all pieces run at once and are done at about the same time, nothing hides the sums of many, and
// a kernel behind the main one makes them (add_pieces.cuh).
//
// Where the device decides, and need not keep an order, few items are cut so that all CTAs are done together
// (ItemCuts); otherwise pieces of an item are of nearly equal length.
//
// Where there are many items, only the last of them are cut, so that multiprocessors are done at about the same time;
// the others stay whole and are not in the table of who takes what.
//
// Who knows the steps of the items chooses `piece_steps`: the host, where nothing but causality and a window decides
// them, else the preprocess kernel (work_table.cuh). Both do so with the functions here.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"

namespace flashdma_bwd {

/// Pieces of an item at most.
inline constexpr int kMostPieces = 32;
/// The same where they do not all run at once, with which more were slower (hopper/NOTES.md), or their sums keep an
/// order, for which each has a row of them.
inline constexpr int kMostPiecesInRounds = 16;
/// Where all pieces run at once they are added up behind the main kernel if items have so many on average. Measured on
/// an H200: with 10 a backward of 0.187 ms took 0.178, with 8 one of 0.042 took 0.039; with 4 to 5 it was 4 to 6 %, of
/// which other things had a part; with 2 one of 0.050 took 0.053.
inline constexpr int kFewestSummedLater = 4;
/// What a CTA spends beside its steps, in steps: it is launched, waits for K and V, and writes dK and dV. What the
/// pieces of an item spend on their sums, of 64 to 256 KB each, is taken to be as much. By whole passes on an H200 it
/// is about 5 us, and a step of 64 x 128 pairs takes 2.2 to 2.4 with 128 columns, as one of 128 x 128 pairs with 64
/// does; steps of less work are shorter.
FLASHDMA_HOST_DEVICE constexpr int overhead_in_steps(int block_m, int block_n, int head_dim) {
  return block_m * block_n * head_dim >= 64 * 128 * 128 ? 2 : 4;
}
/// Steps of a piece at least, where nobody asks for fewer: two thirds of a CTA's time are its steps.
FLASHDMA_HOST_DEVICE constexpr int shortest_piece(int overhead) {
  return 2 * overhead;
}
/// With this many rounds of items on all multiprocessors, the end of the last one costs less than splitting all would.
inline constexpr int kManyRounds = 4;
/// Slots to a CTA that runs at once: bounds the workspace, and what is written to it.
inline constexpr int kSlotsPerRunningItem = 4;
/// The end of the steps of a CTA that takes a whole item.
inline constexpr int kAllSteps = 0x7fffffff;
/// Parts of an item whose pieces are added up independently of each other: at most, the warps that hold dK and dV.
inline constexpr int kPieceParts = 16;

/// The pieces of an item of `steps` steps.
FLASHDMA_HOST_DEVICE inline int pieces_of(int steps, int piece_steps) {
  const int pieces = steps / piece_steps + (steps % piece_steps != 0 ? 1 : 0);
  return pieces < 1 ? 1 : pieces > kMostPieces ? kMostPieces : pieces;
}

/// An item in pieces of nearly equal length.
struct EvenPieces {
  int length;  ///< of the shorter ones
  int longer;  ///< pieces with a step more than these, the first ones

  FLASHDMA_HOST_DEVICE EvenPieces(int steps, int pieces) : length(steps / pieces), longer(steps - length * pieces) {}
  /// The first step of a piece; that of the piece after it is its end.
  FLASHDMA_HOST_DEVICE int first_step_of(int piece) const { return length * piece + (piece < longer ? piece : longer); }
};

/// a / b of positive numbers, of 32 bits where they are: the device's division of 64 is a long routine.
FLASHDMA_HOST_DEVICE inline std::int64_t rounded_up_quotient(std::int64_t a, std::int64_t b) {
  if (((a + b) >> 31) == 0)
    return (static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b) - 1) / static_cast<std::uint32_t>(b);
  return (a + b - 1) / b;
}

/// What becomes of a set of items.
struct SplitTally {
  std::int64_t steps = 0;
  std::int64_t pieces = 0;
  std::int64_t slots = 0;  ///< pieces of items that have several
  int longest = 0;         ///< steps of the longest piece

  /// Counts `copies` items.
  FLASHDMA_HOST_DEVICE void add(int item_steps, int piece_steps, std::int64_t copies) {
    steps += copies * item_steps;
    int count = 1;
    int length = item_steps;
    if (item_steps > piece_steps) {  // as few are: the device's divisions are long
      count = pieces_of(item_steps, piece_steps);
      length = (item_steps + count - 1) / count;
      slots += copies * count;
    }
    pieces += copies * count;
    if (length > longest) longest = length;
  }

  /// The time of the rounds that `running` CTAs at once need for pieces of mean length, in steps.
  FLASHDMA_HOST_DEVICE std::int64_t rounds_estimate(int running, int overhead) const {
    const std::int64_t rounds = rounded_up_quotient(pieces, running);
    return pieces == 0 ? 0 : rounded_up_quotient(rounds * (steps + overhead * pieces), pieces);
  }
  /// The time of all pieces, in steps: that of the longest, or of the rounds.
  FLASHDMA_HOST_DEVICE std::int64_t estimate(int running, int overhead) const {
    const std::int64_t rounds = rounds_estimate(running, overhead);
    const std::int64_t one = longest + overhead;
    return (rounds > one ? rounds : one) + (slots > 0 ? overhead : 0);
  }
  /// Of unsplit items: whether splitting them could make the whole faster.
  FLASHDMA_HOST_DEVICE bool may_gain(int running, int overhead) const {
    return longest > shortest_piece(overhead) &&
           (pieces < std::int64_t{kManyRounds} * running || longest + overhead > rounds_estimate(running, overhead));
  }
};

/// Whether the pieces of a tally may be chosen, which are `pieces` of the longest item. `slots`: that there is room
/// for.
FLASHDMA_HOST_DEVICE inline bool may_choose(const SplitTally& tally, int pieces, int running, std::int64_t slots) {
  return tally.slots <= slots && (pieces <= kMostPiecesInRounds || tally.pieces <= running);
}

/// The lengths of pieces that are tried: the longest item is cut into `pieces`.
FLASHDMA_HOST_DEVICE inline int piece_steps_for(int longest, int pieces, int overhead) {
  const int steps = (longest + pieces - 1) / pieces;
  return steps < shortest_piece(overhead) ? shortest_piece(overhead) : steps;
}

/// How the items are cut where all CTAs shall be done together: they are laid end to end, each with its overhead before
/// its steps, and cut at every multiple of a CTA's share of all (McNaughton's wrap-around rule, Management Science 6,
/// 1959). Taken longest first, what begins an item's share meets what ends another's. Short items stay whole, apart
/// from the others: at the end they level what is left. Steps of an item:
struct ItemCuts {
  int first;    ///< where its second piece begins
  int spacing;  ///< from there to where each of the next does
  int pieces;

  /// A CTA's share. `whole`: the tally of unsplit items.
  static FLASHDMA_HOST_DEVICE int share(const SplitTally& whole, int running, int overhead) {
    const int all = static_cast<int>(whole.steps) + overhead * static_cast<int>(whole.pieces);
    const int even = (all + running - 1) / running;
    // An item has two pieces more, at most, than it is shares long.
    const int of_longest = (whole.longest + overhead + kMostPieces - 3) / (kMostPieces - 2);
    const int least = overhead + shortest_piece(overhead);
    const int most = even > of_longest ? even : of_longest;
    return most > least ? most : least;
  }

  /// Steps of a piece at most: one of fewer steps than the overhead is left to its neighbour, before it or behind it.
  static FLASHDMA_HOST_DEVICE int longest_piece(int longest_item, int share, int overhead) {
    const int longest = share + 2 * overhead;
    return longest_item < longest ? longest_item : longest;
  }

  static FLASHDMA_HOST_DEVICE bool stays_whole(int steps, int share, int overhead) {
    return 4 * (steps + overhead) <= share;
  }

  /// `begin`: of the item, with its overhead, among all that do not stay whole.
  static FLASHDMA_HOST_DEVICE ItemCuts of(int begin, int steps, int share, int overhead) {
    const int first_step = begin + overhead;
    const int lowest = (first_step + overhead + share - 1) / share;
    const int highest = (first_step + steps - overhead) / share;
    if (highest < lowest) return {steps, share, 1};
    return {lowest * share - first_step, share, highest - lowest + 2};
  }

  /// The first step of a piece of an item of `steps` steps; that of the piece after it is its end.
  FLASHDMA_HOST_DEVICE int first_step_of(int steps, int piece) const {
    return piece == 0 ? 0 : piece == pieces ? steps : first + (piece - 1) * spacing;
  }
};

/// A CTA's work, as the table has it (work_table.cuh).
struct alignas(16) WorkItem {
  std::int32_t item;  ///< its number; negative: there is nothing to do
  std::int16_t piece;
  std::int16_t pieces;      ///< of the item
  std::int32_t first_step;  ///< of the item's,
  std::int32_t end_step;    ///< [first_step, end_step)
  std::int32_t slot;        ///< of the item's first piece, where it has several; its complement: they are summed later
  std::int32_t key_tile;    ///< what the number means: see ItemPlace
  std::int32_t group;
};

}  // namespace flashdma_bwd
