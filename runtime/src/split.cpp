// The choice of the length of pieces, where the host can make it.
#include "split.hpp"

#include <algorithm>
#include <limits>

#include "common/visibility.hpp"

namespace flashdma_bwd {
namespace {

/// The items of a problem that causality and a window alone decide, which are the same for all batches and heads.
SplitTally tally_items(const BackwardParameters& p, int piece_steps) {
  const SequenceRows sequence = sequence_of(p, 0);
  const Limits limits = limits_of(p, sequence);
  SplitTally tally;
  for (int tile = 0; tile < p.key_tiles; ++tile) {
    const int first = tile * p.block_n;
    const int last = std::min(first + p.block_n, sequence.length_k) - 1;
    const TileRange seen = visible_query_tiles(limits, sequence.length_q, first, last, p.block_m);
    tally.add((seen.end - seen.begin) * p.heads_per_item, piece_steps, p.items / p.key_tiles);
  }
  return tally;
}

}  // namespace

Split split_items(const BackwardParameters& p, bool masked, int asked_for) {
  const std::int64_t most_steps = std::int64_t{p.query_tiles} * p.heads_per_item;
  const std::int64_t room = std::int64_t{kSlotsPerRunningItem} * p.running;
  if (p.items == 0 || most_steps == 0) return {};
  if (masked || p.cu_seqlens_q != nullptr) {
    // No item is longer than if it saw everything.
    const int shortest = asked_for > 0 ? asked_for : shortest_piece(p.overhead);
    const int longest = static_cast<int>(std::min<std::int64_t>(most_steps, kAllSteps));
    const int most = pieces_of(longest, shortest);
    // The bound keeps numbers of CTAs in range; there is no memory for so many slots.
    const std::int64_t slots =
        std::min<std::int64_t>(std::int64_t{p.items} * most, std::numeric_limits<int>::max() / 2 - p.items);
    if (asked_for > 0) return {asked_for, most > 1 ? slots : 0, most};
    // Splitting shorter items would gain less than the table and the idle CTAs of the longer grid cost.
    if (longest <= 3 * shortest) return {};
    return {0, std::min(slots, room), most};
  }
  const SplitTally whole = tally_items(p, kAllSteps);
  if (asked_for > 0) return {asked_for, tally_items(p, asked_for).slots, pieces_of(whole.longest, asked_for)};
  if (!whole.may_gain(p.running, p.overhead)) return {};
  Split best;
  std::int64_t shortest_time = whole.estimate(p.running, p.overhead);
  for (int n = 2; n <= kMostPieces; ++n) {
    const int steps = piece_steps_for(whole.longest, n, p.overhead);
    const SplitTally tally = tally_items(p, steps);
    if (tally.slots > room || tally.estimate(p.running, p.overhead) >= shortest_time) continue;
    shortest_time = tally.estimate(p.running, p.overhead);
    best = {steps, tally.slots, pieces_of(whole.longest, steps)};
  }
  return best;
}

}  // namespace flashdma_bwd
