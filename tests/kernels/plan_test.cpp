// The plan kernels, run on the host, against plans made pair by pair.
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

// Device code, compiled for the host by way of host/common/launch_kernel.hpp.
#include "kernels/host_mask.hpp"
#include "plan/mask_plan.cu"
#include "plan/tile_lists.cu"
#include "support/catch.hpp"

namespace {

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

struct NaturalPlan {
  std::vector<std::uint64_t> words;
  std::vector<std::uint8_t> classes;
};

NaturalPlan pack(const HostMask& mask, const Limits& limits = {}) {
  const NaturalPlanLayout layout = natural_plan_layout(mask.batch * mask.heads, mask.queries, mask.keys);
  NaturalPlan plan;
  plan.words.assign(layout.classes / 8, 0xDEADBEEFDEADBEEFu);
  plan.classes.assign(layout.classes / 8 / kMaskAtom, 0xFF);
  MaskView view = mask.view();
  view.limits = limits;
  REQUIRE(pack_mask(view, plan.words.data(), plan.classes.data(), nullptr) == cudaSuccess);
  return plan;
}

TEST_CASE("packed masks have each pair's bit and each atom's class") {
  std::mt19937 generator(3);
  struct Shape {
    int batch, heads, queries, keys, row_padding;
  };
  // Rows of 16-byte multiples take the vectorised loads, the others do not.
  for (const Shape& shape : {Shape{1, 1, 64, 64, 0}, Shape{2, 1, 70, 128, 0}, Shape{1, 2, 33, 130, 0},
                             Shape{1, 1, 130, 96, 16}, Shape{1, 1, 1, 1, 0}}) {
    const HostMask mask =
        random_mask(generator, shape.batch, shape.heads, shape.queries, shape.keys, shape.row_padding);
    const NaturalPlan plan = pack(mask);
    const int query_atoms = mask_atoms(shape.queries);
    const int key_atoms = mask_atoms(shape.keys);
    for (int b = 0; b < shape.batch; ++b)
      for (int h = 0; h < shape.heads; ++h)
        for (int key_atom = 0; key_atom < key_atoms; ++key_atom)
          for (int query_atom = 0; query_atom < query_atoms; ++query_atom) {
            const auto atom =
                static_cast<std::size_t>(((b * shape.heads + h) * key_atoms + key_atom) * query_atoms + query_atom);
            bool any = false;
            bool all = true;
            for (int i = 0; i < kMaskAtom; ++i)
              for (int j = 0; j < kMaskAtom; ++j) {
                const int query = query_atom * kMaskAtom + i;
                const int key = key_atom * kMaskAtom + j;
                const bool inside = query < shape.queries && key < shape.keys;
                const bool kept = inside && mask.keeps(b, h, query, key);
                REQUIRE((plan.words[atom * kMaskAtom + static_cast<std::size_t>(i)] >> j & 1u) == (kept ? 1u : 0u));
                any |= kept;
                all &= !inside || kept;
              }
            const MaskClass expected = !any ? MaskClass::empty : all ? MaskClass::full : MaskClass::partial;
            REQUIRE(static_cast<MaskClass>(plan.classes[atom]) == expected);
          }
  }
}

TEST_CASE("compacted masks list the active keys of each head in order") {
  std::mt19937 generator(5);
  for (const int keys : {1, 63, 1000, 17000}) {
    HostMask mask{1, 2, 1, keys, 0, {}};
    mask.bytes.resize(static_cast<std::size_t>(2 * keys));
    for (std::uint8_t& byte : mask.bytes)
      byte = generator() % 3 == 0 ? static_cast<std::uint8_t>(1 + generator() % 255) : 0;
    std::vector<std::int32_t> counts(2, -1);
    std::vector<std::int32_t> active(static_cast<std::size_t>(2 * keys), -1);
    REQUIRE(compact_mask(mask.view(), counts.data(), active.data(), nullptr) == cudaSuccess);
    for (int h = 0; h < 2; ++h) {
      std::vector<std::int32_t> expected;
      for (int j = 0; j < keys; ++j)
        if (mask.keeps(0, h, 0, j)) expected.push_back(j);
      const auto begin = active.begin() + h * keys;
      REQUIRE(counts[static_cast<std::size_t>(h)] == static_cast<std::int32_t>(expected.size()));
      REQUIRE(std::equal(expected.begin(), expected.end(), begin));
    }
  }
}

/// Checks the lists and ranks of a plan: each pair that mask and limits keep is in exactly one listed tile, lists
/// ascend, no listed tile is empty but for the limits' arithmetic, and a tile that is not marked partial has no masked
/// pair.
void check_lists(BackwardParameters p, const HostMask* mask, int block_m, int block_n) {
  p.key_tiles = (p.seqlen_k + block_n - 1) / block_n;
  p.query_tiles = (p.seqlen_q + block_m - 1) / block_m;
  const auto lists = static_cast<std::size_t>(p.batch * p.list_heads * p.key_tiles);
  std::vector<std::uint32_t> entries(lists * static_cast<std::size_t>(p.query_tiles), ~0u);
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
      std::vector<int> earlier(static_cast<std::size_t>(p.query_tiles), 0);
      for (int n = 0; n < p.key_tiles; ++n) {
        const auto list = static_cast<std::size_t>((b * p.list_heads + h) * p.key_tiles + n);
        const std::uint32_t* own = entries.data() + list * static_cast<std::size_t>(p.query_tiles);
        REQUIRE((counts[list] >= 0 && counts[list] <= p.query_tiles));
        std::vector<int> listed(static_cast<std::size_t>(p.query_tiles), 0);
        for (int i = 0; i < counts[list]; ++i) {
          REQUIRE((own[i] >> 1) < static_cast<std::uint32_t>(p.query_tiles));
          if (i > 0) REQUIRE((own[i] >> 1) > (own[i - 1] >> 1));
          listed[own[i] >> 1] = (own[i] & 1u) != 0 ? 1 : 2;
        }
        for (int m = 0; m < p.query_tiles; ++m) {
          bool any = false;
          bool all = (n + 1) * block_n <= sequence.length_k;
          for (int i = m * block_m; i < std::min((m + 1) * block_m, sequence.length_q); ++i)
            for (int j = n * block_n; j < std::min((n + 1) * block_n, sequence.length_k); ++j) {
              const bool kept =
                  j >= i + limits.low && j <= i + limits.high && (mask == nullptr || mask->keeps(b, h, i, j));
              any |= kept;
              all &= kept;
            }
          const auto tile = static_cast<std::size_t>(m);
          INFO("batch " << b << " head " << h << " key tile " << n << " query tile " << m);
          if (any) REQUIRE(listed[tile] != 0);
          if (listed[tile] == 2) REQUIRE(all);
          REQUIRE(ranks[list * static_cast<std::size_t>(p.query_tiles) + tile] == earlier[tile]);
          earlier[tile] += listed[tile] != 0 ? 1 : 0;
        }
      }
    }
  }
}

