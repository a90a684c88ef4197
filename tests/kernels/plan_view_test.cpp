// The parts of a plan as callers see them, of plans that the plan kernels have made on the host.
#include "plan_view.hpp"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/reordered_plan_model.hpp"
#include "support/catch.hpp"

namespace {

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

constexpr int kBatch = 2, kHeads = 2, kQueries = 150, kKeys = 300;

/// A plan in poisoned memory of just its size, which its struct describes as flashdma_bwd_plan_build does.
class HostPlan {
 public:
  HostPlan(std::int32_t layout, std::size_t bytes, std::int64_t rows) : memory_((bytes + 256) / 8, ~std::uint64_t{0}) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    begin_ = reinterpret_cast<std::byte*>((address + 255) / 256 * 256);
    plan_ = {sizeof plan_, layout,      kBatch,     kHeads, kQueries, kKeys, begin_,
             bytes,        -kUnlimited, kUnlimited, rows,   0,        0,     0};
  }
  std::byte* at(std::size_t offset) { return begin_ + offset; }
  const flashdma_bwd_mask_plan& plan() const { return plan_; }

  flashdma_bwd_plan_parts view() const {
    flashdma_bwd_plan_parts parts;
    std::fill_n(reinterpret_cast<unsigned char*>(&parts), sizeof parts, static_cast<unsigned char>(0xff));
    const Check failure = view_plan(&plan_, parts);
    REQUIRE(!failure);
    CHECK(parts.struct_size == sizeof parts);
    CHECK(parts.layout == plan_.layout);
    CHECK((parts.batch == kBatch && parts.heads == kHeads));
    CHECK((parts.seqlen_q == kQueries && parts.seqlen_k == kKeys));
    CHECK((parts.query_atoms == 4 && parts.key_atoms == 6));
    return parts;
  }
  /// Whether a part of so many elements lies in the plan.
  template <class T>
  bool has(const T* part, std::int64_t count) const {
    const auto* first = reinterpret_cast<const std::byte*>(part);
    return first >= begin_ && first + static_cast<std::size_t>(count) * sizeof(T) <= begin_ + plan_.bytes;
  }

 private:
  std::vector<std::uint64_t> memory_;
  std::byte* begin_ = nullptr;
  flashdma_bwd_mask_plan plan_{};
};

/// Checks bits and classes by the convention that the C header states; `keys` of a mask, or nullptr for their own
/// order.
void check_words(const flashdma_bwd_plan_parts& parts, const HostMask& mask, int b, int h, const std::int32_t* keys,
                 int slots) {
  const std::int64_t index = b * parts.heads + h;
  const auto atom_of = [&](std::int64_t slot, std::int64_t query) {
    return (index * parts.key_atoms + slot / 64) * parts.query_atoms + query / 64;
  };
  std::vector<int> kept(static_cast<std::size_t>(parts.key_atoms * parts.query_atoms), 0);
  std::vector<int> there = kept;
  for (int slot = 0; slot < slots; ++slot)
    for (int i = 0; i < kQueries; ++i) {
      const bool keeps = mask.keeps(b, h, i, keys != nullptr ? keys[slot] : slot);
      const auto own = static_cast<std::size_t>(slot / 64 * parts.query_atoms + i / 64);
      ++there[own];
      kept[own] += keeps ? 1 : 0;
    }
  for (int slot = 0; slot < 64 * parts.key_atoms; ++slot)
    for (int i = 0; i < 64 * parts.query_atoms; ++i) {
      const auto own = static_cast<std::size_t>(slot / 64 * parts.query_atoms + i / 64);
      REQUIRE(parts.classes[atom_of(slot, i)] == (kept[own] == 0 ? 0 : kept[own] == there[own] ? 2 : 1));
      bool written = false;
      for (int k = 0; k < 2; ++k)
        for (int q = 0; q < 2; ++q)
          written |= parts.classes[atom_of(slot / 128 * 128 + 64 * k, i / 128 * 128 + 64 * q)] != 0;
      if (!written) continue;
      const bool keeps = slot < slots && i < kQueries && mask.keeps(b, h, i, keys != nullptr ? keys[slot] : slot);
      REQUIRE((parts.words[atom_of(slot, i) * 64 + i % 64] >> (slot % 64) & 1u) == (keeps ? 1u : 0u));
    }
}

TEST_CASE("the view of a natural plan has its words and classes") {
  std::mt19937 generator(41);
  const HostMask mask = random_mask(generator, kBatch, kHeads, kQueries, kKeys, 0);
  const NaturalPlanLayout layout = natural_plan_layout(kBatch * kHeads, kQueries, kKeys);
  HostPlan plan(FLASHDMA_BWD_LAYOUT_NATURAL, layout.bytes, kQueries);
  REQUIRE(pack_mask(mask.view(), reinterpret_cast<std::uint64_t*>(plan.at(layout.words)),
                    reinterpret_cast<std::uint8_t*>(plan.at(layout.classes)), nullptr) == cudaSuccess);
  const flashdma_bwd_plan_parts parts = plan.view();
  CHECK((parts.orders == nullptr && parts.counts == nullptr && parts.keys == nullptr && parts.ranges == nullptr));
  const std::int64_t atoms = kBatch * kHeads * parts.key_atoms * parts.query_atoms;
  CHECK((plan.has(parts.words, atoms * 64) && plan.has(parts.classes, atoms)));
  for (int b = 0; b < kBatch; ++b)
    for (int h = 0; h < kHeads; ++h) check_words(parts, mask, b, h, nullptr, kKeys);
}

