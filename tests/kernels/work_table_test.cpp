// The work table, whose writer runs on the host: what it has, and in which order.
#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "kernels/work_table_checks.hpp"
#include "launch/split.hpp"
#include "support/catch.hpp"

namespace {

using namespace flashdma_bwd;

TEST_CASE("a work table has every step of every item once, whoever chose the length of pieces") {
  std::mt19937 generator(13);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator); };
  int several = 0, three = 0, chosen_several = 0;
  for (int round = 0; round < 60; ++round) {
    Table table;
    BackwardParameters& p = table.p;
    p.batch = draw(1, 3);
    p.heads_kv = 1;
    p.heads_per_item = draw(1, 3);
    p.heads = p.heads_per_item * draw(1, 2);
    p.block_m = 64;
    p.block_n = draw(0, 1) == 0 ? 64 : 128;
    p.seqlen_q = draw(1, 4000);
    p.seqlen_k = draw(1, 1500);
    p.running = draw(1, 150);
    p.overhead = draw(1, 4);
    if (draw(0, 1) == 0) p.window_right = 0;
    if (draw(0, 2) == 0) p.window_left = draw(0, 700);
    if (draw(0, 2) == 0) p.d_q_turns = &table.turns;
    std::vector<std::int32_t> q{0}, k{0};
    if (draw(0, 2) == 0) {
      for (int b = 0; b < p.batch; ++b) {
        q.push_back(q.back() + draw(0, p.seqlen_q));
        k.push_back(k.back() + draw(0, p.seqlen_k));
      }
      p.cu_seqlens_q = q.data();
      p.cu_seqlens_k = k.data();
    }
    lay_out(p);
    const bool lists = draw(0, 1) == 0;
    if (lists) {
      // Any list of any length: what a mask may leave.
      p.list_heads = p.heads;
      const bool times = draw(0, 1) == 0;
      const int count = p.batch * p.heads * p.key_tiles;
      for (int list = 0; list < count; ++list) {
        const int length = draw(0, 3) == 0 ? p.query_tiles : draw(0, p.query_tiles / 4);
        table.counts.push_back(length);
        if (times) table.times.push_back(length * draw(kStepTime - 10, kLongestStepTime));
        for (int tile = 0; tile < p.query_tiles; ++tile)
          table.entries.push_back(tile < length ? entry_of(tile, tile % 3 == 0) : ~0u);
      }
      p.list_entries = table.entries.data();
      p.list_counts = table.counts.data();
    }
    const int asked_for = draw(0, 1) == 0 ? draw(1, 40) : 0;
    Split split = split_items(p, {.masked = lists, .deterministic = p.d_q_turns != nullptr, .piece_steps = asked_for});
    if (draw(0, 1) == 0) {
      const int blocks = draw(0, 2);
      split.order.block_groups = std::max(p.items / p.key_tiles / 3, 1);
      split.order.tail_groups = std::max(p.items / p.key_tiles - blocks * split.order.block_groups, 0);
    }
    INFO("round " << round << ": " << p.items << " items, lists " << lists << ", asked for " << asked_for << ", slots "
                  << split.slots);
    if (split.slots == 0) continue;
    table.write(split);
    const int most = check_table(table);
    REQUIRE(most <= split.most_pieces);
    several += most > 1 ? 1 : 0;
    three += most > 2 ? 1 : 0;
    chosen_several += asked_for == 0 && most > 1 ? 1 : 0;
  }
  CHECK(several > 20);
  CHECK(three > 10);
  CHECK(chosen_several > 5);
}

