// How the last items are ordered and split: a few ways are gone through as multiprocessors would go through them.
#include "launch/last_items.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "launch/list_schedule.hpp"
#include "launch/tile_steps.hpp"

namespace flashdma_bwd {
namespace {

/// Beyond so many rounds of items less than a hundredth of the time could be gained.
constexpr int kMostRounds = 40;
/// Key tiles of longer sequences are not looked at.
constexpr int kMostTiles = 4096;
/// The part of the time that a split has to be estimated to gain: no two items take exactly the same time.
constexpr int kLeastGain = 128;
/// The same of a longer tail, which has more heads' dQ at work at once.
constexpr int kLeastGainOfTail = 256;
/// Rounds of items in a tail. Longer ones outgrow the L2 cache: of heads of 128 columns a round of 132 tiles of 128
/// keys has 17 MB of Q, dO and dQ at work, whatever the length of the sequences.
constexpr std::array<int, 4> kTailRounds{0, 1, 2, 3};
/// Items of several heads go through these at their own pace, so that more heads are at work than groups. What the
/// model without a cache gives as a tail's time took up to 18 % longer on an H200, mostly 5 to 7 %, where the tail had
/// one or two rounds of them, and 7 to 36 % where it had three. With up to four heads a tail of one round, behind twice
/// as many items, took no longer (hopper/notes/items.md, "The order of items and their pieces").
constexpr std::array<int, 3> kTailRoundsOfGroupedHeads{0, 1, 2};
constexpr int kCostOfTailOfGroupedHeads = 10;  ///< one part of so many of the tail's time
constexpr int kHeadsWithoutCost = 4;
constexpr int kRoundsBeforeTailWithoutCost = 2;

/// A way to split: how many of the last items, and into how many pieces the longest of them.
struct Way {
  int items;
  int pieces;
};

class LastItems {
 public:
  LastItems(const BackwardParameters& parameters, int longest)
      : p(parameters),
        longest_(longest),
        groups_(parameters.items / parameters.key_tiles),
        unit_((longest + 2 * p.overhead) / ListSchedule::kLongest + 1) {
    const TileSteps steps_of(p);
    for (int tile = 0; tile < p.key_tiles; ++tile) {
      steps_[tile] = steps_of(tile);
      times_[tile] = time_of_half_steps(2 * (steps_[tile] + p.overhead));
    }
  }

  Split choose(const Split& otherwise, bool may_split) {
    const bool uniform =
        std::all_of(steps_.begin(), steps_.begin() + p.key_tiles, [&](int s) { return s == longest_; });
    if (!may_split) {
      // Which tail is best for items of several heads the model tells only together with its split.
      if (!uniform && otherwise.slots == 0 && p.heads_per_item == 1) choose_tail();
      Split split = otherwise;
      split.order.tail_groups = tail_groups_;
      return split;
    }
    if (!uniform && p.heads_per_item > 1) return choose_for_grouped_heads(otherwise);
    if (!uniform) choose_tail();
    Split split = choose_split(otherwise, uniform).split;
    split.order.tail_groups = tail_groups_;
    return split;
  }

 private:
  struct TimedSplit {
    Split split;
    std::int64_t time = std::numeric_limits<std::int64_t>::max();  ///< in units of a schedule
  };

  int groups_of_rounds(int rounds) const {
    return std::min((rounds * p.running + p.key_tiles - 1) / p.key_tiles, groups_);
  }

  /// Whether less than half of the items is in the tail, and enough before it.
  bool is_short_tail() const {
    return 2 * tail_groups_ < groups_ && p.items >= (kRoundsBeforeTailWithoutCost + 1) * p.running;
  }

  /// The shortest tail that no other is much better than, each with its best split.
  Split choose_for_grouped_heads(const Split& otherwise) {
    TimedSplit best;
    for (const int rounds : kTailRoundsOfGroupedHeads) {
      tail_groups_ = groups_of_rounds(rounds);
      TimedSplit timed = choose_split(otherwise, false);
      if (p.heads_per_item > kHeadsWithoutCost || rounds > 1 || !is_short_tail())
        timed.time += timed.time * tail_groups_ / (std::int64_t{groups_} * kCostOfTailOfGroupedHeads);
      if (best.time - timed.time <= best.time / kLeastGainOfTail) continue;
      best = timed;
      best.split.order.tail_groups = tail_groups_;
    }
    return best.split;
  }

