// Which CTA of the main kernel takes which item or piece of one: a table that one CTA writes before.
//
// Only that CTA knows the steps of all items where a mask, or the lengths of packed sequences, decides them. It chooses
// the pieces unless the host did. The table begins after the first `whole_items`, which the host may leave out.
//
// Few items are cut so that all CTAs are done together (ItemCuts), and come longest first, in two phases where the L2
// cache does not hold what all of them work on.
//
// Of many the long ones are cut into pieces of equal length, which come first, for they are the longest there are. When
// the last CTA is done depends on what the last ones take: the last two rounds of unsplit items come longest first.
// Those before them stay in the order of items, in which few heads' Q, dO and dQ are at work at once. Only items so
// long that they would end alone if they began shortly before the last rounds come before all of them. Lists of
// reordered keys descend in each group of heads: of their entries the last round, pieces too, comes longest first.
//
// Items are cut by their steps, but where entries come longest first, the longest are those that take longest, by what
// the lists say of their steps (time_of_step).
//
// The code runs once, beside CTAs that fill the way to memory, by which its instructions come, too: so that these are
// few, loops are not unrolled.
#pragma once

#include "common/item.cuh"

namespace flashdma_bwd {

inline constexpr int kTableThreads = 256;

/// The steps of an item, of all its heads; -1: it has no keys.
__device__ inline int steps_of_item(const BackwardParameters& p, int index) {
  KeyItem item;
  HeadWalk walk = {};
  if (!find_whole_item(item, p, index, p.block_n)) return -1;
#pragma unroll 1
  for (int h = 0; h < p.heads_per_item; ++h) find_head(walk, item, p, h, p.block_m, p.block_n);
  return walk.end_step;
}

/// The sum of the lanes' tallies.
__device__ inline SplitTally sum_of_lanes(SplitTally tally) {
#pragma unroll 1
  for (int mask = 16; mask > 0; mask /= 2) {
    tally.steps += __shfl_xor_sync(0xffffffffu, tally.steps, mask);
    tally.pieces += __shfl_xor_sync(0xffffffffu, tally.pieces, mask);
    tally.slots += __shfl_xor_sync(0xffffffffu, tally.slots, mask);
    tally.longest = max(tally.longest, __shfl_xor_sync(0xffffffffu, tally.longest, mask));
  }
  return tally;
}

/// Q, dO and dQ's scratch of all heads.
__device__ inline std::int64_t live_bytes(const BackwardParameters& p) {
  return p.heads * p.scratch_rows * p.head_dim * (2 + 2 + 4);
}

/// The order of entries, where it is not that of items' numbers behind pieces.
struct EntryOrder {
  int longest = kAllSteps;  ///< unsplit items of more steps come first, among the pieces
  int sorted = 0;           ///< so many entries, the last, are sorted
};

/// Whether entries all start at once, or are equally long.
FLASHDMA_HOST_DEVICE inline bool need_no_order(const SplitTally& tally, int running) {
  return tally.pieces <= running || tally.steps == tally.pieces * tally.longest;
}
/// As many are sorted as there are threads, at most.
FLASHDMA_HOST_DEVICE inline int most_sorted(int running) {
  constexpr int kRounds = 2;
  return kRounds * running < kTableThreads ? kRounds * running : kTableThreads;
}

/// Of unsplit items; pieces come before them.
FLASHDMA_HOST_DEVICE inline EntryOrder order_of_unsplit(const SplitTally& tally, int running, int overhead) {
  if (need_no_order(tally, running)) return {};
  const int most = most_sorted(running);
  const std::int64_t unsplit = tally.pieces - tally.slots;
  if (unsplit <= most) return {kAllSteps, static_cast<int>(unsplit)};
  // What begins with the sorted items is done with them if it takes as long as they do. Half as much again is left to
  // those that begin earlier, so that few items leave the neighbourhood of their heads.
  const float rounds = most < running ? 1.0f : static_cast<float>(most) / static_cast<float>(running);
  const float mean = static_cast<float>(tally.steps) / static_cast<float>(tally.pieces) + static_cast<float>(overhead);
  return {static_cast<int>(1.5f * rounds * mean) - overhead, most};
}

/// Of entries whose last may be pieces, too: one round of those that do not start at once, for sorted further ahead
/// they would have all groups of heads at work at once, which costs more than it levels (hopper/NOTES.md).
FLASHDMA_HOST_DEVICE inline EntryOrder order_of_pieces(const SplitTally& tally, int running) {
  if (need_no_order(tally, running)) return {};
  const std::int64_t waiting = tally.pieces - running;
  const int most = running < kTableThreads ? running : kTableThreads;
  return {kAllSteps, waiting < most ? static_cast<int>(waiting) : most};
}

/// Entries that are sorted at most: so many of a thread.
inline constexpr int kSortedOfThread = 4;
/// Steps of all items, with their overheads, whose places in the order of items are counted without overflow.
inline constexpr std::int64_t kMostCutSteps = 1 << 26;

/// How items are cut for all CTAs to be done together.
struct EvenShares {
  int share = 0;   ///< of a CTA in a phase, in steps with overheads; 0: they are not cut for that
  int phases = 1;  ///< the items of one come before those of the next
};

/// Where cutting into even shares makes the whole faster, and there are not more items than can be sorted. `whole`: the
/// tally of unsplit items, of which splitting may gain something; `live_bytes`: Q, dO and dQ of all heads.
///
/// Measured on an H200: where the L2 cache holds most of what is live, causal masks of the highest scores take 5 to 9 %
/// less time than with pieces of equal length, if a share is not short (4 % more with 2.5 overheads); where it holds
/// half of it, two phases take 4 % less if they are long (100 overheads), and 2 and 8 % more if not (40 and 23).
FLASHDMA_HOST_DEVICE inline EvenShares even_shares(const SplitTally& whole, int running, int overhead,
                                                   std::int64_t live_bytes) {
  constexpr std::int64_t kLiveBytes = 72 << 20;          // at work at once
  constexpr int kMostPhases = kSlotsPerRunningItem / 2;  // each cut makes pieces of an item that had none, or one more
  constexpr int kShortest = 6;                           // share, in overheads
  constexpr int kShortestOfPhases = 75;
  const std::int64_t all = whole.steps + overhead * whole.pieces;
  const int phases = live_bytes <= kLiveBytes ? 1 : live_bytes <= kMostPhases * kLiveBytes ? kMostPhases : 0;
  if (phases == 0 || whole.pieces + phases * running > kSortedOfThread * kTableThreads || all > kMostCutSteps)
    return {};
  const int share = ItemCuts::share(whole, phases * running, overhead);
  if (share < (phases == 1 ? kShortest : kShortestOfPhases) * overhead) return {};
  const auto pieces = static_cast<int>(whole.pieces);
  const int rounds = (pieces + running - 1) / running * ((static_cast<int>(all) + pieces - 1) / pieces);
  const int uncut = rounds > whole.longest + overhead ? rounds : whole.longest + overhead;
  // A piece more for each CTA and phase, and the sums. What cutting costs beside that is not known: where an eighth
  // less was expected, it was measured to gain; with a fortieth (two phases of all pairs) it lost 3 %.
  if (8 * (phases * (share + overhead) + overhead) > 7 * uncut) return {};
  return {share, phases};
}

/// Steps of so many items are kept in shared memory, where there are no more: beside kernels that wait for memory, a
/// read of what was just written takes as long as one of theirs.
inline constexpr int kItemsInShared = 1024;

/// How long the steps of an item are, in parts of one without a masked pair.
inline constexpr int kPace = 256;
inline constexpr int kLongestPace = kPace * kLongestStepTime / kStepTime;
static_assert(kLongestPace * kStepTime == kPace * kLongestStepTime);
FLASHDMA_HOST_DEVICE inline int pace_of(int time, int steps) {
  if (steps <= 0) return kPace;
  constexpr float kUnit = static_cast<float>(kPace) / kStepTime;
  return static_cast<int>(kUnit * static_cast<float>(time) / static_cast<float>(steps));
}
/// Steps of a pace, in steps of kPace. In two parts, whose products fit 32 bits where the steps of an item do.
FLASHDMA_HOST_DEVICE constexpr int paced(int steps, int pace) {
  return steps / kPace * pace + steps % kPace * pace / kPace;
}

/// One CTA of kTableThreads threads.
class WorkTableWriter {
  static constexpr int kWarps = kTableThreads / 32;
  static constexpr int kBins = 64;  ///< of steps, by which entries are sorted
  /// A tally as shared memory can hold it.
  struct Numbers {
    std::int64_t steps, pieces, slots;
    int longest;
  };
  struct Shared {
    Numbers warps[kWarps];
    struct {
      int pieces, slots, longest;
    } tried[kWarps][32];  ///< of each warp's items, by the pieces of the longest
    int item_steps[kItemsInShared];
    std::uint16_t item_paces[kItemsInShared];
    std::uint64_t sums[kWarps];
    WorkItem sorted[kTableThreads];                         ///< in their order, the entries that are to be sorted
    int lengths[kSortedOfThread * kTableThreads];           ///< of what is to be sorted, see length_of(),
    std::uint16_t places[kSortedOfThread * kTableThreads];  ///< and where it comes
    /// Of each bin, of each warp's entries: how many, then where they begin.
    std::uint16_t bins[kBins * kSortedOfThread * kWarps];
  };