TEST_CASE("without a list each half of a key tile is taken for what its own pairs are") {
  std::mt19937 generator(29);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator); };
  int empty = 0, partial = 0, full = 0, idle = 0;
  for (int round = 0; round < 3000; ++round) {
    BackwardParameters p;
    p.batch = p.heads = p.heads_kv = p.heads_per_item = 1;
    p.block_m = 64;
    p.block_n = kKeysOfTwoHalves;
    p.seqlen_q = draw(1, 700);
    p.seqlen_k = draw(1, 700);
    p.position_delta = draw(0, 2) == 0 ? draw(-300, 300) : 0;
    p.delta_from_lengths = draw(0, 1) == 0;
    p.window_left = draw(0, 1) == 0 ? kNoWindow : draw(0, 400);
    p.window_right = draw(0, 2) == 0 ? kNoWindow : draw(0, 1) * draw(0, 300);
    p.backward_walks = BackwardWalks::all;
    KeyItem item = {};
    item.sequence = sequence_of(p, 0);
    item.limits = limits_of(p, item.sequence);
    item.key_tile = draw(0, (p.seqlen_k - 1) / p.block_n);
    item.first_position = item.key_tile * p.block_n;
    item.keys = std::min(p.block_n, p.seqlen_k - item.first_position);
    item.last_position = item.first_position + item.keys - 1;
    HeadWalk walk = {};
    find_head(walk, item, p, 0, p.block_m, p.block_n);
    for (int i = 0; i < walk.count; ++i) {
      const TileStep step = step_of_halves(walk, item, i, p.block_m);
      for (int half = 0; half < 2; ++half) {
        bool any = false, all = true;
        for (int query = step.tile * p.block_m; query < std::min((step.tile + 1) * p.block_m, p.seqlen_q); ++query)
          for (int key = half * 64; key < half * 64 + 64; ++key) {
            const int offset = item.first_position + key - query;
            const bool visible = key < item.keys && offset >= item.limits.low && offset <= item.limits.high;
            any |= visible;
            all &= visible;
          }
        INFO("sq " << p.seqlen_q << " sk " << p.seqlen_k << " limits " << item.limits.low << " ... " << item.limits.high
                   << " key tile " << item.key_tile << " half " << half << " query tile " << step.tile);
        REQUIRE((step.half(half) & kSomeMasked) == (all ? 0 : kSomeMasked));
        if (any) REQUIRE((step.half(half) & kSomeActive) != 0);
        ++(!any ? empty : all ? full : partial);
        idle += !any && (step.half(half) & kSomeActive) != 0 ? 1 : 0;
      }
    }
  }
  CHECK(empty > 500);
  CHECK(partial > 500);
  CHECK(full > 500);
  // Between two tiles that see it there may be one that does not; nothing is wrong there, but little is to be so.
  CHECK(idle * 20 < empty);
}

TEST_CASE("the device chooses as the host does") {
  int splits = 0;
  for (int heads : {1, 2, 3, 7, 16})
    for (int length : {300, 1024, 2048, 4096, 6000})
      for (bool causal : {false, true}) {
        Table table;
        table.p = dense(1, heads, length, causal);
        const Split split = split_items(table.p, {.deterministic = true});
        if (split.slots == 0) continue;
        table.p.d_q_turns = &table.turns;  // else the device cuts even shares
        ++splits;
        INFO(heads << " heads, " << length << ", causal " << causal);
        table.write(split);
        check_table(table);
        const auto slots = std::count_if(table.work.begin(), table.work.end(),
                                         [](const WorkItem& w) { return w.item >= 0 && w.pieces > 1; });
        REQUIRE(slots == split.slots);
        Table chosen;
        chosen.p = table.p;
        Split unchosen = split;
        unchosen.piece_steps = 0;
        chosen.write(unchosen);
        REQUIRE(check_table(chosen) == split.most_pieces);
        for (std::size_t i = 0; i < table.work.size(); ++i) REQUIRE(chosen.work[i].piece == table.work[i].piece);
      }
  CHECK(splits > 20);
}

TEST_CASE("an item has more than 16 pieces only where all run at once and their sums need no order") {
  for (const bool deterministic : {false, true}) {
    Table table;
    table.p = dense(1, 4, 16384, false, 64);
    table.p.seqlen_k = table.p.block_n;
    table.p.key_tiles = 1;
    table.p.items = table.p.heads;
    const Split split = split_items(table.p, {.deterministic = deterministic});
    if (deterministic) {
      table.p.d_q_turns = &table.turns;
      CHECK(split.most_pieces == kMostPiecesInRounds);
    } else {
      CHECK(split.most_pieces > kMostPiecesInRounds);
      CHECK(split.entries <= table.p.running);
    }
    Split unchosen = split;
    unchosen.piece_steps = 0;
    table.write(unchosen);
    CHECK(check_table(table) == split.most_pieces);
  }
}

