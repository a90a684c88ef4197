// The passes of a reordered plan, run on the host, against orders, bits and lists made pair by pair.
#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <tuple>
#include <vector>

// Device code, compiled for the host by way of host/common/launch_kernel.hpp.
#include "kernels/reordered_plan_model.hpp"
#include "plan/key_order.cu"
#include "plan/key_rows.cu"
#include "plan/ordered_atoms.cu"
#include "plan/prepare_keys.cu"
#include "support/catch.hpp"

namespace {

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

__global__ void transpose_kernel(const std::uint64_t* rows, std::uint64_t* columns) {
  const int lane = static_cast<int>(threadIdx.x);
  BitRows m;
  for (int half = 0; half < 2; ++half) m.set(half, rows[BitRows::row(lane, half)]);
  transpose_bits(m, lane);
  for (int half = 0; half < 2; ++half) columns[BitRows::row(lane, half)] = m.word(half);
}

TEST_CASE("a warp transposes 64 x 64 bits") {
  std::mt19937_64 generator(7);
  for (int round = 0; round < 8; ++round) {
    std::vector<std::uint64_t> rows(64);
    std::vector<std::uint64_t> columns(64);
    for (std::uint64_t& row : rows) row = round == 0 ? 1 : generator();
    REQUIRE(launch_kernel(transpose_kernel, dim3(1), 32, 0, nullptr, rows.data(), columns.data()) == cudaSuccess);
    for (unsigned i = 0; i < 64; ++i)
      for (unsigned j = 0; j < 64; ++j) REQUIRE((rows[i] >> j & 1u) == (columns[j] >> i & 1u));
  }
}

TEST_CASE("any byte but 0 is a bit") {
  std::mt19937 generator(9);
  for (int round = 0; round < 10000; ++round) {
    std::uint8_t bytes[16];
    std::uint32_t expected = 0;
    for (unsigned i = 0; i < 16; ++i) {
      // Every byte appears next to every kind of neighbour.
      bytes[i] = generator() % 2 == 0 ? 0 : static_cast<std::uint8_t>(round + static_cast<int>(generator() % 2) * 127);
      expected |= (bytes[i] != 0 ? 1u : 0u) << i;
    }
    uint4 words;
    std::memcpy(&words, bytes, sizeof words);
    REQUIRE(bits_of_bytes(words) == expected);
  }
}

/// A plan in memory of its own, poisoned before it was built.
struct BuiltPlan {
  std::vector<std::uint64_t> memory;
  ReorderedPlan plan;
};

constexpr std::uint64_t kPoison = 0xDEADBEEFDEADBEEFu;

/// Of a GPU whose CTAs may have as much shared memory, or none. `probed`: the first and last queries may prove that the
/// keys keep their own order.
BuiltPlan build(const MaskView& mask, bool may_keep_natural, std::size_t shared_bytes = 232448, bool probed = false) {
  const std::int64_t heads = std::int64_t{mask.batch} * mask.heads;
  BuiltPlan built;
  built.memory.assign(reordered_plan_layout(heads, mask.queries, mask.keys).bytes / 8, kPoison);
  auto* memory = reinterpret_cast<std::byte*>(built.memory.data());
  PlanDevice device{shared_bytes, false};
  if (probed) device.least_probed_pairs = 0;
  REQUIRE(reorder_mask(mask, device, may_keep_natural, memory, nullptr) == cudaSuccess);
  built.plan = reordered_plan(memory, heads, mask.queries, mask.keys);
  return built;
}

TEST_CASE("reordered plans hold every active pair once, in the order of the keys' intervals") {
  std::mt19937 generator(13);
  struct Shape {
    int batch, heads, queries, keys, row_padding;
    bool intervals;
  };
  // Rows of 16-byte multiples take the vectorised loads, the others do not.
  for (const Shape& shape :
       {Shape{1, 2, 400, 336, 0, true}, Shape{2, 1, 70, 200, 8, false}, Shape{1, 1, 130, 129, 0, false},
        Shape{1, 1, 1, 1, 0, true}, Shape{1, 1, 900, 1500, 0, true}}) {
    const HostMask mask =
        shape.intervals
            ? interval_mask(generator, shape.batch, shape.heads, shape.queries, shape.keys)
            : random_mask(generator, shape.batch, shape.heads, shape.queries, shape.keys, shape.row_padding);
    for (const bool causal : {false, true}) {
      MaskView view = mask.view();
      if (causal) view.limits.high = shape.keys - shape.queries;
      for (const int lists : {2, 1, 0}) {  // in shared memory
        const std::size_t shared_bytes = sizeof(OrderState) + static_cast<std::size_t>(lists * shape.keys) * 4;
        REQUIRE(shared_lists(shape.keys, {shared_bytes, false}) == lists);
        const BuiltPlan built = build(view, causal, shared_bytes);
        for (int b = 0; b < shape.batch; ++b)
          for (int h = 0; h < shape.heads; ++h) CHECK(plan_defect(mask, view.limits, built.plan, b, h, causal) == "");
      }
    }
  }
}

/// A mask that keeps all pairs.
HostMask full_mask(int batch, int heads, int queries, int keys) {
  HostMask mask{batch, heads, queries, keys, 0, {}};
  mask.bytes.assign(mask.index(batch, 0, 0, 0), 1);
  return mask;
}

TEST_CASE("without queries no key is active, whatever the memory held") {
  const HostMask mask{1, 2, 0, 200, 0, std::vector<std::uint8_t>(1)};
  const BuiltPlan built = build(mask.view(), false);
  for (int h = 0; h < 2; ++h) CHECK(built.plan.orders[h].keys == 0);
  for (int key = 0; key < 2 * mask.keys; ++key) {
    REQUIRE(built.plan.intervals.from_end[key] == 0);
    REQUIRE(built.plan.intervals.ends[key] == 0);
  }
}

TEST_CASE("a warp gathers the atoms of several pairs of query atoms as of one") {
  std::mt19937 generator(29);
  const HostMask mask = interval_mask(generator, 1, 2, 500, 300);
  BuiltPlan built = build(mask.view(), false);
  const ReorderedPlan& plan = built.plan;
  const auto atoms = static_cast<std::ptrdiff_t>(2 * mask_atoms(mask.queries) * mask_atoms(mask.keys));
  for (const int pairs_of_warp : {3, 16}) {
    std::fill(plan.words, plan.words + atoms * kMaskAtom, 0xDEADBEEFDEADBEEFu);
    std::fill(plan.classes, plan.classes + atoms, std::uint8_t{0xFF});
    const int parts = (mask_atoms(mask.queries) / 2 + pairs_of_warp - 1) / pairs_of_warp;
    const auto ctas =
        static_cast<unsigned>(2 * mask_atoms(mask.keys) * parts + kOrderedAtomWarps - 1) / kOrderedAtomWarps;
    REQUIRE(launch_kernel(ordered_atoms_kernel, ctas, kOrderedAtomWarps * 32, 0, nullptr, 2, mask.queries, mask.keys,
                          parts, OwnOrderProof(), plan) == cudaSuccess);
    for (int h = 0; h < 2; ++h) CHECK(plan_defect(mask, Limits(), plan, 0, h, false) == "");
  }
}

TEST_CASE("the keys' own order is kept where another saves no tiles") {
  HostMask mask = full_mask(1, 2, 512, 1024);
  // The second mask: 32 keys, each 32 apart, for all queries.
  for (int i = 0; i < mask.queries; ++i)
    for (int j = 0; j < mask.keys; ++j) mask.bytes[mask.index(0, 1, i, j)] = j % 32 == 0 ? 1 : 0;
  const BuiltPlan built = build(mask.view(), true);
  CHECK(built.plan.orders[0].natural == 1);
  CHECK(built.plan.orders[0].keys == mask.keys);
  CHECK(built.plan.orders[0].natural_tiles == 64);
  CHECK(built.plan.orders[0].ordered_tiles == 64);
  CHECK(built.plan.orders[1].natural == 0);
  CHECK(built.plan.orders[1].keys == 32);
  CHECK(built.plan.orders[1].natural_tiles == 64);
  CHECK(built.plan.orders[1].ordered_tiles == 8);
  for (int h = 0; h < 2; ++h) CHECK(plan_defect(mask, Limits(), built.plan, 0, h, true) == "");
}

/// Query atoms from the first to the last active one of each key that has one, by the mask's bytes.
std::vector<int> key_spans(const HostMask& mask) {
  std::vector<int> spans;
  for (int j = 0; j < mask.keys; ++j) {
    int first = -1;
    int last = -1;
    for (int i = 0; i < mask.queries; ++i)
      if (mask.bytes[mask.index(0, 0, i, j)] != 0) {
        if (first < 0) first = i / kMaskAtom;
        last = i / kMaskAtom;
      }
    if (first >= 0) spans.push_back(last - first + 1);
  }
  return spans;
}

TEST_CASE("a window with sinks keeps its keys' order without another being tried") {
  for (const int window : {200, 512, 1024}) {
    HostMask mask = full_mask(1, 1, 4096, 4096);
    for (int i = 0; i < mask.queries; ++i)
      for (int j = 4; j < mask.keys; ++j) mask.bytes[mask.index(0, 0, i, j)] = j <= i && j > i - window ? 1 : 0;
    const BuiltPlan kept = build(mask.view(), true);
    const KeyOrder& order = kept.plan.orders[0];
    const std::vector<int> spans = key_spans(mask);
    const auto tiles_of = [&](int clip) {
      int sum = 0;
      for (const int span : spans) sum += std::min(span, clip);
      return (sum + 127) / 128 + std::max(0, *std::max_element(spans.begin(), spans.end()) - clip);
    };
    const int plain = tiles_of(1000);
    const int least = std::max(tiles_of(12), tiles_of(24));
    INFO("window " << window << ", " << order.natural_tiles << " tiles, " << order.ordered_tiles
                   << " of the order, at least " << plain << ", " << least);
    // All sinks in one tile, or in tiles of their own: no order has fewer than was said beforehand.
    const BuiltPlan tried = build(mask.view(), false);
    CHECK(tried.plan.orders[0].natural == 0);
    CHECK(tried.plan.orders[0].ordered_tiles >= least);
    CHECK(plan_defect(mask, Limits(), kept.plan, 0, 0, true) == "");
    if (window == 200) {  // not proved, and worth it or not as the tried order says
      CHECK_FALSE(keeps_own_order(order.natural_tiles, least));
      CHECK(order.natural == (keeps_own_order(order.natural_tiles, tried.plan.orders[0].ordered_tiles) ? 1 : 0));
      continue;
    }
    CHECK(order.natural == 1);
    CHECK(order.ordered_tiles == least);
    CHECK_FALSE(keeps_own_order(order.natural_tiles, plain));
  }
}

TEST_CASE("no order has fewer tiles than its keys' spans say") {
  std::mt19937 generator(41);
  for (int round = 0; round < 12; ++round) {
    const HostMask mask = interval_mask(generator, 1, 1, 700 + round * 150, 900);
    const KeyOrder kept = build(mask.view(), true).plan.orders[0];
    const KeyOrder tried = build(mask.view(), false).plan.orders[0];
    INFO("round " << round << ", " << kept.natural_tiles << " tiles");
    CHECK(kept.natural == (keeps_own_order(kept.natural_tiles, tried.ordered_tiles) ? 1 : 0));
    CHECK(kept.ordered_tiles <= tried.ordered_tiles);
  }
}

/// Which of the masks' rows of keys the first pass has not written.
std::vector<bool> without_key_rows(const BuiltPlan& built, int masks, int queries, int keys) {
  const auto words = static_cast<std::ptrdiff_t>(mask_atoms(queries) * mask_atoms(keys) * kMaskAtom);
  std::vector<bool> without;
  for (int index = 0; index < masks; ++index)
    without.push_back(std::all_of(built.plan.key_rows + index * words, built.plan.key_rows + (index + 1) * words,
                                  [](std::uint64_t word) { return word == kPoison; }));
  return without;
}

TEST_CASE("a mask that keeps its keys' order is packed the same, proved beforehand or not") {
  std::mt19937 generator(31);
  int proved = 0;
  int kept = 0;
  for (const auto& [queries, keys] : {std::pair{640, 512}, {1216, 1024}, {130, 300}, {1, 200}})
    for (const int percent : {100, 50, 3, 0})
      for (const int kind : {0, 1, 2}) {  // limits: none, causal, a window
        HostMask mask = full_mask(1, 1, queries, keys);
        for (std::uint8_t& byte : mask.bytes) byte = static_cast<int>(generator() % 100) < percent ? 1 : 0;
        MaskView view = mask.view();
        if (kind > 0) view.limits.high = keys - queries;
        if (kind > 1) view.limits.low = keys - queries - 300;
        const BuiltPlan plain = build(view, true);
        const BuiltPlan probed = build(view, true, 232448, true);
        INFO(queries << " queries, " << keys << " keys, " << percent << " %, limits " << kind);
        CHECK(plan_defect(mask, view.limits, plain.plan, 0, 0, true) == "");
        CHECK(plan_defect(mask, view.limits, probed.plan, 0, 0, true) == "");
        CHECK(std::memcmp(plain.plan.orders, probed.plan.orders, sizeof(KeyOrder)) == 0);
        CHECK(std::memcmp(plain.plan.ranges, probed.plan.ranges,
                          static_cast<std::size_t>(mask_atoms(keys)) * sizeof(KeyAtomRange)) == 0);
        // Rows of keys are written where nothing was proved.
        CHECK_FALSE(without_key_rows(plain, 1, queries, keys)[0]);
        const bool is_proved = without_key_rows(probed, 1, queries, keys)[0];
        proved += is_proved ? 1 : 0;
        kept += plain.plan.orders[0].natural;
        if (is_proved) CHECK(probed.plan.orders[0].natural == 1);
        if (queries == 640 && percent >= 50 && kind == 0) CHECK(is_proved);
      }
  CHECK(proved >= 4);
  CHECK(kept > proved);
}

TEST_CASE("of several masks each has a proof of its own") {
  HostMask mask = full_mask(2, 2, 640, 512);
  // The second has no first queries, the third few keys.
  std::fill_n(mask.bytes.begin() + static_cast<std::ptrdiff_t>(mask.index(0, 1, 0, 0)), 64 * mask.keys, 0);
  for (int i = 0; i < mask.queries; ++i)
    for (int j = 0; j < mask.keys; ++j)
      if (j % 16 != 0) mask.bytes[mask.index(1, 0, i, j)] = 0;
  const BuiltPlan built = build(mask.view(), true, 232448, true);
  CHECK(without_key_rows(built, 4, mask.queries, mask.keys) == std::vector{true, false, false, true});
  const int natural[] = {1, 1, 0, 1};
  for (int index = 0; index < 4; ++index) {
    CHECK(built.plan.orders[index].natural == natural[index]);
    CHECK(plan_defect(mask, Limits(), built.plan, index / 2, index % 2, true) == "");
  }
}

TEST_CASE("a long mask has a proof under causality") {
  const HostMask mask = full_mask(1, 1, 1792, 1792);
  MaskView view = mask.view();
  view.limits.high = 0;
  const BuiltPlan built = build(view, true, 232448, true);
  CHECK(without_key_rows(built, 1, mask.queries, mask.keys) == std::vector{true});
  CHECK(plan_defect(mask, view.limits, built.plan, 0, 0, true) == "");
}

TEST_CASE("parts of a proof have as many keys as leave one for each lane") {
  const HostMask mask = full_mask(1, 1, 128, 20500);
  BuiltPlan built = build(mask.view(), true, 232448, true);
  CHECK(*built.plan.key_rows == kPoison);
  CHECK(built.plan.orders[0].natural == 1);
  CHECK(plan_defect(mask, Limits(), built.plan, 0, 0, true) == "");
  // 21 parts of 16 key atoms, the last one of 20 keys, which are no tile.
  for (int part = 0; part < 20; ++part) CHECK(built.plan.least_tiles[part] == 16);
  CHECK(built.plan.least_tiles[20] == 0);
}

TEST_CASE("keys span at least what the first and last queries prove") {
  std::mt19937 generator(37);
  const HostMask mask = random_mask(generator, 2, 2, 450, 300, 0);
  for (const int low : {-kUnlimited, -200})
    for (const int high : {kUnlimited, 0}) {
      MaskView view = mask.view();
      view.limits = {low, high};
      const BuiltPlan built = build(view, true, 232448, true);
      int proved_of_all = 0;
      for (int index = 0; index < 4; ++index) {
        unsigned long long spanned = 0;
        for (int key = index * mask.keys; key < (index + 1) * mask.keys; ++key)
          if (const int end = built.plan.intervals.ends[key]; end > 0)
            spanned += static_cast<unsigned>(end + built.plan.intervals.from_end[key] - mask_atoms(mask.queries));
        const std::int32_t proved = built.plan.least_tiles[index * kMostParts];  // keys of one part
        CHECK(proved >= 0);
        CHECK(static_cast<unsigned>(proved) <= spanned / kCountedTileKeys);
        proved_of_all += proved;
      }
      if (low == -kUnlimited) CHECK(proved_of_all > 0);
    }
}

/// Checks lists and ranks of a call's tiles over a reordered plan, and what the kernels would do with them: of each
/// active pair that the limits leave, the tile is listed, and its bit is set where the tile is partial.
void check_lists(BackwardParameters p, const HostMask& mask, const BuiltPlan& built, int block_m, int block_n) {
  p.key_tiles = (p.seqlen_k + block_n - 1) / block_n;
  p.query_tiles = (p.seqlen_q + block_m - 1) / block_m;
  p.list_heads = mask.heads;
  p.compact_batch_stride = mask.batch > 1 ? mask.heads : 0;
  p.active_batch_stride = p.compact_batch_stride;
  p.query_atoms = mask_atoms(mask.queries);
  p.mask_head_stride = std::int64_t{p.query_atoms} * mask_atoms(mask.keys);
  p.mask_batch_stride = mask.batch > 1 ? mask.heads * p.mask_head_stride : 0;
  p.mask_classes = built.plan.classes;
  p.mask_words = built.plan.words;
  p.active_keys = built.plan.keys;
  p.key_orders = built.plan.orders;
  p.key_ranges = built.plan.ranges;
  std::vector<std::int32_t> clipped;
  if (p.cu_seqlens_k != nullptr) {
    clipped.assign(static_cast<std::size_t>(p.batch * mask.heads * mask.keys), -1);
    REQUIRE(clip_keys(p, p.active_keys, clipped.data(), nullptr) == cudaSuccess);
    p.active_keys = clipped.data();
    p.active_batch_stride = mask.heads;
  }
  const auto tiles = static_cast<std::size_t>(p.query_tiles);
  const auto lists = static_cast<std::size_t>(p.batch * p.list_heads * p.key_tiles);
  std::vector<std::uint32_t> entries(lists * tiles, ~0u);
  std::vector<std::int32_t> counts(lists, -1);
  std::vector<std::int32_t> ranks(entries.size(), -1);
  p.list_entries = entries.data();
  p.list_counts = counts.data();
  p.list_ranks = ranks.data();
  REQUIRE(build_tile_lists(p, block_m, block_n, nullptr) == cudaSuccess);

  for (int b = 0; b < p.batch; ++b) {
    const SequenceRows sequence = sequence_of(p, b);
    const Limits limits = limits_of(p, sequence);
    for (int h = 0; h < p.list_heads; ++h) {
      const int mask_batch = mask.batch > 1 ? b : 0;
      const KeyList list = keys_of(p, b, h, sequence);
      std::set<std::pair<int, int>> seen;
      std::vector<int> earlier(tiles, 0);
      for (int n = 0; n < p.key_tiles; ++n) {
        const auto index = static_cast<std::size_t>((b * p.list_heads + h) * p.key_tiles + n);
        REQUIRE((counts[index] >= 0 && counts[index] <= p.query_tiles));
        for (int m = 0; m < p.query_tiles; ++m)
          REQUIRE(ranks[index * tiles + static_cast<std::size_t>(m)] == earlier[static_cast<std::size_t>(m)]);
        for (int e = 0; e < counts[index]; ++e) {
          const std::uint32_t entry = entries[index * tiles + static_cast<std::size_t>(e)];
          const TileStep step = step_of_entry(entry);
          const int m = step.tile;
          REQUIRE(m < p.query_tiles);
          if (e > 0) REQUIRE(m > query_tile_of(entries[index * tiles + static_cast<std::size_t>(e) - 1]));
          ++earlier[static_cast<std::size_t>(m)];
          if (!step.is_partial()) REQUIRE((n + 1) * block_n <= list.count);
          for (int slot = n * block_n; slot < std::min((n + 1) * block_n, list.count); ++slot) {
            const int key = list.keys != nullptr ? list.keys[slot] : slot;
            const StepFacts half = step.half((slot - n * block_n) * 2 / block_n);
            if ((half & kSomeActive) == 0) continue;
            const bool partial = (half & kSomeMasked) != 0;
            REQUIRE(partial == ((half & kMaskedByWords) != 0));
            if (!partial) REQUIRE(key < sequence.length_k);
            for (int i = m * block_m; i < std::min((m + 1) * block_m, sequence.length_q); ++i) {
              bool kept = true;
              if (partial) {
                const std::int64_t atom = mask_batch * p.mask_batch_stride + h * p.mask_head_stride +
                                          std::int64_t{slot / kMaskAtom} * p.query_atoms + i / kMaskAtom;
                kept = key < sequence.length_k && key >= i + limits.low && key <= i + limits.high &&
                       (p.mask_words[atom * kMaskAtom + i % kMaskAtom] >> (slot % kMaskAtom) & 1u) != 0;
              }
              if (!kept) continue;
              const bool added = seen.emplace(i, key).second;
              REQUIRE(added);
            }
          }
        }
      }
      for (int i = 0; i < sequence.length_q; ++i)
        for (int j = 0; j < sequence.length_k; ++j) {
          const bool kept = j >= i + limits.low && j <= i + limits.high && mask.keeps(mask_batch, h, i, j);
          REQUIRE(seen.contains({i, j}) == kept);
        }
    }
  }
}

TEST_CASE("lists over a reordered plan hold every active pair once") {
  std::mt19937 generator(17);
  for (const auto& [full, causal] : {std::pair{false, false}, {false, true}, {true, true}}) {
    const HostMask mask = full ? full_mask(1, 1, 330, 330) : interval_mask(generator, 1, 2, 260, 330);
    BackwardParameters p;
    p.batch = 1;
    p.heads = mask.heads;
    p.seqlen_q = mask.queries;
    p.seqlen_k = mask.keys;
    MaskView view = mask.view();
    if (causal) {
      p.window_right = 0;
      SequenceRows sequence;
      sequence.length_q = mask.queries;
      sequence.length_k = mask.keys;
      view.limits = limits_of(p, sequence);
    }
    const BuiltPlan built = build(view, false);
    for (const int block_m : {32, 64, 128})
      for (const int block_n : {32, 64, 128}) check_lists(p, mask, built, block_m, block_n);
  }
}

TEST_CASE("lists of a packed batch leave out keys past the end of a sequence") {
  std::mt19937 generator(19);
  const std::vector<std::int32_t> q = {0, 70, 70, 200};
  const std::vector<std::int32_t> k = {0, 60, 69, 230};
  for (const auto& [full, batch] : {std::pair{false, 1}, {false, 3}, {true, 1}}) {
    const HostMask mask = full ? full_mask(1, 1, 140, 170) : interval_mask(generator, batch, 1, 140, 170);
    const BuiltPlan built = build(mask.view(), false);
    BackwardParameters p;
    p.batch = 3;
    p.heads = 1;
    p.seqlen_q = mask.queries;
    p.seqlen_k = mask.keys;
    if (!full) p.window_right = 20;
    p.cu_seqlens_q = q.data();
    p.cu_seqlens_k = k.data();
    check_lists(p, mask, built, 64, 128);
  }
}

}  // namespace