 public:
  __device__ explicit WorkTableWriter(const BackwardParameters& parameters)
      : p(parameters), items_(parameters.items - parameters.whole_items), thread_(static_cast<int>(threadIdx.x)) {}

  /// For each call, whoever wrote the table.
  __device__ void clear_arrivals() const {
#pragma unroll 1
    for (std::int64_t i = thread_; i < std::int64_t{p.piece_slots} * kPieceParts; i += kTableThreads)
      p.piece_arrivals[i] = 0;
  }

  /// What needs no list.
  __device__ void clear_slots() const {
#pragma unroll 1
    for (int i = thread_; i < later_slots(p); i += kTableThreads) p.slot_entries[i] = -1;
  }

  __device__ void run() {
    __shared__ Shared shared;
    item_steps_ = items_ <= kItemsInShared ? shared.item_steps : p.item_steps;
    grouped_ = stays_grouped(p);
    find_steps(shared);
    __syncthreads();
    const bool chooses = p.piece_steps == 0;
    int piece_steps = chooses ? kAllSteps : p.piece_steps;
    SplitTally tally = tally_of_all(shared, piece_steps);
    std::int64_t entries = tally.pieces;
    const bool may_gain = chooses && tally.may_gain(p.running, p.overhead);
    const EvenShares even =
        may_gain && !in_order() ? even_shares(tally, p.running, p.overhead, live_bytes(p)) : EvenShares();
    if (even.share > 0) {
      entries = write_shares(shared, even, tally);
    } else {
      if (may_gain) {
        piece_steps = choose_piece_steps(shared, tally);
      }
      write(shared, piece_steps, tally, chooses ? order_of(tally) : EntryOrder());
      entries = tally.pieces;
    }
#pragma unroll 1
    for (std::int64_t i = entries + thread_; i < p.ctas - p.whole_items; i += kTableThreads) p.work[i].item = -1;
  }