TEST_CASE("the view of a compacted plan has its counts and keys") {
  std::mt19937 generator(43);
  const HostMask mask = random_mask(generator, kBatch, kHeads, 1, kKeys, 0);
  const CompactedPlanLayout layout = compacted_plan_layout(kBatch * kHeads, kKeys);
  HostPlan plan(FLASHDMA_BWD_LAYOUT_COMPACTED, layout.bytes, 1);
  REQUIRE(compact_mask(mask.view(), reinterpret_cast<std::int32_t*>(plan.at(layout.counts)),
                       reinterpret_cast<std::int32_t*>(plan.at(layout.keys)), nullptr) == cudaSuccess);
  const flashdma_bwd_plan_parts parts = plan.view();
  CHECK((parts.orders == nullptr && parts.ranges == nullptr && parts.classes == nullptr && parts.words == nullptr));
  CHECK((plan.has(parts.counts, kBatch * kHeads) && plan.has(parts.keys, kBatch * kHeads * kKeys)));
  for (int b = 0; b < kBatch; ++b)
    for (int h = 0; h < kHeads; ++h) {
      std::vector<std::int32_t> expected;
      for (int j = 0; j < kKeys; ++j)
        if (mask.keeps(b, h, 0, j)) expected.push_back(j);
      const int index = b * kHeads + h;
      REQUIRE(parts.counts[index] == static_cast<std::int32_t>(expected.size()));
      CHECK(std::equal(expected.begin(), expected.end(), parts.keys + index * kKeys));
    }
}

TEST_CASE("the view and the summary of a reordered plan have its orders, keys, ranges, words and tiles") {
  std::mt19937 generator(47);
  HostMask mask = interval_mask(generator, kBatch, kHeads, kQueries, kKeys);
  // The first head has few keys, so that their order saves tiles; in the other all are active nearly always.
  for (int b = 0; b < kBatch; ++b)
    for (int i = 0; i < kQueries; ++i)
      for (int j = 0; j < kKeys; ++j) {
        if (j % 8 != 0) mask.bytes[mask.index(b, 0, i, j)] = 0;
        if (i < kQueries - b) mask.bytes[mask.index(b, 1, i, j)] = 1;
      }
  const ReorderedPlanLayout layout = reordered_plan_layout(kBatch * kHeads, kQueries, kKeys);
  HostPlan plan(FLASHDMA_BWD_LAYOUT_REORDERED, layout.bytes, kQueries);
  REQUIRE(reorder_mask(mask.view(), {232448, false}, true, plan.at(0), nullptr) == cudaSuccess);
  const flashdma_bwd_plan_parts parts = plan.view();
  CHECK(parts.counts == nullptr);
  const std::int64_t key_atoms = kBatch * kHeads * parts.key_atoms;
  CHECK((plan.has(parts.orders, kBatch * kHeads) && plan.has(parts.keys, kBatch * kHeads * kKeys)));
  CHECK((plan.has(parts.ranges, key_atoms) && plan.has(parts.classes, key_atoms * parts.query_atoms)));
  CHECK(plan.has(parts.words, key_atoms * parts.query_atoms * 64));
  std::int64_t keys = 0, natural = 0, natural_tile_count = 0, predicted = 0;
  for (int b = 0; b < kBatch; ++b)
    for (int h = 0; h < kHeads; ++h) {
      const int index = b * kHeads + h;
      const flashdma_bwd_key_order& order = parts.orders[index];
      const std::int32_t* own_keys = parts.keys + index * kKeys;
      check_words(parts, mask, b, h, own_keys, order.keys);
      REQUIRE(order.natural_tiles == natural_tiles(mask, {}, b, h));
      for (int atom = 0; atom < parts.key_atoms; ++atom) {
        const flashdma_bwd_key_range& range = parts.ranges[index * parts.key_atoms + atom];
        const int begin = std::min(atom * 64, order.keys), end = std::min(begin + 64, order.keys);
        if (begin == end) {
          CHECK(range.first_key > range.last_key);
          continue;
        }
        CHECK(range.first_key == *std::min_element(own_keys + begin, own_keys + end));
        CHECK(range.last_key == *std::max_element(own_keys + begin, own_keys + end));
        for (int slot = begin; slot < end; ++slot)
          for (int i = 0; i < kQueries; ++i)
            if (mask.keeps(b, h, i, own_keys[slot])) CHECK((i / 64 >= range.query_begin && i / 64 < range.query_end));
      }
      keys += order.keys;
      natural += order.natural;
      natural_tile_count += order.natural_tiles;
      predicted += order.natural != 0 ? order.natural_tiles : order.ordered_tiles;
    }
  flashdma_bwd_plan_summary summary{};
  REQUIRE(!summarize_plan(&plan.plan(), parts.orders, summary));
  CHECK(summary.struct_size == sizeof summary);
  CHECK(summary.masks == kBatch * kHeads);
  CHECK(summary.reordered_masks == kBatch * kHeads - natural);
  CHECK(natural == kBatch);
  CHECK(summary.keys == keys);
  CHECK(summary.all_tiles == kBatch * kHeads * 3 * 3);
  CHECK(summary.natural_tiles == natural_tile_count);
  CHECK(summary.predicted_tiles == predicted);
}