TEST_CASE("tile lists hold every active pair once, in order, with the rank of each key tile") {
  std::mt19937 generator(11);
  for (const int block_m : {32, 64, 128})
    for (const int block_n : {32, 64, 128})
      for (const bool causal : {false, true}) {
        const HostMask mask = random_mask(generator, 1, 2, 200, 300, 0);
        // A plan need not hold what causality hides: the last 100 keys lie past the queries.
        const NaturalPlan plan = causal ? pack(mask, {-kUnlimited, 100}) : pack(mask);
        BackwardParameters p;
        p.batch = 1;
        p.heads = 2;
        p.seqlen_q = mask.queries;
        p.seqlen_k = mask.keys;
        if (causal) p.window_right = 0;
        p.mask_words = plan.words.data();
        p.mask_classes = plan.classes.data();
        p.query_atoms = mask_atoms(mask.queries);
        p.mask_head_stride = std::int64_t{p.query_atoms} * mask_atoms(mask.keys);
        p.list_heads = 2;
        check_lists(p, &mask, block_m, block_n);
      }
}

TEST_CASE("without a mask the limits alone decide the lists, also of packed sequences") {
  const std::vector<std::int32_t> q = {0, 70, 70, 200};
  const std::vector<std::int32_t> k = {0, 130, 139, 139};
  BackwardParameters p;
  p.batch = 3;
  p.heads = 1;
  p.seqlen_q = 140;
  p.seqlen_k = 150;
  p.window_right = 0;
  p.window_left = 40;
  p.cu_seqlens_q = q.data();
  p.cu_seqlens_k = k.data();
  check_lists(p, nullptr, 64, 32);
}

}  // namespace