  /// The shortest tail that no other is much better than, if nothing is split.
  void choose_tail() {
    std::int64_t best_time = std::numeric_limits<std::int64_t>::max();
    int best = 0;
    for (const int rounds : kTailRounds) {
      tail_groups_ = groups_of_rounds(rounds);
      ListSchedule schedule(p.running);
      add_items(schedule, 0, p.items);
      const std::int64_t time = schedule.end();
      if (best_time - time <= best_time / kLeastGainOfTail) continue;
      best_time = time;
      best = tail_groups_;
    }
    tail_groups_ = best;
  }

  TimedSplit choose_split(const Split& otherwise, bool uniform) const {
    // By more or finer pieces than these nothing was gained in models with items of unequal speed.
    const int rest = p.items % p.running;
    const std::array<Way, 5> of_equal_items{{{rest, 2}, {rest, 3}, {rest, 4}, {rest, 5}, {rest, 7}}};
    const int half = p.running / 2;
    const std::array<Way, 6> of_others{
        {{p.running, 3}, {p.running, 4}, {p.running, 6}, {half, 2}, {half, 3}, {half, 4}}};
    // A window leaves less to the first and the last tiles only, while under causality no two are equal.
    const bool equal = steps_[p.key_tiles / 2] == longest_;
    const std::span<const Way> ways = equal ? std::span<const Way>(of_equal_items) : of_others;

    // Ways with more items come first, so that the whole ones before them are gone through once. Whole rounds of equal
    // items leave all multiprocessors free at once, as they were before; where there is no rest, no way has an item.
    const int skipped = uniform ? p.items - rest : 0;
    const std::int64_t skipped_time = std::int64_t{skipped / p.running} * times_[0];
    ListSchedule schedule(p.running);
    int whole = skipped;
    Split best;
    std::int64_t best_time = std::numeric_limits<std::int64_t>::max();
    for (const Way& way : ways) {
      add_items(schedule, whole, p.items - way.items);
      whole = p.items - way.items;
      const int longest = longest_from(whole);
      const int piece_steps = piece_steps_for(longest, way.pieces, p.overhead);
      if (piece_steps >= longest) continue;
      Split split;
      const std::int64_t time = skipped_time + time_of_split(split, schedule, whole, piece_steps);
      if (time >= best_time || split.slots > std::int64_t{kSlotsPerRunningItem} * p.running) continue;
      best_time = time;
      best = split;
    }
    // What splits all items may be worse than none in this order.
    add_items(schedule, whole, p.items);
    Split plain;
    std::int64_t time = skipped_time + schedule.end();
    if (otherwise.slots > 0) {
      Split same;
      const std::int64_t otherwise_time = time_of_split(same, ListSchedule(p.running), 0, otherwise.piece_steps);
      if (otherwise_time < time) {
        time = otherwise_time;
        plain = otherwise;
      }
    }
    if (best.slots > 0 && (time - best_time) * kLeastGain >= time) return {best, best_time};
    return {plain, time};
  }

  /// In units of a schedule.
  int time_of_half_steps(int halves) const { return std::max((halves + unit_) / (2 * unit_), 1); }
  /// With its part in the item's sum, which takes as long as it takes to write it.
  int time_of_piece(int steps) const { return time_of_half_steps(2 * (steps + p.overhead) + p.overhead); }
  /// The last sum, behind which there is nothing that others could do.
  int time_of_sum(int pieces) const { return time_of_half_steps((2 + pieces) * p.overhead / 2); }

