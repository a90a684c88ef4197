// The plan kernels, run on the host, against plans made pair by pair.
#include <algorithm>
#include <array>
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

MaskClass class_of(StepFacts half) {
  return (half & kSomeActive) == 0   ? MaskClass::empty
         : (half & kSomeMasked) == 0 ? MaskClass::full
                                     : MaskClass::partial;
}

/// Lists and ranks of a call's tiles, made of poisoned memory.
class TileLists {
 public:
  TileLists(BackwardParameters& p, int block_m, int block_n) {
    p.key_tiles = (p.seqlen_k + block_n - 1) / block_n;
    p.query_tiles = (p.seqlen_q + block_m - 1) / block_m;
    tiles_ = static_cast<std::size_t>(p.query_tiles);
    const auto lists = static_cast<std::size_t>(p.batch * p.list_heads * p.key_tiles);
    entries_.assign(lists * tiles_, ~0u);
    counts_.assign(lists, -1);
    times_.assign(lists, -1);
    ranks_.assign(lists * tiles_, -1);
    p.list_entries = entries_.data();
    p.list_counts = counts_.data();
    p.list_times = times_.data();
    p.list_ranks = ranks_.data();
    p.leaves_out_halves = p.query_tiles % 2 == 0;
    REQUIRE(build_tile_lists(p, block_m, block_n, nullptr) == cudaSuccess);
    for (std::size_t list = 0; list < lists; ++list) {
      int time = 0;
      for (std::size_t i = list * tiles_; i < list * tiles_ + static_cast<std::size_t>(counts_[list]); ++i)
        time += time_of_step(step_of_entry(entries_[i]), p.leaves_out_halves);
      REQUIRE(times_[list] == time);
    }
  }
  /// Of each query tile the class of its pairs with either half of the keys. Lists ascend, and hold no empty tile.
  std::vector<std::array<MaskClass, 2>> halves(std::size_t list) const {
    const std::uint32_t* own = entries_.data() + list * tiles_;
    REQUIRE((counts_[list] >= 0 && static_cast<std::size_t>(counts_[list]) <= tiles_));
    std::vector<std::array<MaskClass, 2>> halves(tiles_, {MaskClass::empty, MaskClass::empty});
    for (int i = 0; i < counts_[list]; ++i) {
      const TileStep step = step_of_entry(own[i]);
      REQUIRE((step.tile >= 0 && static_cast<std::size_t>(step.tile) < tiles_));
      if (i > 0) REQUIRE(step.tile > query_tile_of(own[i - 1]));
      REQUIRE(step.is_active());
      halves[static_cast<std::size_t>(step.tile)] = {class_of(step.half(0)), class_of(step.half(1))};
    }
    return halves;
  }
  int rank(std::size_t list, int query_tile) const {
    return ranks_[list * tiles_ + static_cast<std::size_t>(query_tile)];
  }

 private:
  std::size_t tiles_ = 0;
  std::vector<std::uint32_t> entries_;
  std::vector<std::int32_t> counts_, times_, ranks_;
};