 private:
  /// The steps of all items, and their paces where there are any.
  __device__ void find_steps(Shared& shared) {
    if (p.list_counts != nullptr && (p.active_keys == nullptr || p.key_orders != nullptr)) {
      if (p.list_times != nullptr && items_ <= kItemsInShared) item_paces_ = shared.item_paces;
      find_listed_steps();
      return;
    }
#pragma unroll 1
    for (int i = thread_; i < items_; i += kTableThreads) item_steps_[i] = steps_of_item(p, p.whole_items + i);
  }
  /// The same where lists say how many tiles there are. Beside kernels that keep the memory busy a read takes two
  /// microseconds: those of several items are under way at once, and depend on nothing.
  __device__ void find_listed_steps() const {
    constexpr int kAtOnce = 4;
#pragma unroll 1
    for (int first = thread_; first < items_; first += kAtOnce * kTableThreads) {
      int keys[kAtOnce];  // from the tile's first on
      int steps[kAtOnce], head[kAtOnce], first_list[kAtOnce];
      int times[kAtOnce] = {};
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const ItemPlace place = place_of(min(first + k * kTableThreads, items_ - 1));
        const int batch = p.by.head_items.quotient(place.group);
        head[k] = (place.group - batch * p.head_items) * p.heads_per_item;
        first_list[k] = batch * p.list_heads * p.key_tiles + place.key_tile;
        steps[k] = 0;
        keys[k] = sequence_of(p, batch).length_k;
        if (p.active_keys != nullptr) {
          const int mask = batch * p.compact_batch_stride + p.by.heads_per_mask.quotient(head[k]);
          const auto order = *reinterpret_cast<const int2*>(p.key_orders + mask);
          keys[k] = order.y != 0 ? keys[k] : order.x;
        }
        keys[k] -= place.key_tile * p.block_n;
      }
#pragma unroll 1
      for (int h = 0; h < p.heads_per_item; ++h)
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          const int list = first_list[k] + p.by.heads_per_list.quotient(head[k] + h) * p.key_tiles;
          steps[k] += p.list_counts[list];
          if (item_paces_ != nullptr) times[k] += p.list_times[list];
        }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const int item = first + k * kTableThreads;
        if (item >= items_) continue;
        item_steps_[item] = keys[k] > 0 ? steps[k] : -1;
        if (item_paces_ != nullptr) item_paces_[item] = static_cast<std::uint16_t>(pace_of(times[k], steps[k]));
      }
    }
  }

  /// How many steps of kPace take as long as an entry's.
  __device__ int length_of(const WorkItem& work) const {
    const int steps = work.end_step - work.first_step;
    return item_paces_ == nullptr ? steps : paced(steps, item_paces_[work.item - p.whole_items]);
  }
  /// The same of entries of so many steps, at most.
  __device__ int longest_of(int steps) const {
    return item_paces_ == nullptr ? steps : paced(steps, kLongestPace);
  }

  /// Of the item-th of the table's.
  __device__ ItemPlace place_of(int item) const {
    return place_of_item(p, p.whole_items + item, grouped_);
  }

  __device__ SplitTally tally_of(int piece_steps, int first, int step) const {
    SplitTally tally;
#pragma unroll 1
    for (int i = first; i < items_; i += step)
      if (item_steps_[i] >= 0) tally.add(item_steps_[i], piece_steps, 1);
    return tally;
  }

  /// The tally of all items, for all threads.
  __device__ SplitTally tally_of_all(Shared& shared, int piece_steps) const {
    const SplitTally mine = sum_of_lanes(tally_of(piece_steps, thread_, kTableThreads));
    __syncthreads();
    if (thread_ % 32 == 0) shared.warps[thread_ / 32] = {mine.steps, mine.pieces, mine.slots, mine.longest};
    __syncthreads();
    SplitTally all;
#pragma unroll 1
    for (const Numbers& warp : shared.warps) {
      all.steps += warp.steps;
      all.pieces += warp.pieces;
      all.slots += warp.slots;
      all.longest = max(all.longest, warp.longest);
    }
    return all;
  }

  /// The length whose time is estimated shortest among those for which there is room, or kAllSteps. `tally`: of unsplit
  /// items; on return that of the pieces. A lane tries one number of pieces of the longest item, with some of the items
  /// in each warp, so that all lanes have the same item at a time: most are not cut, and cost little.
  __device__ int choose_piece_steps(Shared& shared, SplitTally& tally) const {
    static_assert(kMostPieces - 1 <= 32);
    const int lane = thread_ % 32;
    const int length = piece_steps_for(tally.longest, 2 + lane, p.overhead);
    const SplitTally mine = tally_of(length, thread_ / 32, kWarps);
    shared.tried[thread_ / 32][lane] = {static_cast<int>(mine.pieces), static_cast<int>(mine.slots), mine.longest};
    __syncthreads();
    const auto tally_of_lane = [&](int i) {
      SplitTally pieces;
      pieces.steps = tally.steps;
#pragma unroll 1
      for (const auto& warp : shared.tried) {
        pieces.pieces += warp[i].pieces;
        pieces.slots += warp[i].slots;
        pieces.longest = max(pieces.longest, warp[i].longest);
      }
      return pieces;
    };
    const SplitTally pieces = tally_of_lane(lane);
    const bool possible = 2 + lane <= (in_order() ? kMostPiecesInRounds : kMostPieces) &&
                          may_choose(pieces, pieces_of(tally.longest, length), p.running, p.piece_slots);
    const std::int64_t uncut = tally.estimate(p.running, p.overhead);
    std::int64_t time = possible ? pieces.estimate(p.running, p.overhead) : uncut;
    int best = lane;  // with the shortest time, or of these the first
#pragma unroll 1
    for (int mask = 16; mask > 0; mask /= 2) {
      const std::int64_t other_time = __shfl_xor_sync(0xffffffffu, time, mask);
      const int other = __shfl_xor_sync(0xffffffffu, best, mask);
      if (other_time < time || (other_time == time && other < best)) time = other_time, best = other;
    }
    if (time >= uncut) return kAllSteps;
    const int steps = piece_steps_for(tally.longest, 2 + best, p.overhead);
    tally = tally_of_lane(best);
    return steps;
  }

  /// The sum of the values of all smaller threads, and of all.
  __device__ std::uint64_t sum_before(Shared& shared, std::uint64_t value, std::uint64_t& all) const {
    const int lane = thread_ % 32;
    std::uint64_t sum = value;
#pragma unroll 1
    for (int step = 1; step < 32; step *= 2) {
      const std::uint64_t other = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += other;
    }
    __syncthreads();
    if (lane == 31) shared.sums[thread_ / 32] = sum;
    __syncthreads();
    std::uint64_t before = sum - value;
    all = 0;
#pragma unroll 1
    for (int warp = 0; warp < kWarps; ++warp) {
      if (warp < thread_ / 32) before += shared.sums[warp];
      all += shared.sums[warp];
    }
    return before;
  }

  /// In deterministic mode a CTA waits for those with earlier key tiles of the same heads, so these come first; and
  /// CTAs start in the order of the table. The pieces of a key tile visit different tiles of dQ and do not wait for
  /// each other, nor for the sums of dK and dV, which whoever is last makes: the first CTA that has not finished waits
  /// for none, so that there is always one that goes on.
  __device__ bool in_order() const {
    return p.d_q_turns != nullptr;
  }
  /// The lists of reordered keys descend already, but for those of one group of heads after those of another, and what
  /// is left of their pieces' lengths.
  __device__ EntryOrder order_of(const SplitTally& tally) const {
    if (in_order()) return {};
    const bool descend = p.key_orders != nullptr && p.key_orders->natural == 0;
    return descend ? order_of_pieces(tally, p.running) : order_of_unsplit(tally, p.running, p.overhead);
  }

  /// Writes all entries, as ItemCuts cuts the items. `whole`: their tally. Returns how many there are.
  __device__ int write_shares(Shared& shared, const EvenShares& even, const SplitTally& whole) const {
    const int longest = longest_of(ItemCuts::longest_piece(whole.longest, even.share, p.overhead));
    const int all = static_cast<int>(whole.steps) + p.overhead * static_cast<int>(whole.pieces);
    const int phase_steps = (all + even.phases - 1) / even.phases;
    // Pieces of an earlier phase are sorted as if they were longer than all of the next.
    const int entries = visit_shares(shared, even.share, [&](int entry, int begin, const WorkItem& work) {
      const int later_phases = even.phases - 1 - begin / phase_steps;
      shared.lengths[entry] = length_of(work) + later_phases * (longest + 1);
    });
    __syncthreads();
    sort(shared, entries, even.phases * (longest + 1) - 1);
    return visit_shares(shared, even.share,
                        [&](int entry, int, const WorkItem& work) { p.work[shared.places[entry]] = work; });
  }

  /// Calls visit(number, place, entry) for all entries, in the order of the items and of their pieces, which have a
  /// place among all steps of those that are laid end to end. Returns how many there are.
  template <class Visit>
  __device__ int visit_shares(Shared& shared, int share, Visit&& visit) const {
    int end = 0;               // of the items before, laid end to end
    std::uint64_t before = 0;  // low half: entries; high half: slots
#pragma unroll 1
    for (int base = 0; base < items_; base += kTableThreads) {
      const int item = base + thread_;
      const int steps = item < items_ ? item_steps_[item] : -1;
      const bool laid = steps >= 0 && !ItemCuts::stays_whole(steps, share, p.overhead);
      std::uint64_t all;
      const int begin = end + static_cast<int>(sum_before(shared, laid ? steps + p.overhead : 0, all));
      end += static_cast<int>(all);
      const ItemCuts cuts =
          laid ? ItemCuts::of(begin, steps, share, p.overhead) : ItemCuts{steps, share, steps < 0 ? 0 : 1};
      const auto pieces = static_cast<std::uint64_t>(cuts.pieces);
      const std::uint64_t place = before + sum_before(shared, pieces | (pieces > 1 ? pieces << 32 : 0), all);
      before += all;
      if (cuts.pieces == 0) continue;
      const ItemPlace tile = place_of(item);
#pragma unroll 1
      for (int piece = 0; piece < cuts.pieces; ++piece)
        visit(static_cast<int>(place & 0xffffffffu) + piece, begin + cuts.first_step_of(steps, piece),
              WorkItem{p.whole_items + item, static_cast<std::int16_t>(piece), static_cast<std::int16_t>(cuts.pieces),
                       cuts.first_step_of(steps, piece), cuts.first_step_of(steps, piece + 1),
                       static_cast<std::int32_t>(place >> 32), tile.key_tile, tile.group});
    }
    return static_cast<int>(before & 0xffffffffu);
  }

  /// Unsplit items of more than `longest` steps.
  __device__ int count_long_items(Shared& shared, int piece_steps, int longest) const {
    std::uint64_t mine = 0;
#pragma unroll 1
    for (int i = thread_; i < items_; i += kTableThreads)
      mine += item_steps_[i] > longest && item_steps_[i] <= piece_steps ? 1 : 0;
    std::uint64_t all;
    sum_before(shared, mine, all);
    return static_cast<int>(all);
  }

  /// Writes the table but for its end.
  __device__ void write(Shared& shared, int piece_steps, const SplitTally& tally, const EntryOrder& order) const {
    // Long items count as split ones of one piece: they take a slot each, where there are as many.
    int longest = kAllSteps;
    int early_entries = static_cast<int>(tally.slots);
    if (tally.longest > order.longest && piece_steps > order.longest) {
      const int items = count_long_items(shared, piece_steps, order.longest);
      if (tally.slots + items <= p.piece_slots) {
        longest = order.longest;
        early_entries += items;
      }
    }
    // Of pieces that do not run at once the sums are hidden by other CTAs' steps, and those of few take as long either
    // way.
    const bool later = later_slots(p) > 0 && tally.slots > 0 && tally.pieces <= p.running &&
                       tally.slots >= kFewestSummedLater * count_long_items(shared, kAllSteps, piece_steps);
    // Long items that come early may leave fewer than were to be sorted.
    const int entries = static_cast<int>(tally.pieces);
    const int sorted = min(order.sorted, longest == kAllSteps ? entries : entries - early_entries);
    const int first_sorted = entries - sorted;
    std::uint64_t before = 0;  // low half: what comes first; high half: other items
#pragma unroll 1
    for (int base = 0; base < items_; base += kTableThreads) {
      const int item = base + thread_;
      const int steps = item < items_ ? item_steps_[item] : -1;
      const int pieces = steps < 0 ? 0 : pieces_of(steps, piece_steps);
      const bool early = pieces > 1 || steps > longest;
      std::uint64_t all;
      const std::uint64_t mine = early ? static_cast<std::uint64_t>(pieces) : static_cast<std::uint64_t>(pieces) << 32;
      const std::uint64_t place = before + sum_before(shared, mine, all);
      before += all;
      if (pieces == 0) continue;
      const auto slot = static_cast<int>(place & 0xffffffffu);
      const auto other = static_cast<int>(place >> 32);
      const int first = in_order() ? slot + other : early ? slot : early_entries + other;
      const ItemPlace tile = place_of(item);
      const EvenPieces even(steps, pieces);
#pragma unroll 1
      for (int piece = 0; piece < pieces; ++piece) {
        const WorkItem work{p.whole_items + item,
                            static_cast<std::int16_t>(piece),
                            static_cast<std::int16_t>(pieces),
                            even.first_step_of(piece),
                            even.first_step_of(piece + 1),
                            later && pieces > 1 ? ~slot : slot,
                            tile.key_tile,
                            tile.group};
        if (const int sorted_entry = first + piece - first_sorted; sorted_entry >= 0) {
          shared.sorted[sorted_entry] = work;
          shared.lengths[sorted_entry] = length_of(work);
        } else {
          p.work[first + piece] = work;
        }
      }
      if (later && pieces > 1)
#pragma unroll 1
        for (int piece = 0; piece < pieces; ++piece) p.slot_entries[slot + piece] = first + piece;
    }
    if (sorted == 0) return;
    __syncthreads();
    sort(shared, sorted, longest_of(longest < tally.longest ? longest : tally.longest));
    if (thread_ < sorted) p.work[first_sorted + shared.places[thread_]] = shared.sorted[thread_];
  }

  /// From the lengths of `count` entries to their places, longest first but for those that a bin does not tell apart,
  /// which stay in their order. None is longer than `longest`.
  __device__ void sort(Shared& shared, int count, int longest) const {
    const int warp = thread_ / 32;
    const int chunks = (count + kTableThreads - 1) / kTableThreads;
    const int counts = kBins * chunks * kWarps / kTableThreads;  // of a thread
#pragma unroll 1
    for (int i = 0; i < counts; ++i) shared.bins[thread_ * counts + i] = 0;
    __syncthreads();
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int entry = chunk * kTableThreads + thread_;
      // What is no entry comes behind all that are.
      const int length = entry < count ? shared.lengths[entry] : 0;
      // Not below 0: a float does not tell numbers above 2^24 apart.
      const int bin =
          max(kBins - 1 - static_cast<int>(static_cast<float>(length) * kBins / static_cast<float>(longest + 1)), 0);
      const unsigned alike = __match_any_sync(0xffffffffu, bin);
      const int earlier = __popc(alike & ((1u << thread_ % 32) - 1));
      if (earlier == 0) shared.bins[(bin * chunks + chunk) * kWarps + warp] = static_cast<std::uint16_t>(__popc(alike));
      // Until the sums are there: in which bin, and where among the warp's of it.
      shared.places[entry] = static_cast<std::uint16_t>(bin * 32 + earlier);
    }
    __syncthreads();
    std::uint64_t own = 0;
#pragma unroll 1
    for (int i = 0; i < counts; ++i) own += shared.bins[thread_ * counts + i];
    std::uint64_t all;
    std::uint64_t begin = sum_before(shared, own, all);
#pragma unroll 1
    for (int i = 0; i < counts; ++i) {
      const std::uint16_t here = shared.bins[thread_ * counts + i];
      shared.bins[thread_ * counts + i] = static_cast<std::uint16_t>(begin);
      begin += here;
    }
    __syncthreads();
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk) {
      std::uint16_t& place = shared.places[chunk * kTableThreads + thread_];
      place = static_cast<std::uint16_t>(shared.bins[(place / 32 * chunks + chunk) * kWarps + warp] + place % 32);
    }
    __syncthreads();
  }

  const BackwardParameters& p;
  int items_;  ///< of the table, counted from the first after the whole ones
  std::int32_t* item_steps_ = nullptr;
  std::uint16_t* item_paces_ = nullptr;  ///< where lists say what steps take
  bool grouped_ = false;
  int thread_;
};

}  // namespace flashdma_bwd