/// When the last CTA of a table is done, in steps, of which an entry takes length(entry).
template <class Length>
int end_of_table(const Table& table, Length&& length) {
  std::multiset<int> free;
  for (int i = 0; i < table.p.running; ++i) free.insert(0);
  int end = 0;
  for (const WorkItem& work : table.work) {
    if (work.item < 0) break;
    const int done = free.extract(free.begin()).value() + length(work) + table.p.overhead;
    free.insert(done);
    end = std::max(end, done);
  }
  return end;
}
int end_of_table(const Table& table) {
  return end_of_table(table, [](const WorkItem& work) { return steps_of(work); });
}

/// The same table in the order of items.
Table in_order_of_items(const Table& table) {
  Table same = table;
  const auto end = std::find_if(same.work.begin(), same.work.end(), [](const WorkItem& work) { return work.item < 0; });
  std::stable_sort(same.work.begin(), end, [](const WorkItem& a, const WorkItem& b) {
    return std::tuple(a.pieces == 1, a.item, a.piece) < std::tuple(b.pieces == 1, b.item, b.piece);
  });
  return same;
}

TEST_CASE("where only the device knows the steps, long items come first and the last ones longest first") {
  std::mt19937 generator(47);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator); };
  int sorted = 0, few_sorted = 0, with_long = 0, with_pieces = 0;
  int reordered = 0, later_end = 0, earlier_end = 0;
  double lost_before = 0, lost = 0;
  for (int round = 0; round < 160; ++round) {
    Table table;
    BackwardParameters& p = table.p;
    p.batch = draw(1, 2);
    p.heads = p.heads_kv = p.list_heads = draw(1, 16);
    p.heads_per_item = 1;
    p.block_m = 64;
    p.block_n = 128;
    p.seqlen_q = p.seqlen_k = draw(1000, 4500);
    p.running = std::vector<int>{5, 66, 132, 264, 700}[static_cast<std::size_t>(draw(0, 4))];
    p.overhead = 2;
    lay_out(p);
    // Keys behind the last one have no items: a batch of different lengths.
    std::vector<std::int32_t> q{0}, k{0};
    if (draw(0, 2) == 0) {
      for (int b = 0; b < p.batch; ++b) {
        q.push_back(q.back() + p.seqlen_q);
        k.push_back(k.back() + draw(1, p.seqlen_k));
      }
      p.cu_seqlens_q = q.data();
      p.cu_seqlens_k = k.data();
    }
    const int usual = draw(1, p.query_tiles / 2);
    const int one_in = draw(2, 40);
    for (int list = 0; list < p.batch * p.heads * p.key_tiles; ++list) {
      table.counts.push_back(draw(1, one_in) == 1 ? draw(usual, p.query_tiles) : draw(0, usual));
      for (int tile = 0; tile < p.query_tiles; ++tile) table.entries.push_back(entry_of(tile));
    }
    p.list_entries = table.entries.data();
    p.list_counts = table.counts.data();
    KeyOrder keys{p.seqlen_k, draw(0, 3) == 0 ? 0 : 1, 0, 0};
    if (p.cu_seqlens_q == nullptr && draw(0, 1) == 0) p.key_orders = &keys;
    const Split split = split_items(p, {.masked = true});
    if (split.slots == 0) continue;
    INFO("round " << round << ": " << p.items << " items on " << p.running);
    table.write(split);
    check_table(table);
    const EntryOrder order = check_order(table);
    if (order.sorted == 0) continue;
    if (p.key_orders != nullptr && keys.natural == 0) {
      CHECK(order.sorted <= std::min(p.running, kTableThreads));
      ++reordered;
      later_end += end_of_table(in_order_of_items(table)) > end_of_table(table);
      earlier_end += end_of_table(in_order_of_items(table)) < end_of_table(table);
      continue;
    }
    CHECK(order.sorted <= std::min(2 * p.running, kTableThreads));
    ++(order.sorted == kTableThreads ? sorted : few_sorted);
    with_long += std::any_of(table.work.begin(), table.work.end(), [&](const WorkItem& work) {
      return work.item >= 0 && work.pieces == 1 && steps_of(work) > order.longest;
    });
    with_pieces += table.work.front().pieces > 1;
    std::int64_t least = 0;
    for (const WorkItem& work : table.work)
      if (work.item >= 0) least += steps_of(work) + p.overhead;
    lost += static_cast<double>(end_of_table(table)) * p.running / static_cast<double>(least) - 1;
    lost_before +=
        static_cast<double>(end_of_table(in_order_of_items(table))) * p.running / static_cast<double>(least) - 1;
  }
  CAPTURE(sorted, few_sorted, with_long, with_pieces, reordered, later_end, earlier_end, lost, lost_before);
  CHECK(sorted > 4);
  CHECK(few_sorted > 5);
  CHECK(with_long > 3);
  CHECK(with_pieces > 3);
  CHECK(reordered > 6);
  CHECK(later_end > 3 * earlier_end);
  CHECK(lost < lost_before / 2);
}

