// How items are split into pieces: the arithmetic, and the host's choice.
#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "kernels/work_table_checks.hpp"
#include "launch/split.hpp"
#include "launch/tile_steps.hpp"
#include "support/catch.hpp"

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
      REQUIRE(EvenPieces(steps, pieces).first_step_of(0) == 0);
      REQUIRE(EvenPieces(steps, pieces).first_step_of(pieces) == steps);
      for (int piece = 0; piece < pieces; ++piece) {
        const int length =
            EvenPieces(steps, pieces).first_step_of(piece + 1) - EvenPieces(steps, pieces).first_step_of(piece);
        REQUIRE(length >= steps / pieces);
        REQUIRE(length <= (steps + pieces - 1) / pieces);
      }
    }
  CHECK(pieces_of(kAllSteps, kAllSteps) == 1);
  CHECK(pieces_of(kAllSteps, 1) == kMostPieces);
  CHECK(EvenPieces(kAllSteps, kMostPieces).first_step_of(kMostPieces) == kAllSteps);
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
    prepare_items(whole);
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
        take(2 * (EvenPieces(steps, pieces).first_step_of(piece + 1) - EvenPieces(steps, pieces).first_step_of(piece)) +
             3 * p.overhead);
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
          const ItemPlace place = ItemPlaces(7, 5, one.order).of(index++);
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
  // In a reordered layout the tail is left out where all tiles of the keys in use start at once, but not where the keys
  // keep their order.
  BackwardParameters p = dense(1, 4, 8192, true, 64);
  p.order = {1, 2};
  prepare_items(p);
  KeyOrder keys{132 / 4 * 128, 0, 0, 0};
  p.key_orders = &keys;
  CHECK(stays_grouped(p));
  ++keys.keys;
  CHECK_FALSE(stays_grouped(p));
  keys = {1, 1, 0, 0};
  CHECK_FALSE(stays_grouped(p));
}

TEST_CASE(
    "in deterministic mode all items of a head run at once, a sixth or a twelfth of them under causality, or some "
    "four") {
  for (const auto& [batch, heads, length, causal, block, tail] : {std::tuple{1, 16, 8192, true, 8, 8},
                                                                  {2, 21, 8192, true, 11, 9},
                                                                  {8, 16, 2048, true, 32, 32},
                                                                  {1, 67, 512, true, 23, 21},
                                                                  {1, 16, 8192, false, 2, 2},
                                                                  {2, 21, 8192, false, 2, 2},
                                                                  {8, 16, 2048, false, 8, 8},
                                                                  {1, 5, 16384, false, 1, 1},
                                                                  {1, 67, 512, false, 23, 21}}) {
    INFO(batch << ' ' << heads << ' ' << length << ' ' << causal);
    const Split split = split_items(dense(batch, heads, length, causal, 64), {.deterministic = true});
    CHECK(split.order.block_groups == block);
    CHECK(split.order.tail_groups == tail);
    CHECK((batch * heads - tail) % block == 0);
  }
  // A twelfth of heads of 32 columns.
  for (const auto& [batch, heads, block, tail] : {std::tuple{1, 16, 16, 16}, {2, 21, 21, 21}, {2, 64, 22, 18}}) {
    BackwardParameters p = dense(batch, heads, 8192, true, 64);
    p.head_dim = 32;
    const Split split = split_items(p, {.deterministic = true});
    CHECK(split.order.block_groups == block);
    CHECK(split.order.tail_groups == tail);
  }
  // Four where only the device knows how long items are.
  const Split masked = split_items(dense(1, 67, 8192, true, 64), {.masked = true, .deterministic = true});
  CHECK(masked.order.block_groups == 23);
}

TEST_CASE("under causality walks of many heads start together, at the last query tile") {
  CHECK(split_items(dense(4, 32, 2048, true, 64), {}).backward_walks == BackwardWalks::keys_in_order);
  CHECK(split_items(dense(1, 16, 8192, true, 64), {}).backward_walks == BackwardWalks::keys_in_order);
  CHECK(split_items(dense(1, 16, 16384, true, 64), {}).backward_walks == BackwardWalks::none);
  CHECK(split_items(dense(4, 32, 2048, false, 64), {}).backward_walks == BackwardWalks::none);
  // With a mask, too: which keys are reordered only the device knows.
  const Split masked = split_items(dense(4, 32, 2048, true, 64), {.masked = true});
  CHECK(masked.backward_walks == BackwardWalks::keys_in_order);
  // Where items wait for smaller ones, always.
  const Split deterministic = split_items(dense(1, 16, 16384, false, 64), {.deterministic = true});
  CHECK(deterministic.backward_walks == BackwardWalks::all);
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
  // What is lost without: 28, 49 and 58 %. Measured with 128 columns on an H200: the first is 3 % faster with a tail of
  // 9 groups than with pieces instead, and 4 to 25 % slower with one of 13 to 24; the second is 5 % faster with all
  // groups in it than with none, the third 11 %.
  struct Grouped {
    BackwardParameters p;
    int tail_groups;
    bool pieces;
  };
  for (Grouped problem : {Grouped{grouped_dense(4, 32, 4, 2048), 9, false},
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

}  // namespace
