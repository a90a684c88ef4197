// The choice of the length of pieces, where the host can make it.
#include "split.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "common/visibility.hpp"

namespace flashdma_bwd {
namespace {

/// Tallies the items of a problem that causality and a window alone decide, which are the same for all batches and
/// heads, for pieces of each of the lengths.
void tally_items(const BackwardParameters& p, std::span<const int> lengths, std::span<SplitTally> tallies) {
  const SequenceRows sequence = sequence_of(p, 0);
  const Limits limits = limits_of(p, sequence);
  const std::int64_t copies = p.items / p.key_tiles;
  int steps = 0;
  std::int64_t same = 0;  // neighbouring key tiles of so many steps
  const auto add = [&] {
    for (std::size_t i = 0; i < lengths.size(); ++i) tallies[i].add(steps, lengths[i], same * copies);
  };
  for (int tile = 0; tile < p.key_tiles; ++tile) {
    const int first = tile * p.block_n;
    const int last = std::min(first + p.block_n, sequence.length_k) - 1;
    const TileRange seen = visible_query_tiles(limits, sequence.length_q, first, last, p.block_m);
    const int own = (seen.end - seen.begin) * p.heads_per_item;
    if (own != steps && same > 0) {
      add();
      same = 0;
    }
    steps = own;
    ++same;
  }
  add();
}

SplitTally tally_items(const BackwardParameters& p, int length) {
  SplitTally tally;
  tally_items(p, {&length, 1}, {&tally, 1});
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
  std::array<int, kMostPieces - 1> lengths{};
  std::array<SplitTally, kMostPieces - 1> tallies{};
  std::size_t count = 0;
  for (int n = 2; n <= kMostPieces; ++n) {
    lengths[count] = piece_steps_for(whole.longest, n, p.overhead);
    if (count == 0 || lengths[count] != lengths[count - 1]) ++count;
  }
  tally_items(p, {lengths.data(), count}, {tallies.data(), count});
  Split best;
  std::int64_t shortest_time = whole.estimate(p.running, p.overhead);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t time = tallies[i].estimate(p.running, p.overhead);
    if (tallies[i].slots > room || time >= shortest_time) continue;
    shortest_time = time;
    best = {lengths[i], tallies[i].slots, pieces_of(whole.longest, lengths[i])};
  }
  return best;
}

}  // namespace flashdma_bwd