/// A table of lists that descend, as the highest scores under causality leave them, of four groups of four heads.
void list_descending(Table& table, const KeyOrder& keys) {
  BackwardParameters& p = table.p;
  p.batch = 1;
  p.heads_per_item = 4;
  p.heads = p.list_heads = 16;
  p.heads_kv = 4;
  p.block_m = 64;
  p.block_n = 128;
  p.seqlen_q = 8192;
  p.head_dim = 128;
  p.scratch_rows = p.seqlen_q;
  p.running = 132;
  p.overhead = 2;
  const std::vector<int> group{128, 117, 103, 91, 84, 70, 66, 52, 47, 41, 38, 33, 29, 24, 22, 17, 15, 14, 12, 11, 9, 8};
  p.seqlen_k = static_cast<int>(group.size()) * p.block_n;
  lay_out(p);
  for (int head = 0; head < p.heads; ++head)
    for (const int count : group) {
      table.counts.push_back(count - head / p.heads_per_item);
      for (int tile = 0; tile < p.query_tiles; ++tile) table.entries.push_back(entry_of(tile));
    }
  p.list_entries = table.entries.data();
  p.list_counts = table.counts.data();
  p.key_orders = &keys;
}

TEST_CASE("of the pieces of reordered keys' items the last round comes longest first") {
  const KeyOrder keys{8192, 0, 0, 0};
  Table table;
  list_descending(table, keys);
  const BackwardParameters& p = table.p;
  table.write(split_items(p, {.masked = true}));
  check_table(table);
  REQUIRE(shares_of(table).share == 0);
  const EntryOrder order = check_order(table);
  const std::vector<WorkItem> entries = entries_of(table);
  REQUIRE(entries.size() > static_cast<std::size_t>(p.running));
  CHECK(order.sorted == std::min<int>(p.running, static_cast<int>(entries.size()) - p.running));
  CHECK(std::any_of(entries.end() - order.sorted, entries.end(), [](const WorkItem& work) { return work.pieces > 1; }));
  CHECK(end_of_table(table) < end_of_table(in_order_of_items(table)));
}

TEST_CASE("where lists say what steps take, the last round comes in the order of times") {
  std::mt19937 generator(61);
  const KeyOrder keys{8192, 0, 0, 0};
  int shorter = 0, longer = 0;
  for (int round = 0; round < 20; ++round) {
    Table table;
    list_descending(table, keys);
    for (const std::int32_t count : table.counts)
      table.times.push_back(count * std::uniform_int_distribution<int>(kStepTime - 10, kLongestStepTime)(generator));
    Table by_steps = table;
    by_steps.times.clear();
    table.write(split_items(table.p, {.masked = true}));
    by_steps.p.list_entries = by_steps.entries.data();
    by_steps.p.list_counts = by_steps.counts.data();
    by_steps.write(split_items(by_steps.p, {.masked = true}));
    check_table(table);
    check_table(by_steps);
    const auto length = [&](const WorkItem& work) { return length_of(table, work); };
    shorter += end_of_table(table, length) < end_of_table(by_steps, length);
    longer += end_of_table(table, length) > end_of_table(by_steps, length);
  }
  CAPTURE(shorter, longer);
  CHECK(shorter > 2 * longer + 4);
}

TEST_CASE("the length of an entry is its steps at their pace, of however many steps") {
  for (const int pace : {216, kPace, 271, kLongestPace})
    for (const int steps : {0, 1, 7, 255, 256, 1000, 8'388'608, 30'000'001})
      CHECK(paced(steps, pace) == std::int64_t{steps} * pace / kPace);
}

