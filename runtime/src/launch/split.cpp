// The choice of the length of pieces, where the host can make it.
#include "launch/split.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "launch/last_items.hpp"
#include "launch/tile_steps.hpp"

namespace flashdma_bwd {
namespace {

std::int64_t room_for_slots(const BackwardParameters& p) {
  return std::int64_t{kSlotsPerRunningItem} * p.running;
}

/// Tallies the items of a problem that causality and a window alone decide, for pieces of each of the lengths.
void tally_items(const BackwardParameters& p, std::span<const int> lengths, std::span<SplitTally> tallies) {
  const TileSteps steps_of(p);
  const std::int64_t copies = p.items / p.key_tiles;
  int steps = 0;
  std::int64_t same = 0;  // neighbouring key tiles of so many steps
  const auto add = [&] {
    for (std::size_t i = 0; i < lengths.size(); ++i) tallies[i].add(steps, lengths[i], same * copies);
  };
  for (int tile = 0; tile < p.key_tiles; ++tile) {
    const int own = steps_of(tile);
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

Split split_of(const SplitTally& tally, int longest, int piece_steps) {
  return {piece_steps, tally.slots, pieces_of(longest, piece_steps), 0, tally.pieces};
}

/// A split of all items by one length, into `most_pieces` at most. `whole`: the tally of unsplit ones.
Split split_all_items(const BackwardParameters& p, const SplitTally& whole, int most_pieces) {
  if (!whole.may_gain(p.running, p.overhead)) return {};
  std::array<int, kMostPieces - 1> lengths{};
  std::array<SplitTally, kMostPieces - 1> tallies{};
  std::size_t count = 0;
  for (int n = 2; n <= most_pieces; ++n) {
    lengths[count] = piece_steps_for(whole.longest, n, p.overhead);
    if (count == 0 || lengths[count] != lengths[count - 1]) ++count;
  }
  tally_items(p, {lengths.data(), count}, {tallies.data(), count});
  Split best;
  std::int64_t shortest_time = whole.estimate(p.running, p.overhead);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t time = tallies[i].estimate(p.running, p.overhead);
    if (!may_choose(tallies[i], pieces_of(whole.longest, lengths[i]), p.running, room_for_slots(p)) ||
        time >= shortest_time)
      continue;
    shortest_time = time;
    best = split_of(tallies[i], whole.longest, lengths[i]);
  }
  return best;
}

/// Where only the device knows the items' steps.
Split split_unknown_items(const BackwardParameters& p, std::int64_t most_steps, const SplitRequest& request) {
  const int asked_for = request.piece_steps;
  // No item is longer than if it saw everything.
  const int shortest = asked_for > 0 ? asked_for : shortest_piece(p.overhead);
  const int longest = static_cast<int>(std::min<std::int64_t>(most_steps, kAllSteps));
  // Where the device chooses, it may cut as ItemCuts does, whose first and last pieces may be shorter.
  const int most = asked_for > 0           ? pieces_of(longest, shortest)
                   : request.deterministic ? std::min(pieces_of(longest, shortest), kMostPiecesInRounds)
                                           : std::min(longest / shortest + 2, kMostPieces);
  // The bound keeps numbers of CTAs in range; there is no memory for so many slots.
  std::int64_t slots =
      std::min<std::int64_t>(std::int64_t{p.items} * most, std::numeric_limits<int>::max() / 2 - p.items);
  if (asked_for > 0) {
    if (most == 1) slots = 0;
  } else {
    // Splitting shorter items would gain less than the table and the idle CTAs of the longer grid cost.
    if (longest <= 3 * shortest) return {};
    slots = std::min(slots, room_for_slots(p));
  }
  return {asked_for, slots, most, 0, p.items + slots};
}

/// Whether causality or a window makes the items unequal, as far as the host can see.
bool has_limits(const BackwardParameters& p) {
  return p.window_left < p.seqlen_k || p.window_right < p.seqlen_k;
}

/// In deterministic mode a CTA waits for those with earlier key tiles of its head. Items of one length that all run at
/// once follow each other at a distance that they keep, so that as few heads are at work as fill the GPU. Of unequal
/// items few are to run at a time, for they wait less, but not so few that more heads are at work than the L2 cache
/// and memory can serve (hopper/notes/step.md, "Deterministic mode").
ItemOrder order_of_turns(const BackwardParameters& p, bool lengths_known) {
  constexpr int kFewestCtasOfHead = 4;
  // Of its items, of which one is at work. Heads of 32 columns take half the cache of those of 64.
  const int parts_of_unequal_head = p.head_dim <= 32 ? 12 : 6;
  const int groups = p.items / p.key_tiles;
  int most = std::max(p.running / kFewestCtasOfHead, 1);
  if (lengths_known) {
    const int running = p.running * (has_limits(p) ? parts_of_unequal_head : 1);
    most = std::clamp((2 * running + p.key_tiles) / (2 * p.key_tiles), 1, most);
  }
  const int blocks = (groups + most - 1) / most;
  const int block = (groups + blocks - 1) / blocks;
  return {block, groups - (blocks - 1) * block};
}

/// Whether walks start at the last query tile, which all items see under causality, instead of each at another one, so
/// that items of a head pass its tiles at about the same time. That is faster where several heads are at work at once,
/// and with them more of Q, dO and dQ than the L2 cache holds (hopper/notes/items.md, "The order of items and their
/// pieces"). Not with a mask whose keys are reordered, which only the device may know.
bool walks_start_together(const BackwardParameters& p) {
  constexpr int kFewestHeads = 2;
  return p.cu_seqlens_q == nullptr && p.window_right < p.seqlen_k && kFewestHeads * p.key_tiles <= p.running;
}

/// Where only the device knows the items' steps: a round of items, and two groups at least.
ItemOrder order_of_unknown_items(const BackwardParameters& p) {
  return {1, std::min(std::max(p.running / p.key_tiles, 2), p.items / p.key_tiles)};
}

Split choose_split(const BackwardParameters& p, const SplitRequest& request, std::int64_t most_steps) {
  const int asked_for = request.piece_steps;
  if (request.masked || p.cu_seqlens_q != nullptr) return split_unknown_items(p, most_steps, request);
  const SplitTally whole = tally_items(p, kAllSteps);
  if (asked_for > 0) return split_of(tally_items(p, asked_for), whole.longest, asked_for);
  const Split split = split_all_items(p, whole, request.deterministic ? kMostPiecesInRounds : kMostPieces);
  // In deterministic mode a piece of the last items would wait for the whole items of its head to come to its tiles,
  // which they do late.
  if (request.deterministic || !may_level_last_items(p, whole.longest)) return split;
  return level_last_items(p, whole.longest, split, request.last_pieces);
}

}  // namespace

Split split_items(const BackwardParameters& p, const SplitRequest& request) {
  const std::int64_t most_steps = std::int64_t{p.query_tiles} * p.heads_per_item;
  if (p.items == 0 || most_steps == 0) return {};
  Split split = choose_split(p, request, most_steps);
  const bool lengths_known = !request.masked && p.cu_seqlens_q == nullptr;
  if (request.deterministic)
    split.order = order_of_turns(p, lengths_known);
  else if (!lengths_known)
    split.order = order_of_unknown_items(p);
  // In deterministic mode an item waits at a query tile for all smaller ones. The last tiles are those that the next
  // item sees, too, under causality and windows: it is one step behind, while at the first tiles it would wait for a
  // whole walk.
  if (request.deterministic)
    split.backward_walks = BackwardWalks::all;
  else if (walks_start_together(p))
    split.backward_walks = BackwardWalks::keys_in_order;
  return split;
}

}  // namespace flashdma_bwd
