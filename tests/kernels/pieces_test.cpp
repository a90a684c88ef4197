// How items are split into pieces: the arithmetic, the host's choice, and the work table, whose writer runs on the
// host.
#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

// Device code, compiled for the host by way of host/common/launch_kernel.hpp.
#include "common/launch_kernel.hpp"
// The other headers need what that one defines.
#include "common/work_table.cuh"
#include "split.hpp"
#include "support/catch.hpp"
#include "tile_steps.hpp"

namespace {

using namespace flashdma_bwd;

TEST_CASE("every step is in exactly one piece, and pieces are as long as each other within a step") {
  for (int steps = 0; steps <= 300; ++steps)
    for (int piece_steps = 1; piece_steps <= 310; piece_steps += piece_steps < 40 ? 1 : 9) {
      const int pieces = pieces_of(steps, piece_steps);
      INFO(steps << " steps in pieces of " << piece_steps);
      REQUIRE(pieces >= 1);
      REQUIRE(pieces <= kMostPieces);
      if (pieces < kMostPieces) REQUIRE(pieces * piece_steps >= steps);
      if (pieces > 1) REQUIRE((pieces - 1) * piece_steps < steps);
      REQUIRE(first_step_of(steps, 0, pieces) == 0);
      REQUIRE(first_step_of(steps, pieces, pieces) == steps);
      for (int piece = 0; piece < pieces; ++piece) {
        const int length = first_step_of(steps, piece + 1, pieces) - first_step_of(steps, piece, pieces);
        REQUIRE(length >= steps / pieces);
        REQUIRE(length <= (steps + pieces - 1) / pieces);
      }
    }
  CHECK(pieces_of(kAllSteps, kAllSteps) == 1);
  CHECK(pieces_of(kAllSteps, 1) == kMostPieces);
  CHECK(first_step_of(kAllSteps, kMostPieces, kMostPieces) == kAllSteps);
}

void write_work_table(const BackwardParameters p) {
  WorkTableWriter(p).run();
}

/// A problem with everything that the table's writer and its readers need.
struct Table {
  BackwardParameters p;
  std::vector<std::uint32_t> entries;
  std::vector<std::int32_t> counts;
  std::vector<std::int32_t> steps, arrivals;
  std::vector<WorkItem> work;
  std::int32_t turns = 0;

