// A work table of a problem, written on the host, and what must hold of any.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <vector>

// Device code, compiled for the host by way of host/common/launch_kernel.hpp.
#include "common/launch_kernel.hpp"
// The other headers need what that one defines.
#include "common/work_table.cuh"
#include "launch/split.hpp"
#include "support/catch.hpp"

namespace flashdma_bwd {

inline void write_work_table(const BackwardParameters p) {
  WorkTableWriter table(p);
  table.clear_arrivals();
  table.clear_slots();
  table.run();
}

/// A problem with everything that the table's writer and its readers need.
struct Table {
  BackwardParameters p;
  std::vector<std::uint32_t> entries;
  std::vector<std::int32_t> counts;
  std::vector<std::int32_t> times;  ///< of lists; none: all steps take as long
  std::vector<std::int32_t> steps, arrivals, slot_entries;
  std::vector<WorkItem> work;
  std::int32_t turns = 0;

  void write(const Split& split) {
    p.order = split.order;
    p.piece_steps = split.piece_steps;
    p.piece_slots = static_cast<int>(split.slots);
    p.whole_items = split.whole_items;
    p.ctas = static_cast<int>(split.whole_items + split.entries);
    steps.assign(static_cast<std::size_t>(p.items - p.whole_items), -7);
    work.assign(static_cast<std::size_t>(split.entries), WorkItem{-7, -7, -7, -7, -7, -7, -7, -7});
    arrivals.assign(static_cast<std::size_t>(p.piece_slots * kPieceParts), -7);
    slot_entries.assign(static_cast<std::size_t>(later_slots(p)), -7);
    prepare_items(p);
    p.item_steps = steps.data();
    if (!times.empty()) p.list_times = times.data();
    p.piece_arrivals = arrivals.data();
    p.slot_entries = slot_entries.data();
    p.work = work.data();
    REQUIRE(launch_kernel(write_work_table, dim3(1), kTableThreads, 0, nullptr, p) == cudaSuccess);
  }
};

/// An entry of a list whose query tile is partial or full.
inline std::uint32_t entry_of(int query_tile, bool partial = false) {
  const StepFacts half = facts_of_half(partial ? MaskClass::partial : MaskClass::full, false);
  return list_entry({query_tile, facts_of_halves(half, half)});
}

using Steps = std::multiset<std::tuple<int, int, bool>>;  // head, query tile, whether it is partial

/// What the CTA with this item takes.
inline Steps steps_of(const BackwardParameters& p, const KeyItem& item) {
  Steps steps;
  HeadWalk walk = {};
  for (int h = 0; h < p.heads_per_item; ++h) {
    find_head(walk, item, p, h, p.block_m, p.block_n);
    for (int i = 0; i < walk.count; ++i) {
      const TileStep step = step_of(walk, i);
      steps.insert({walk.head, step.tile, step.is_partial()});
    }
  }
  return steps;
}

inline int steps_of(const WorkItem& work) {
  return work.end_step - work.first_step;
}

/// How many steps without a masked pair take as long as an entry's: by its share of what its item's lists take.
inline int length_of(const Table& table, const WorkItem& work) {
  const BackwardParameters& p = table.p;
  if (p.list_times == nullptr || p.items - p.whole_items > kItemsInShared) return steps_of(work);
  const ItemPlace place = place_of_item(p, work.item, stays_grouped(p));
  const int batch = place.group / p.head_items;
  int steps = 0, time = 0;
  for (int h = 0; h < p.heads_per_item; ++h) {
    const int head = place.group % p.head_items * p.heads_per_item + h;
    const auto list =
        static_cast<std::size_t>((batch * p.list_heads + head / p.list_heads_per_head) * p.key_tiles + place.key_tile);
    steps += table.counts.at(list);
    time += table.times.at(list);
  }
  return paced(steps_of(work), pace_of(time, steps));
}

/// The entries that are there.
inline std::vector<WorkItem> entries_of(const Table& table) {
  const auto end = std::find_if(table.work.begin(), table.work.end(), [](const WorkItem& w) { return w.item < 0; });
  return {table.work.begin(), end};
}

/// The tally of the unsplit items of a table's entries.
inline SplitTally whole_tally(const std::vector<WorkItem>& entries) {
  std::map<int, int> items;
  for (const WorkItem& work : entries) items[work.item] += steps_of(work);
  SplitTally tally;
  for (const auto& [item, steps] : items) tally.add(steps, kAllSteps, 1);
  return tally;
}

/// How a table's items are cut for all CTAs to be done together.
inline EvenShares shares_of(const Table& table) {
  const BackwardParameters& p = table.p;
  if (p.piece_steps != 0 || p.d_q_turns != nullptr) return {};
  const SplitTally whole = whole_tally(entries_of(table));
  if (!whole.may_gain(p.running, p.overhead)) return {};
  return even_shares(whole, p.running, p.overhead, live_bytes(p));
}

/// The same of entries of so many steps, at most.
inline int longest_of(const Table& table, int steps) {
  const BackwardParameters& p = table.p;
  const bool by_times = p.list_times != nullptr && p.items - p.whole_items <= kItemsInShared;
  return by_times ? paced(steps, kLongestPace) : steps;
}

/// Checks the order of even shares: in each phase, longest first.
inline void check_order_of_shares(const Table& table, const EvenShares& even) {
  const std::vector<WorkItem> entries = entries_of(table);
  const int longest = ItemCuts::longest_piece(whole_tally(entries).longest, even.share, table.p.overhead);
  int phases = 1;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const WorkItem& work = entries[i];
    REQUIRE(steps_of(work) <= longest);
    if (i == 0) continue;
    const WorkItem& before = entries[i - 1];
    // A 64th of the longest is not told apart.
    const int longer = length_of(table, work) - length_of(table, before);
    if (longer * 64 > even.phases * (longest_of(table, longest) + 1)) {
      ++phases;
      REQUIRE(phases <= even.phases);
    } else if (longer == 0) {
      REQUIRE((before.item < work.item || (before.item == work.item && before.piece < work.piece)));
    }
  }
}