/// Checks the lists and ranks of a plan, which holds the pairs within `plan_limits`. A tile is listed if the call's
/// limits leave a pair of a part of it, a half of the keys of a tile of two key atoms, and an atom that the part
/// touches has an active one; so each active pair is in one listed tile. A part that is called full has no masked pair,
/// and one of whole atoms without a masked pair is called full. Returns how many tiles there were without pairs, with
/// some that are masked, and with none.
std::array<int, 3> check_lists(BackwardParameters p, const HostMask* mask, const Limits& plan_limits, int block_m,
                               int block_n) {
  const TileLists lists(p, block_m, block_n);
  const bool of_whole_atoms = block_m % kMaskAtom == 0 && block_n % kMaskAtom == 0;
  const int parts = block_n == kKeysOfTwoHalves ? 2 : 1;
  const int keys_of_part = block_n / parts;
  const auto within = [](const Limits& limits, int i, int j) { return j >= i + limits.low && j <= i + limits.high; };
  std::array<int, 3> counts{};
  for (int b = 0; b < p.batch; ++b) {
    const SequenceRows sequence = sequence_of(p, b);
    const Limits limits = limits_of(p, sequence);
    for (int h = 0; h < p.list_heads; ++h) {
      const auto active_atom = [&](int query_atom, int key_atom) {
        for (int i = query_atom * kMaskAtom; i < std::min((query_atom + 1) * kMaskAtom, p.seqlen_q); ++i)
          for (int j = key_atom * kMaskAtom; j < std::min((key_atom + 1) * kMaskAtom, p.seqlen_k); ++j)
            if (within(plan_limits, i, j) && mask->keeps(b, h, i, j)) return true;
        return false;
      };
      const auto touches_active_atom = [&](int m, int first_key) {
        for (int query = m * block_m / kMaskAtom; query <= ((m + 1) * block_m - 1) / kMaskAtom; ++query)
          for (int key = first_key / kMaskAtom; key <= (first_key + keys_of_part - 1) / kMaskAtom; ++key)
            if (active_atom(query, key)) return true;
        return false;
      };
      std::vector<int> earlier(static_cast<std::size_t>(p.query_tiles), 0);
      for (int n = 0; n < p.key_tiles; ++n) {
        const auto list = static_cast<std::size_t>((b * p.list_heads + h) * p.key_tiles + n);
        const std::vector<std::array<MaskClass, 2>> kinds = lists.halves(list);
        for (int m = 0; m < p.query_tiles; ++m) {
          const auto& tile = kinds[static_cast<std::size_t>(m)];
          INFO("batch " << b << " head " << h << " key tile " << n << " query tile " << m);
          if (parts == 1) REQUIRE(tile[0] == tile[1]);
          bool listed = false;
          bool whole = true;
          for (int part = 0; part < parts; ++part) {
            const int first_key = n * block_n + part * keys_of_part;
            const int end_key = first_key + keys_of_part;
            bool visible = false;
            bool any = false;
            bool all = end_key <= sequence.length_k;
            for (int i = m * block_m; i < std::min((m + 1) * block_m, sequence.length_q); ++i)
              for (int j = first_key; j < std::min(end_key, sequence.length_k); ++j) {
                const bool seen = within(limits, i, j);
                const bool kept = seen && (mask == nullptr || mask->keeps(b, h, i, j));
                visible |= seen;
                any |= kept;
                all &= kept;
              }
            const MaskClass kind = tile[static_cast<std::size_t>(part)];
            if (any) REQUIRE(kind != MaskClass::empty);
            const bool active = visible && (mask == nullptr || touches_active_atom(m, first_key));
            REQUIRE((kind != MaskClass::empty) == active);
            if (kind == MaskClass::full) REQUIRE(all);
            if (of_whole_atoms && any && all) REQUIRE(kind == MaskClass::full);
            listed |= active;
            whole &= kind == MaskClass::full;
          }
          int& before = earlier[static_cast<std::size_t>(m)];
          REQUIRE(lists.rank(list, m) == before);
          before += listed ? 1 : 0;
          ++counts[!listed ? 0 : whole ? 2 : 1];
        }
      }
    }
  }
  return counts;
}

/// Atoms that are kept, masked or mixed, some of each.
HostMask atom_mask(std::mt19937& generator, int batch, int heads, int queries, int keys) {
  HostMask mask{batch, heads, queries, keys, 0, {}};
  mask.bytes.assign(mask.index(batch, 0, 0, 0), 0);
  const int key_atoms = (keys + kMaskAtom - 1) / kMaskAtom;
  for (int b = 0; b < batch; ++b)
    for (int h = 0; h < heads; ++h)
      for (int i = 0; i < queries; ++i)
        for (int j = 0; j < keys; ++j) {
          const int kind = (i / kMaskAtom * key_atoms + j / kMaskAtom + h) % 3;
          mask.bytes[mask.index(b, h, i, j)] = kind == 0 || (kind == 1 && generator() % 2 == 0) ? 1 : 0;
        }
  return mask;
}

TEST_CASE("tile lists hold the tiles that have active pairs, in order, with the rank of each key tile") {
  std::mt19937 generator(11);
  for (const int block_m : {32, 64, 128})
    for (const int block_n : {32, 64, 128})
      for (const bool causal : {false, true})
        for (const bool mixed : {false, true}) {
          const HostMask mask =
              mixed ? random_mask(generator, 1, 2, 200, 300, 0) : atom_mask(generator, 1, 2, 200, 300);
          // A plan need not hold what causality hides: the last 100 keys lie past the queries.
          const Limits limits = causal ? Limits{-kUnlimited, 100} : Limits();
          const NaturalPlan plan = pack(mask, limits);
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
          for (const bool limits_in_mask : {false, true}) {
            p.limits_in_mask = limits_in_mask;
            const std::array<int, 3> counts = check_lists(p, &mask, limits, block_m, block_n);
            if (!mixed && block_m <= kMaskAtom && block_n <= kMaskAtom)
              for (const int count : counts) CHECK(count > 0);
          }
        }
}