  /// Calls visit(tile) for the items in [first, end).
  template <class Visit>
  void for_each_item(int first, int end, Visit visit) const {
    if (first == end) return;  // behind the last item there is no place
    ItemPlace place = ItemPlaces(p.key_tiles, groups_, {1, tail_groups_}).of(first);
    const int tail = groups_ - tail_groups_;
    for (int item = first; item < end; ++item) {
      visit(place.key_tile);
      // The place of the next, without divisions.
      if (place.group < tail) {
        if (++place.key_tile < p.key_tiles) continue;
        place = {0, place.group + 1};
      } else if (++place.group == groups_) {
        place = {place.key_tile + 1, tail};
      }
    }
  }

  /// Items that stay whole.
  void add_items(ListSchedule& schedule, int first, int end) const {
    for_each_item(first, end, [&](int tile) { schedule.add(times_[tile]); });
  }

  /// Steps of an item, from the item `first` on.
  int longest_from(int first) const {
    int longest = 0;
    for_each_item(first, p.items, [&](int tile) { longest = std::max(longest, steps_[tile]); });
    return longest;
  }

  /// With the items from `first` on in the order of the work table, and those before in `schedule`.
  std::int64_t time_of_split(Split& split, ListSchedule schedule, int first, int piece_steps) const {
    split = {piece_steps, 0, 1, first, 0};
    for_each_item(first, p.items, [&](int tile) {
      const int steps = steps_[tile];
      if (steps <= piece_steps) return;
      const int pieces = pieces_of(steps, piece_steps);
      const int shorter = time_of_piece(steps / pieces);
      const int longer = time_of_piece(steps / pieces + 1);
      for (int piece = 0; piece < pieces; ++piece) schedule.add(piece < steps % pieces ? longer : shorter);
      split.slots += pieces;
      split.most_pieces = std::max(split.most_pieces, pieces);
    });
    split.entries = split.slots;
    for_each_item(first, p.items, [&](int tile) {
      if (steps_[tile] > piece_steps) return;
      schedule.add(times_[tile]);
      ++split.entries;
    });
    return schedule.end() + time_of_sum(split.most_pieces);
  }

  const BackwardParameters& p;
  int longest_;                        ///< steps of an item
  int groups_;                         ///< of heads, through all batches
  int tail_groups_ = 0;                ///< of the order of items
  int unit_;                           ///< of time, in steps
  std::array<int, kMostTiles> steps_;  ///< of an item, by its key tile
  std::array<int, kMostTiles> times_;  ///< of a whole item
};

/// Choices that a thread remembers.
constexpr std::size_t kChoicesKept = 8;

/// All that the choice depends on.
using Key = std::array<std::int64_t, 16>;
Key key_of(const BackwardParameters& p, const Split& otherwise, bool may_split) {
  return {p.items,
          p.key_tiles,
          p.seqlen_q,
          p.seqlen_k,
          p.heads_per_item,
          p.block_m,
          p.block_n,
          p.running,
          p.overhead,
          p.position_delta,
          p.window_left,
          p.window_right,
          p.delta_from_lengths ? 1 : 0,
          otherwise.piece_steps,
          otherwise.slots,
          may_split ? 1 : 0};
}

}  // namespace

bool may_level_last_items(const BackwardParameters& p, int longest) {
  return p.items > p.running && p.items <= std::int64_t{kMostRounds} * p.running && p.key_tiles <= kMostTiles &&
         longest > shortest_piece(p.overhead);
}

Split level_last_items(const BackwardParameters& p, int longest, const Split& otherwise, bool may_split) {
  // Tens of microseconds for thousands of items, which are the same in call after call, and both in the query of a
  // workspace's size and in its use.
  struct Remembered {
    Key key{};
    Split split;
  };
  thread_local std::array<Remembered, kChoicesKept> choices;
  thread_local std::size_t oldest = 0;
  const Key key = key_of(p, otherwise, may_split);
  for (const Remembered& choice : choices)
    if (choice.key == key) return choice.split;
  Remembered& choice = choices[oldest++ % kChoicesKept];
  choice = {key, LastItems(p, longest).choose(otherwise, may_split)};
  return choice.split;
}

}  // namespace flashdma_bwd