/// Checks the order of a table's entries: pieces and long items, then the items between in the order of their numbers,
/// then the last ones, longest first, which are unsplit items, or, where lists of reordered keys descend, pieces too.
inline EntryOrder check_order(const Table& table) {
  const BackwardParameters& p = table.p;
  const std::vector<WorkItem> entries = entries_of(table);
  if (const EvenShares even = shares_of(table); even.share > 0) {
    check_order_of_shares(table, even);
    return {};
  }
  SplitTally tally;
  std::int64_t early = 0;
  for (const WorkItem& work : entries) {
    ++tally.pieces;
    tally.slots += work.pieces > 1 ? 1 : 0;
    tally.steps += steps_of(work);
    tally.longest = std::max(tally.longest, steps_of(work));
  }
  const bool ordered = p.piece_steps == 0 && p.d_q_turns == nullptr;
  const bool descend = p.key_orders != nullptr && p.key_orders->natural == 0;
  EntryOrder order;
  if (ordered) order = descend ? order_of_pieces(tally, p.running) : order_of_unsplit(tally, p.running, p.overhead);
  if (p.d_q_turns != nullptr) return order;
  const auto is_long = [&](const WorkItem& work) { return work.pieces == 1 && steps_of(work) > order.longest; };
  const auto count_early = [&] { return tally.slots + std::count_if(entries.begin(), entries.end(), is_long); };
  if (count_early() > p.piece_slots) order.longest = kAllSteps;
  early = count_early();
  if (!descend) order.sorted = static_cast<int>(std::min<std::int64_t>(order.sorted, tally.pieces - early));
  const std::int64_t sorted = tally.pieces - order.sorted;
  int longest = 0;
  for (auto i = sorted; i < tally.pieces; ++i)
    longest = std::max(longest, steps_of(entries[static_cast<std::size_t>(i)]));
  const int bound = std::min(order.longest, tally.longest);
  REQUIRE(longest <= bound);
  for (std::int64_t i = 0; i < tally.pieces; ++i) {
    const WorkItem& work = entries[static_cast<std::size_t>(i)];
    const bool comes_early = work.pieces > 1 || is_long(work);
    if (i < sorted || !descend) REQUIRE((i < early) == comes_early);
    if (i == 0 || (i == early && i < sorted) || i == sorted) continue;
    const WorkItem& before = entries[static_cast<std::size_t>(i - 1)];
    const bool next = before.item < work.item || (before.item == work.item && before.piece + 1 == work.piece);
    if (i < early && i < sorted) REQUIRE(next);
    if (i > early && i < sorted) REQUIRE(before.item < work.item);
    if (i > sorted) {
      // A 64th of the longest is not told apart.
      const int longer = length_of(table, work) - length_of(table, before);
      REQUIRE(longer * 64 <= longest_of(table, bound) + 1);
      if (longer == 0) REQUIRE((next || (before.pieces > 1 && work.pieces == 1)));
    }
  }
  return order;
}