TEST_CASE("lists leave out what the call hides of a plan with wider limits") {
  std::mt19937 generator(31);
  const HostMask mask = atom_mask(generator, 1, 1, 520, 400);
  const Limits limits{-200, 180};
  const NaturalPlan plan = pack(mask, limits);
  for (const int block : {32, 64, 128}) {
    BackwardParameters p;
    p.batch = 1;
    p.heads = 1;
    p.seqlen_q = mask.queries;
    p.seqlen_k = mask.keys;
    p.delta_from_lengths = false;
    p.window_left = 170;
    p.window_right = 130;
    p.mask_words = plan.words.data();
    p.mask_classes = plan.classes.data();
    p.query_atoms = mask_atoms(mask.queries);
    p.mask_head_stride = std::int64_t{p.query_atoms} * mask_atoms(mask.keys);
    const std::array<int, 3> counts = check_lists(p, &mask, limits, block, block);
    if (block <= kMaskAtom)
      for (const int count : counts) CHECK(count > 0);
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
  check_lists(p, nullptr, {}, 64, 32);
}

/// Checks the lists of a compacted mask, which only deterministic mode has: a tile is listed if the limits leave a
/// query of it something between the first key and the last of a part of it, and a part is full if they leave all its
/// pairs.
void check_compacted_lists(BackwardParameters p, int block_m, int block_n) {
  const TileLists lists(p, block_m, block_n);
  const int parts = block_n == kKeysOfTwoHalves ? 2 : 1;
  const auto keys_of_part = static_cast<std::size_t>(block_n / parts);
  for (int b = 0; b < p.batch; ++b) {
    const SequenceRows sequence = sequence_of(p, b);
    const Limits limits = limits_of(p, sequence);
    for (int h = 0; h < p.list_heads; ++h) {
      const int mask = b * p.compact_batch_stride + h;
      std::vector<int> keys;
      for (int i = 0; i < p.active_counts[mask]; ++i)
        if (const int key = p.active_keys[mask * p.seqlen_k + i]; key < sequence.length_k) keys.push_back(key);
      std::vector<int> earlier(static_cast<std::size_t>(p.query_tiles), 0);
      for (int n = 0; n < p.key_tiles; ++n) {
        const auto list = static_cast<std::size_t>((b * p.list_heads + h) * p.key_tiles + n);
        const std::vector<std::array<MaskClass, 2>> kinds = lists.halves(list);
        for (int m = 0; m < p.query_tiles; ++m) {
          INFO("batch " << b << " head " << h << " key tile " << n << " query tile " << m);
          const auto tile = static_cast<std::size_t>(m);
          bool listed = false;
          for (int part = 0; part < parts; ++part) {
            const std::size_t begin = std::min(
                keys.size(), static_cast<std::size_t>(n * block_n) + static_cast<std::size_t>(part) * keys_of_part);
            const std::size_t end = std::min(keys.size(), begin + keys_of_part);
            bool any = false;
            bool between = false;
            bool all = end - begin == keys_of_part;
            for (int i = m * block_m; i < std::min((m + 1) * block_m, sequence.length_q); ++i) {
              between |= begin < end && keys[end - 1] >= i + limits.low && keys[begin] <= i + limits.high;
              for (std::size_t slot = begin; slot < end; ++slot) {
                const bool seen = keys[slot] >= i + limits.low && keys[slot] <= i + limits.high;
                any |= seen;
                all &= seen;
              }
            }
            if (any) REQUIRE(between);
            const MaskClass kind = kinds[tile][static_cast<std::size_t>(part)];
            REQUIRE(kind == (!between ? MaskClass::empty : all ? MaskClass::full : MaskClass::partial));
            listed |= between;
          }
          REQUIRE(lists.rank(list, m) == earlier[tile]);
          earlier[tile] += listed ? 1 : 0;
        }
      }
    }
  }
}

TEST_CASE("compacted keys have lists and ranks in deterministic mode") {
  std::mt19937 generator(37);
  const std::vector<std::int32_t> q = {0, 70, 70, 270};
  const std::vector<std::int32_t> k = {0, 400, 409, 500};
  for (const int mask_batch : {1, 3}) {
    HostMask mask{mask_batch, 2, 1, 450, 0, {}};
    mask.bytes.assign(mask.index(mask_batch, 0, 0, 0), 0);
    for (int b = 0; b < mask_batch; ++b)
      for (int j = 0; j < mask.keys; ++j) {
        // The first head has two thirds of the keys, the other one few, and of the last batch none.
        if (generator() % 3 != 0) mask.bytes[mask.index(b, 0, 0, j)] = 1;
        if (b + 1 < mask_batch && generator() % 7 == 0) mask.bytes[mask.index(b, 1, 0, j)] = 1;
      }
    const auto masks = static_cast<std::size_t>(mask_batch * mask.heads);
    std::vector<std::int32_t> counts(masks, -1);
    std::vector<std::int32_t> keys(masks * static_cast<std::size_t>(mask.keys), -1);
    REQUIRE(compact_mask(mask.view(), counts.data(), keys.data(), nullptr) == cudaSuccess);
    for (const bool packed : {false, true})
      for (const bool windowed : {false, true}) {
        BackwardParameters p;
        p.batch = 3;
        p.heads = p.list_heads = mask.heads;
        p.seqlen_q = 200;
        p.seqlen_k = mask.keys;
        p.window_right = 0;
        if (windowed) p.window_left = 60;
        if (packed) {
          p.cu_seqlens_q = q.data();
          p.cu_seqlens_k = k.data();
        }
        p.active_keys = keys.data();
        p.active_counts = counts.data();
        p.compact_batch_stride = p.active_batch_stride = mask_batch > 1 ? mask.heads : 0;
        check_compacted_lists(p, 64, 64);
        check_compacted_lists(p, 128, 32);
      }
  }
}

}  // namespace