  void write(const Split& split) {
    p.order = split.order;
    p.piece_steps = split.piece_steps;
    p.piece_slots = static_cast<int>(split.slots);
    p.whole_items = split.whole_items;
    p.ctas = static_cast<int>(split.whole_items + split.entries);
    steps.assign(static_cast<std::size_t>(p.items - p.whole_items), -7);
    arrivals.assign(static_cast<std::size_t>(p.piece_slots * kPieceParts), -7);
    work.assign(static_cast<std::size_t>(split.entries), WorkItem{-7, -7, -7, -7, -7});
    p.item_steps = steps.data();
    p.piece_arrivals = arrivals.data();
    p.work = work.data();
    REQUIRE(launch_kernel(write_work_table, dim3(1), kTableThreads, 0, nullptr, p) == cudaSuccess);
  }
};

using Steps = std::multiset<std::tuple<int, int, bool>>;  // head, query tile, whether it is partial

/// What the CTA with this item takes.
Steps steps_of(const BackwardParameters& p, const KeyItem& item) {
  Steps steps;
  HeadWalk walk = {};
  for (int h = 0; h < p.heads_per_item; ++h) {
    find_head(walk, item, p, h, p.block_m, p.block_n);
    for (int i = 0; i < walk.count; ++i) {
      const TileStep step = step_of(walk, i);
      steps.insert({walk.head, step.tile, step.partial});
    }
  }
  return steps;
}

/// Checks a table against the items. Returns the most pieces that an item has.
int check_table(const Table& table) {
  const BackwardParameters& p = table.p;
  std::map<int, std::vector<WorkItem>> pieces;
  std::set<int> slots;
  bool idle = false;
  int last_item = -1;
  bool unsplit = false;
  for (const WorkItem& work : table.work) {
    if (work.item < 0) {
      REQUIRE(work.item == -1);
      idle = true;
      continue;
    }
    REQUIRE_FALSE(idle);  // those without work come last
    REQUIRE(work.item >= p.whole_items);
    REQUIRE(work.item < p.items);
    if (p.d_q_turns != nullptr) {
      REQUIRE(work.item >= last_item);
    } else {
      if (work.pieces > 1) REQUIRE_FALSE(unsplit);
      unsplit = work.pieces == 1;
    }
    last_item = work.item;
    pieces[work.item].push_back(work);
    if (work.pieces > 1) {
      REQUIRE(work.slot + work.piece < p.piece_slots);
      REQUIRE(slots.insert(work.slot + work.piece).second);
    }
  }
  for (std::int32_t arrivals : table.arrivals) REQUIRE(arrivals == 0);

  int most = 1;
  BackwardParameters whole = p;
  whole.whole_items = p.items;
  std::map<int, Steps> taken;
  for (int cta = 0; cta < p.whole_items; ++cta) {
    KeyItem item;
    if (!find_item(item, p, cta, p.block_n)) continue;
    REQUIRE(item.pieces == 1);
    pieces[cta].push_back({cta, 0, 1, 0, 0});
    taken[cta] = steps_of(p, item);
  }
  int cta = p.whole_items;
  for (; cta < p.ctas && table.work[static_cast<std::size_t>(cta - p.whole_items)].item >= 0; ++cta) {
    KeyItem item;
    REQUIRE(find_item(item, p, cta, p.block_n));
    const Steps own = steps_of(p, item);
    const WorkItem& work = table.work[static_cast<std::size_t>(cta - p.whole_items)];
    REQUIRE(static_cast<int>(own.size()) >= work.steps / work.pieces);
    REQUIRE(static_cast<int>(own.size()) <= (work.steps + work.pieces - 1) / work.pieces);
    taken[work.item].insert(own.begin(), own.end());
  }
  KeyItem nothing;
  for (; cta < p.ctas; ++cta) REQUIRE_FALSE(find_item(nothing, p, cta, p.block_n));
  for (int i = 0; i < p.items; ++i) {
    KeyItem item;
    const bool has_keys = find_item(item, whole, i, p.block_n);
    REQUIRE(has_keys == (pieces.count(i) != 0));
    if (!has_keys) continue;
    const std::vector<WorkItem>& own = pieces[i];
    for (std::size_t piece = 0; piece < own.size(); ++piece) {
      REQUIRE(own[piece].piece == static_cast<int>(piece));
      REQUIRE(own[piece].pieces == static_cast<int>(own.size()));
      REQUIRE(own[piece].slot == own[0].slot);
    }
    REQUIRE(taken[i] == steps_of(whole, item));
    most = std::max(most, static_cast<int>(own.size()));
  }
  return most;
}

void lay_out(BackwardParameters& p) {
  p.key_tiles = (p.seqlen_k + p.block_n - 1) / p.block_n;
  p.query_tiles = (p.seqlen_q + p.block_m - 1) / p.block_m;
  p.items = p.key_tiles * p.batch * (p.heads / p.heads_per_item);
}

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
      const int count = p.batch * p.heads * p.key_tiles;
      for (int list = 0; list < count; ++list) {
        const int length = draw(0, 3) == 0 ? p.query_tiles : draw(0, p.query_tiles / 4);
        table.counts.push_back(length);
        for (int tile = 0; tile < p.query_tiles; ++tile)
          table.entries.push_back(tile < length ? static_cast<std::uint32_t>(tile) * 2 + (tile % 3 == 0 ? 1 : 0) : ~0u);
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

BackwardParameters dense(int batch, int heads, int length, bool causal, int block_m = 128) {
  BackwardParameters p;
  p.batch = batch;
  p.heads = p.heads_kv = heads;
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
BackwardParameters grouped_dense(int batch, int heads, int heads_per_item, int length) {
  BackwardParameters p = dense(batch, heads, length, true, 64);
  p.heads_kv = heads / heads_per_item;
  p.heads_per_item = heads_per_item;
  lay_out(p);
  return p;
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

TEST_CASE("last items that may not be split are ordered all the same") {
  const SplitRequest whole{.last_pieces = false};
  for (const BackwardParameters& p : {dense(2, 16, 4096, true, 64), dense(4, 16, 2048, true, 64)}) {
    const Split split = split_items(p, whole);
    CHECK(split.slots == 0);
    CHECK(split.order.tail_groups > 0);
  }
  // Items of equal length have no order that is better than another.
  CHECK(split_items(dense(2, 16, 4096, false, 64), whole).order.tail_groups == 0);
}

TEST_CASE("items are split where multiprocessors would idle, and nowhere else") {
  struct Case {
    BackwardParameters p;
    bool split;
  };
  for (const Case& one : {Case{dense(1, 2, 4096, true), true},     // 64 items of 1 to 32 steps
                          Case{dense(1, 1, 20480, false), true},   // 160 items, of which the last 28 would run alone
                          Case{dense(1, 1, 16384, false), false},  // 128 items, as many as run at once, nearly
                          Case{dense(1, 2, 256, false), false},    // too short
                          Case{dense(1, 132, 128, false), false},  // one step each
                          Case{dense(1, 16, 16384, true, 64), false}, Case{dense(8, 16, 2048, false, 64), false},
                          Case{dense(2, 16, 8192, true, 64), false}}) {
    INFO(one.p.batch << ' ' << one.p.heads << ' ' << one.p.seqlen_q);
    const Split split = split_items(one.p, {.deterministic = true});
    CHECK((split.slots > 0) == one.split);
    CHECK(split.slots <= std::int64_t{kSlotsPerRunningItem} * one.p.running);
  }
  const Split split = split_items(dense(1, 2, 4096, true), {});
  CHECK(split.piece_steps <= 12);
  CHECK(split.most_pieces >= 3);
  // The shapes of tests/gpu/pieces_test.cpp.
  for (int block_m : {64, 128})
    for (bool causal : {false, true}) {
      BackwardParameters p = dense(1, 2, 2000, causal, block_m);
      p.seqlen_k = causal ? 1900 : 700;
      lay_out(p);
      CHECK(split_items(p, {}).most_pieces >= 3);
    }
}

/// When the last CTA is done, in half steps: each takes the first multiprocessor that is free. A piece takes half of
/// the overhead longer than an item, for the sum.
int end_of(const BackwardParameters& p, const Split& split) {
  std::multiset<int> free;
  for (int i = 0; i < p.running; ++i) free.insert(0);
  int end = 0;
  const auto take = [&](int half_steps) {
    const int done = free.extract(free.begin()).value() + half_steps;
    free.insert(done);
    end = std::max(end, done);
  };
  std::vector<int> unsplit;
  for (int i = 0; i < p.items; ++i) {
    KeyItem item;
    BackwardParameters whole = p;
    whole.whole_items = p.items;
    whole.order = split.order;
    REQUIRE(find_item(item, whole, i, p.block_n));
    const int steps = static_cast<int>(steps_of(whole, item).size());
    const int pieces = split.slots > 0 && i >= split.whole_items ? pieces_of(steps, split.piece_steps) : 1;
    const int time = 2 * (steps + p.overhead);
    if (split.slots == 0 || i < split.whole_items)
      take(time);
    else if (pieces == 1)
      unsplit.push_back(time);
    else
      for (int piece = 0; piece < pieces; ++piece)
        take(2 * (first_step_of(steps, piece + 1, pieces) - first_step_of(steps, piece, pieces)) + 3 * p.overhead);
  }
  for (int time : unsplit) take(time);
  return end;
}

/// When it would be if all were done at once.
double least_end_of(const BackwardParameters& p) {
  std::int64_t half_steps = 0;
  const TileSteps steps_of_tile(p);
  for (int tile = 0; tile < p.key_tiles; ++tile)
    half_steps += std::int64_t{2} * (steps_of_tile(tile) + p.overhead) * (p.items / p.key_tiles);
  return static_cast<double>(half_steps) / p.running;
}

TEST_CASE("the last of many items are split where that levels the end of the work") {
  // What would be lost without: h d = 2048 and 16384 tokens, and what the GPU tests run.
  BackwardParameters few_keys = dense(1, 70, 1500, false);
  few_keys.seqlen_k = 130;
  lay_out(few_keys);
  BackwardParameters grouped = dense(1, 1120, 520, false);
  grouped.seqlen_k = 20;
  grouped.heads_per_item = 2;
  grouped.heads_kv = 560;
  lay_out(grouped);
  BackwardParameters pairs = dense(1, 11, 16384, false, 64);
  pairs.running = 66;
  struct Case {
    BackwardParameters p;
    int last;  ///< items that are split, with those between them
  };
  for (const Case& one : {Case{dense(1, 16, 16384, false, 64), 68}, Case{dense(1, 32, 16384, false), 4},
                          Case{dense(8, 32, 2048, false), 4}, Case{dense(1, 21, 16384, false, 64), 48}, Case{pairs, 22},
                          Case{few_keys, 8}, Case{grouped, 32}}) {
    const BackwardParameters& p = one.p;
    const Split split = split_items(p, {});
    INFO(p.batch << ' ' << p.heads << ' ' << p.seqlen_q << ": " << p.items << " items, pieces of " << split.piece_steps
                 << " steps, " << split.slots << " slots");
    REQUIRE(split.slots > 0);
    CHECK(p.items - split.whole_items == one.last);
    CHECK(split.slots <= std::int64_t{kSlotsPerRunningItem} * p.running);
    Table table;
    table.p = p;
    table.write(split);
    CHECK(check_table(table) == split.most_pieces);
    CHECK(table.work.back().item >= 0);  // no CTA is idle
    const int before = end_of(p, {});
    const int after = end_of(p, split);
    CHECK(after < before);
  }
}

TEST_CASE("an order of items has each key tile of each group once, block by block, key tile by key tile") {
  struct Case {
    ItemOrder order;
    std::vector<int> blocks;  ///< groups of each
  };
  for (const Case& one : {Case{{1, 0}, {1, 1, 1, 1, 1}}, Case{{1, 3}, {1, 1, 3}}, Case{{1, 5}, {5}},
                          Case{{2, 1}, {2, 2, 1}}, Case{{3, 2}, {3, 2}}, Case{{4, 5}, {5}}}) {
    INFO("blocks of " << one.order.block_groups << ", a tail of " << one.order.tail_groups);
    int index = 0;
    int first = 0;
    for (const int groups : one.blocks) {
      for (int tile = 0; tile < 7; ++tile)
        for (int group = first; group < first + groups; ++group) {
          const ItemPlace place = place_of_item(index++, 7, 5, one.order);
          REQUIRE((place.key_tile == tile && place.group == group));
        }
      first += groups;
    }
    REQUIRE(index == 5 * 7);
  }
}

TEST_CASE("where only the device knows the steps, a round of items or two groups end key tile by key tile") {
  CHECK(split_items(dense(2, 64, 2048, true, 64), {.masked = true}).order.tail_groups == 8);
  CHECK(split_items(dense(1, 4, 8192, true, 64), {.masked = true}).order.tail_groups == 2);
  CHECK(split_items(dense(1, 1, 8192, true, 64), {.masked = true}).order.tail_groups == 1);
  // In a reordered layout the tail is left out where all tiles of the keys in use start at once, and is all groups
  // where the keys keep their order.
  BackwardParameters p = dense(1, 4, 8192, true, 64);
  p.order = {1, 2};
  KeyOrder keys{132 / 4 * 128, 0, 0, 0};
  p.key_orders = &keys;
  CHECK(order_of_items(p, 4, p.block_n).tail_groups == 0);
  ++keys.keys;
  CHECK(order_of_items(p, 4, p.block_n).tail_groups == 2);
  keys.natural = 1;
  CHECK(order_of_items(p, 4, p.block_n).tail_groups == 4);
}

TEST_CASE("in deterministic mode blocks have as many groups as some four CTAs to a head leave") {
  for (const auto& [batch, heads, length, block, tail] :
       {std::tuple{1, 16, 8192, 16, 16}, {2, 21, 8192, 21, 21}, {8, 16, 2048, 32, 32}, {1, 67, 512, 23, 21}}) {
    const Split split = split_items(dense(batch, heads, length, true, 64), {.deterministic = true});
    CHECK(split.order.block_groups == block);
    CHECK(split.order.tail_groups == tail);
    CHECK((batch * heads - tail) % block == 0);
  }
}

TEST_CASE("under causality the last items come longest first, which takes less time than to split them") {
  // What is lost without, of the time that the steps need: 5, 6, 4 and 7 %.
  for (const BackwardParameters& p : {dense(1, 21, 16384, true, 64), dense(2, 16, 8192, true, 64),
                                      dense(2, 32, 8192, true), dense(4, 32, 2048, true, 64)}) {
    const Split split = split_items(p, {});
    INFO(p.batch << ' ' << p.heads << ' ' << p.seqlen_q << ": " << p.items << " items, a tail of "
                 << split.order.tail_groups << " groups");
    CHECK(split.slots == 0);
    CHECK(split.order.tail_groups > 0);
    // Three rounds, rounded up to groups.
    CHECK(split.order.tail_groups <= (3 * p.running + p.key_tiles - 1) / p.key_tiles);
    const double least = least_end_of(p);
    CHECK(end_of(p, {}) > 1.025 * least);
    CHECK(end_of(p, split) < 1.04 * least);
  }
  // Nothing to level where items are equal, nor where rounds are so many that the end does not matter.
  CHECK(split_items(dense(1, 16, 16384, false, 64), {}).order.tail_groups == 0);
  CHECK(split_items(dense(8, 132, 2048, true, 64), {}).order.tail_groups == 0);
}

TEST_CASE("items of grouped heads come longest first in few rounds, are split at the end, or both") {
  // What is lost without: 28, 49 and 58 %. Measured with 128 columns on an H200: the first is as fast without a tail as
  // ungrouped heads, and 2 to 21 % slower with one of 9 to 25 groups; the second is 5 % faster with all groups in it
  // than with none, the third 11 %.
  struct Grouped {
    BackwardParameters p;
    int tail_groups;
    bool pieces;
  };
  for (Grouped problem : {Grouped{grouped_dense(4, 32, 4, 2048), 0, true},
                          {grouped_dense(1, 16, 4, 8192), 4, false},
                          {grouped_dense(1, 32, 4, 4096), 8, false}}) {
    BackwardParameters& p = problem.p;
    p.overhead = overhead_in_steps(p.block_m, p.block_n, 128);
    const Split split = split_items(p, {});
    INFO(p.batch << ' ' << p.heads << ' ' << p.seqlen_q);
    CHECK(split.order.tail_groups == problem.tail_groups);
    CHECK((split.slots > 0) == problem.pieces);
    const double least = least_end_of(p);
    CHECK(end_of(p, {}) > 1.25 * least);
    CHECK(end_of(p, split) < 1.09 * least);
  }
}

TEST_CASE("whole rounds of unequal items are split only where that takes less time") {
  // Position offsets put the keys that a window leaves into the middle of the others: the middle tile is the longest,
  // most see nothing, and two rounds of items take longer than their steps on all multiprocessors would.
  const auto window = [](int heads, int length_q, int length_k, int left, int right, int delta) {
    BackwardParameters p = dense(1, heads, length_q, false, 64);
    p.heads_kv = heads / 4;
    p.heads_per_item = 4;
    p.seqlen_k = length_k;
    p.window_left = left;
    p.window_right = right;
    p.position_delta = delta;
    p.delta_from_lengths = false;
    lay_out(p);
    REQUIRE(p.items == 2 * p.running);
    return p;
  };
  // A split of all items, the best by its mean length, would take longer than none in the same order.
  const BackwardParameters whole = window(8, 6144, 16896, 3840, 3840, 5376);
  const Split none = split_items(whole, {});
  CHECK(none.slots == 0);
  Split all = split_items(whole, {.deterministic = true});
  CHECK(all.slots > 0);
  all.order = none.order;
  CHECK(end_of(whole, all) > 1.25 * end_of(whole, none));
  // Here it takes less, and the tail is what is best for its pieces.
  const BackwardParameters split = window(16, 1024, 8448, 256, 0, 3840);
  const Split ordered = split_items(split, {});
  CHECK(ordered.slots > 0);
  CHECK(ordered.order.tail_groups > 0);
  Split natural = ordered;
  natural.order = {};
  CHECK(end_of(split, natural) > 1.3 * end_of(split, ordered));
}

TEST_CASE("splits of the last items have every step once and are done before unsplit items") {
  std::mt19937 generator(29);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator); };
  int full = 0, causal = 0, windows = 0;
  for (int round = 0; round < 150; ++round) {
    const int window = draw(0, 2);
    BackwardParameters p = dense(draw(1, 3), 1, draw(100, 3000), window == 1, draw(0, 1) == 0 ? 64 : 128);
    if (window == 2) p.window_left = draw(0, 2000);
    p.heads_per_item = draw(1, 3);
    p.heads = p.heads_per_item * draw(1, 12);
    if (draw(0, 2) == 0) p.seqlen_k = draw(1, 1000);
    p.running = draw(2, 20);
    lay_out(p);
    const Split split = split_items(p, {});
    if (split.whole_items == 0) continue;
    INFO("round " << round << ": " << p.items << " items on " << p.running << ", window " << window << ", pieces of "
                  << split.piece_steps << " steps from " << split.whole_items << " on");
    Table table;
    table.p = p;
    table.write(split);
    REQUIRE(check_table(table) == split.most_pieces);
    REQUIRE(table.work.back().item >= 0);
    REQUIRE(end_of(p, split) < end_of(p, {}));
    ++(window == 0 ? full : window == 1 ? causal : windows);
  }
  CHECK(full > 10);
  CHECK(causal + windows > 5);
}

TEST_CASE("whole rounds of items stay whole") {
  for (int rounds : {2, 3, 16}) CHECK(split_items(dense(1, 33 * rounds, 512, false), {}).slots == 0);
  for (int rounds : {5, 16}) {
    CHECK(split_items(dense(1, 11 * rounds, 1536, false), {}).slots == 0);
    CHECK(split_items(dense(1, 11 * rounds + 1, 1536, false), {}).whole_items == 132 * rounds);
  }
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
      for (int i = 0; i < p.query_tiles; ++i) table.entries.push_back(static_cast<std::uint32_t>(i) * 2);
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
      CHECK(place_of_item(work.item, p.key_tiles, p.heads, p.order).key_tile == 0);
      CHECK(work.pieces >= 4);
      split_items_seen += work.piece == 0 ? 1 : 0;
    }
  CHECK(split_items_seen == 4);
}

}  // namespace