TEST_CASE("few items whose steps only the device knows are cut so that all CTAs are done together") {
  std::mt19937 generator(59);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator); };
  int tables = 0, two_phases = 0, cut_often = 0, uncut = 0;
  double lost = 0;
  for (int round = 0; round < 240; ++round) {
    Table table;
    BackwardParameters& p = table.p;
    p.batch = 1;
    p.heads_per_item = draw(1, 4);
    p.heads = p.heads_per_item * draw(1, 4);
    p.heads_kv = p.heads / p.heads_per_item;
    p.list_heads = p.heads;
    p.block_m = 64;
    p.block_n = 128;
    p.seqlen_q = 8192;
    p.seqlen_k = draw(1, 60) * 128;
    p.head_dim = 128;
    p.scratch_rows = p.seqlen_q;
    p.running = draw(0, 1) == 0 ? 132 : draw(2, 264);
    p.overhead = draw(2, 4);
    lay_out(p);
    const int shortest = draw(0, p.query_tiles);
    for (int list = 0; list < p.heads * p.key_tiles; ++list) {
      table.counts.push_back(draw(shortest, p.query_tiles));
      for (int tile = 0; tile < p.query_tiles; ++tile) table.entries.push_back(entry_of(tile));
    }
    p.list_entries = table.entries.data();
    p.list_counts = table.counts.data();
    KeyOrder keys{p.seqlen_k, 0, 0, 0};
    if (draw(0, 1) == 0) p.key_orders = &keys;
    const Split split = split_items(p, {.masked = true});
    REQUIRE(split.most_pieces <= kMostPieces);
    if (split.slots == 0) continue;
    INFO("round " << round << ": " << p.items << " items on " << p.running);
    table.write(split);
    const int most = check_table(table);
    REQUIRE(most <= split.most_pieces);
    const EvenShares even = shares_of(table);
    const std::vector<WorkItem> entries = entries_of(table);
    if (even.share == 0) continue;
    ++tables;
    two_phases += even.phases == 2 ? 1 : 0;
    cut_often += most > 4 ? 1 : 0;
    uncut += std::any_of(entries.begin(), entries.end(), [](const WorkItem& work) { return work.pieces == 1; });
    const SplitTally whole = whole_tally(entries);
    const std::int64_t cuts = static_cast<std::int64_t>(entries.size()) - whole.pieces;
    CHECK(cuts <= even.phases * p.running);
    // Shares, the overhead of what comes behind a cut, and what is left to a neighbour instead of being a piece.
    const int end = end_of_table(table);
    const int shares = even.phases * (even.share + p.overhead);
    CHECK(end <= shares + 2 * p.overhead + shares / 10);
    lost += static_cast<double>(end) / shares - 1;
  }
  CAPTURE(tables, two_phases, cut_often, uncut, lost);
  CHECK(tables > 30);
  CHECK(two_phases > 5);
  CHECK(lost < 0.06 * tables);
  CHECK(cut_often > 3);
  CHECK(uncut > 10);
}

TEST_CASE(
    "the steps of listed items are those of their heads' lists, and -1 behind the keys that are in a mask's order") {
  std::mt19937 generator(71);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator); };
  int tables = 0, without_keys = 0, natural = 0;
  for (int round = 0; round < 60; ++round) {
    Table table;
    BackwardParameters& p = table.p;
    p.batch = draw(1, 3);
    // Heads share a list of their mask's, some of them in an item.
    p.heads_per_item = draw(1, 2);
    p.list_heads_per_head = p.mask_heads_per_head = p.heads_per_item * draw(1, 2);
    p.list_heads = draw(1, 3);
    p.heads = p.list_heads * p.list_heads_per_head;
    p.heads_kv = p.list_heads;
    p.block_m = 64;
    p.block_n = 128;
    p.seqlen_q = 4096;
    p.seqlen_k = draw(100, 3000);
    p.head_dim = 64;
    p.scratch_rows = p.seqlen_q;
    p.running = draw(2, 40);
    lay_out(p);
    for (int list = 0; list < p.batch * p.list_heads * p.key_tiles; ++list) {
      table.counts.push_back(draw(0, 2) == 0 ? 0 : draw(0, p.query_tiles));
      for (int tile = 0; tile < p.query_tiles; ++tile) table.entries.push_back(entry_of(tile));
    }
    p.list_entries = table.entries.data();
    p.list_counts = table.counts.data();
    // One order for all sequences, or one for each.
    p.compact_batch_stride = p.active_batch_stride = draw(0, 1) == 0 ? 0 : p.list_heads;
    std::vector<KeyOrder> orders;
    for (int mask = 0; mask < p.batch * p.list_heads; ++mask)
      orders.push_back(draw(0, 2) == 0 ? KeyOrder{p.seqlen_k, 1, 0, 0} : KeyOrder{draw(0, p.seqlen_k), 0, 0, 0});
    std::vector<std::int32_t> keys(static_cast<std::size_t>(p.batch * p.list_heads * p.seqlen_k));
    p.key_orders = orders.data();
    p.active_keys = keys.data();
    const Split split = split_items(p, {.masked = true});
    if (split.slots == 0) continue;
    INFO("round " << round << ": " << p.items << " items on " << p.running);
    table.write(split);
    check_table(table);
    ++tables;
    without_keys += entries_of(table).size() < static_cast<std::size_t>(p.items - p.whole_items) ? 1 : 0;
    natural += orders.front().natural;
  }
  CAPTURE(tables, without_keys, natural);
  CHECK(tables > 30);
  CHECK(without_keys > 5);
  CHECK(natural > 5);
}