TEST_CASE("plans that cannot be, and orders that no plan has, are refused") {
  alignas(256) static std::byte memory[256];
  const std::size_t bytes = reordered_plan_layout(1, kQueries, kKeys).bytes;
  const flashdma_bwd_mask_plan good{
      sizeof good, FLASHDMA_BWD_LAYOUT_REORDERED, 1, 1, kQueries, kKeys, memory, bytes, -kUnlimited, kUnlimited,
      kQueries,    FLASHDMA_BWD_ENCODING_BITS,    0, 0};
  const flashdma_bwd_key_order order{kKeys, 1, 9, 9};
  const auto refused = [&](auto change, flashdma_bwd_code code, const std::string& part) {
    flashdma_bwd_mask_plan plan = good;
    flashdma_bwd_key_order changed = order;
    change(plan, changed);
    flashdma_bwd_plan_summary summary{};
    const Check failure = summarize_plan(&plan, &changed, summary);
    REQUIRE(failure);
    INFO(failure->message);
    CHECK(failure->code == code);
    CHECK(failure->message.find(part) != std::string::npos);
  };
  using Plan = flashdma_bwd_mask_plan;
  using Order = flashdma_bwd_key_order;
  constexpr auto kInvalid = FLASHDMA_BWD_INVALID_ARGUMENT;
  refused([](Plan& plan, Order&) { plan.struct_size = 8; }, kInvalid, "plan.struct_size is 8");
  refused([](Plan& plan, Order&) { plan.layout = 3; }, kInvalid, "plan.layout is 3");
  refused([](Plan& plan, Order&) { plan.encoding = 5; }, kInvalid, "plan.encoding is 5");
  refused([](Plan& plan, Order&) { plan.heads = -1; }, kInvalid, "plan.heads is -1");
  refused([](Plan& plan, Order&) { plan.seqlen_k = std::int64_t{1} << 40; }, kInvalid,
          "plan.seqlen_k is 1099511627776");
  refused([](Plan& plan, Order&) { plan.batch = plan.heads = 1 << 29; }, kInvalid, "more rows than any call");
  refused([](Plan& plan, Order&) { plan.memory = nullptr; }, kInvalid, "plan.memory");
  refused([](Plan& plan, Order&) { plan.bytes -= 1; }, kInvalid, "plan.bytes is");
  refused([](Plan& plan, Order&) { plan.layout = FLASHDMA_BWD_LAYOUT_NATURAL; }, FLASHDMA_BWD_UNSUPPORTED,
          "only a reordered plan");
  refused([](Plan&, Order& o) { o.keys = -1; }, kInvalid, "orders[0].keys is -1");
  refused([](Plan&, Order& o) { o.natural = 2; }, kInvalid, "orders[0].natural is 2");
  refused([](Plan&, Order& o) { o.ordered_tiles = 10; }, kInvalid, "orders[0].ordered_tiles is 10");
  flashdma_bwd_plan_summary summary{};
  CHECK(summarize_plan(&good, nullptr, summary)->message.find("orders is NULL") == 0);
  flashdma_bwd_plan_parts parts{};
  CHECK(view_plan(nullptr, parts)->message.find("plan is NULL") == 0);
}

TEST_CASE("a plan of no bytes has no memory and no parts") {
  for (const std::int32_t layout :
       {FLASHDMA_BWD_LAYOUT_NATURAL, FLASHDMA_BWD_LAYOUT_COMPACTED, FLASHDMA_BWD_LAYOUT_REORDERED}) {
    const flashdma_bwd_mask_plan plan{sizeof plan, layout,      0,          2,        kQueries, kKeys, nullptr,
                                      0,           -kUnlimited, kUnlimited, kQueries, 0,        0,     0};
    flashdma_bwd_plan_parts parts{};
    REQUIRE(!view_plan(&plan, parts));
    CHECK((parts.words == nullptr && parts.classes == nullptr && parts.keys == nullptr && parts.orders == nullptr));
    flashdma_bwd_plan_summary summary{};
    if (layout == FLASHDMA_BWD_LAYOUT_REORDERED) CHECK(!summarize_plan(&plan, nullptr, summary));
  }
}

}  // namespace