/// Checks a table against the items. Returns the most pieces that an item has.
inline int check_table(const Table& table) {
  const BackwardParameters& p = table.p;
  check_order(table);
  const bool even = shares_of(table).share > 0;
  std::map<int, std::vector<WorkItem>> pieces;
  std::map<int, std::set<int>> lengths;  // of the pieces of an item
  std::set<int> slots;
  bool idle = false;
  int last_item = -1;
  for (const WorkItem& work : table.work) {
    if (work.item < 0) {
      REQUIRE(work.item == -1);
      idle = true;
      continue;
    }
    REQUIRE_FALSE(idle);  // those without work come last
    REQUIRE(work.item >= p.whole_items);
    REQUIRE(work.item < p.items);
    if (p.d_q_turns != nullptr) REQUIRE(work.item >= last_item);
    last_item = work.item;
    pieces[work.item].push_back(work);
    if (work.pieces > 1) {
      const int slot = (work.slot < 0 ? ~work.slot : work.slot) + work.piece;
      REQUIRE(slot < p.piece_slots);
      REQUIRE(slots.insert(slot).second);
    }
  }
  for (std::int32_t arrivals : table.arrivals) REQUIRE(arrivals == 0);
  std::vector<std::int32_t> entries_of_slots(table.slot_entries.size(), -1);
  for (std::size_t entry = 0; entry < table.work.size(); ++entry)
    if (const WorkItem& work = table.work[entry]; work.item >= 0 && work.slot < 0)
      entries_of_slots.at(static_cast<std::size_t>(~work.slot + work.piece)) = static_cast<std::int32_t>(entry);
  REQUIRE(table.slot_entries == entries_of_slots);

  int most = 1;
  BackwardParameters whole = p;
  whole.whole_items = p.items;
  std::map<int, Steps> taken;
  for (int cta = 0; cta < p.whole_items; ++cta) {
    KeyItem item;
    if (!find_item(item, p, cta, p.block_n)) continue;
    REQUIRE(item.pieces == 1);
    pieces[cta].push_back({cta, 0, 1, 0, kAllSteps, 0, 0, 0});
    taken[cta] = steps_of(p, item);
  }
  int cta = p.whole_items;
  for (; cta < p.ctas && table.work[static_cast<std::size_t>(cta - p.whole_items)].item >= 0; ++cta) {
    KeyItem item;
    REQUIRE(find_item(item, p, cta, p.block_n));
    const Steps own = steps_of(p, item);
    const WorkItem& work = table.work[static_cast<std::size_t>(cta - p.whole_items)];
    REQUIRE(static_cast<int>(own.size()) == steps_of(work));
    if (even) {
      if (work.pieces > 1) REQUIRE(steps_of(work) >= p.overhead);
    } else if (work.pieces > 1) {
      lengths[work.item].insert(steps_of(work));
    }
    taken[work.item].insert(own.begin(), own.end());
  }
  KeyItem nothing;
  for (; cta < p.ctas; ++cta) REQUIRE_FALSE(find_item(nothing, p, cta, p.block_n));
  for (int i = 0; i < p.items; ++i) {
    KeyItem item;
    const bool has_keys = find_item(item, whole, i, p.block_n);
    REQUIRE(has_keys == (pieces.count(i) != 0));
    if (!has_keys) continue;
    std::vector<WorkItem>& own = pieces[i];
    std::sort(own.begin(), own.end(), [](const WorkItem& a, const WorkItem& b) { return a.piece < b.piece; });
    if (!lengths[i].empty()) REQUIRE(*lengths[i].rbegin() - *lengths[i].begin() <= 1);
    for (std::size_t piece = 0; piece < own.size(); ++piece) {
      if (piece > 0) REQUIRE(own[piece].first_step == own[piece - 1].end_step);
      REQUIRE(own[piece].piece == static_cast<int>(piece));
      REQUIRE(own[piece].pieces == static_cast<int>(own.size()));
      REQUIRE(own[piece].slot == own[0].slot);
    }
    REQUIRE(taken[i] == steps_of(whole, item));
    most = std::max(most, static_cast<int>(own.size()));
  }
  return most;
}

inline void lay_out(BackwardParameters& p) {
  p.key_tiles = (p.seqlen_k + p.block_n - 1) / p.block_n;
  p.query_tiles = (p.seqlen_q + p.block_m - 1) / p.block_m;
  p.items = p.key_tiles * p.batch * (p.heads / p.heads_per_item);
  prepare_items(p);
}

inline BackwardParameters dense(int batch, int heads, int length, bool causal, int block_m = 128) {
  BackwardParameters p;
  p.batch = batch;
  p.heads = p.heads_kv = heads;
  p.head_dim = 64;
  p.block_m = block_m;
  p.block_n = 128;
  p.seqlen_q = p.seqlen_k = length;
  p.running = 132;
  p.overhead = overhead_in_steps(block_m, 128, 64);
  if (causal) p.window_right = 0;
  lay_out(p);
  return p;
}

/// Several heads share a KV head, and an item.
inline BackwardParameters grouped_dense(int batch, int heads, int heads_per_item, int length) {
  BackwardParameters p = dense(batch, heads, length, true, 64);
  p.heads_kv = heads / heads_per_item;
  p.heads_per_item = heads_per_item;
  lay_out(p);
  return p;
}

}  // namespace flashdma_bwd