TEST_CASE("equal items, and those that all start at once, stay in their order") {
  SplitTally tally;
  tally.add(10, kAllSteps, 1000);
  CHECK(order_of_unsplit(tally, 132, 2).sorted == 0);
  tally.add(5, kAllSteps, 1);
  CHECK(order_of_unsplit(tally, 132, 2).sorted == kTableThreads);
  CHECK(order_of_unsplit(tally, 1000, 2).sorted == kTableThreads);
  CHECK(order_of_unsplit(tally, 1001, 2).sorted == 0);
  CHECK(order_of_unsplit(tally, 5, 2).sorted == 10);
  // Two rounds and a half as long as the mean.
  CHECK(order_of_unsplit(tally, 128, 2).longest == 33);
}

TEST_CASE("a long column among many short ones is split") {
  Table table;
  BackwardParameters& p = table.p;
  p.batch = 1;
  p.heads = p.heads_kv = p.list_heads = 4;
  p.block_m = 64;
  p.block_n = 128;
  p.seqlen_q = p.seqlen_k = 16384;
  p.running = 132;
  lay_out(p);
  for (int head = 0; head < p.heads; ++head)
    for (int tile = 0; tile < p.key_tiles; ++tile) {
      table.counts.push_back(tile == 0 ? p.query_tiles : 9);
      for (int i = 0; i < p.query_tiles; ++i) table.entries.push_back(entry_of(i));
    }
  p.list_entries = table.entries.data();
  p.list_counts = table.counts.data();
  const Split split = split_items(p, {.masked = true});
  REQUIRE(split.slots > 0);
  REQUIRE(split.piece_steps == 0);
  table.write(split);
  check_table(table);
  int split_items_seen = 0;
  for (const WorkItem& work : table.work)
    if (work.item >= 0 && work.pieces > 1) {
      CHECK(ItemPlaces(p.key_tiles, p.heads, p.order).of(work.item).key_tile == 0);
      CHECK(work.pieces >= 4);
      split_items_seen += work.piece == 0 ? 1 : 0;
    }
  CHECK(split_items_seen == 4);
}

TEST_CASE("sums of many pieces that run at once are left to the kernel behind the main one") {
  const auto summed_later = [](int heads, int running, float* partial) {
    Table table;
    table.p = dense(1, heads, 2048, false, 64);
    table.p.overhead = 2;
    table.p.running = running;
    table.p.d_k_partial = partial;
    const Split split = split_items(table.p, {});
    REQUIRE(split.slots > 0);
    table.write(split);
    check_table(table);
    const auto pieces =
        std::count_if(table.work.begin(), table.work.end(), [](const WorkItem& w) { return w.item >= 0; });
    const auto later = std::count_if(table.work.begin(), table.work.end(),
                                     [](const WorkItem& w) { return w.item >= 0 && w.slot < 0; });
    CHECK((later == 0 || later == pieces));
    return later > 0;
  };
  float partial = 0;
  CHECK(summed_later(1, 132, nullptr));         // 16 items of 8 pieces
  CHECK_FALSE(summed_later(1, 132, &partial));  // a sum over heads comes behind that of pieces
  CHECK(summed_later(2, 132, nullptr));         // 32 items of 4 pieces
  CHECK_FALSE(summed_later(3, 132, nullptr));   // 48 items of 2 pieces
  CHECK_FALSE(summed_later(4, 60, nullptr));    // two rounds
}

}  // namespace
