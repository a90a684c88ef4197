// What a reordered plan must hold, made pair by pair on the host.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/host_mask.hpp"
#include "plan/reordered_plan.hpp"

namespace flashdma_bwd::testing {

/// Whether a pair is active: the mask's bit where the limits leave the pair.
inline bool read(const HostMask& mask, const Limits& limits, int b, int h, int i, int j) {
  return j >= i + limits.low && j <= i + limits.high && mask.keeps(b, h, i, j);
}

/// An active key with its first and last query atoms, in the levels that orders compare.
struct ActiveKey {
  int key;
  int first;
  int last;
};

inline std::vector<ActiveKey> active_keys(const HostMask& mask, const Limits& limits, int b, int h) {
  int atoms_of_level = 1;
  while (mask_atoms(mask.queries) > 256 * atoms_of_level) atoms_of_level *= 2;
  std::vector<ActiveKey> keys;
  for (int j = 0; j < mask.keys; ++j) {
    ActiveKey key = {j, -1, -1};
    for (int i = 0; i < mask.queries; ++i)
      if (read(mask, limits, b, h, i, j)) {
        if (key.first < 0) key.first = i / kMaskAtom / atoms_of_level;
        key.last = i / kMaskAtom / atoms_of_level;
      }
    if (key.first >= 0) keys.push_back(key);
  }
  return keys;
}

/// What a stratum of chunks visits in vain, in 64ths of a level.
inline int stratum_waste(const std::vector<std::vector<ActiveKey>>& chunks, std::size_t begin, std::size_t end,
                         int chunk_tiles) {
  int waste = 0;
  int earliest = chunks[begin].front().first;
  int latest = earliest;
  for (std::size_t c = begin; c < end; ++c) {
    int sum = 0;
    for (const ActiveKey& key : chunks[c]) {
      sum += key.last;
      earliest = std::min(earliest, key.first);
      latest = std::max(latest, key.first);
    }
    waste += chunks[begin].front().last * 64 - sum * 64 / static_cast<int>(chunks[c].size());
  }
  return waste + (latest - earliest) * std::max(32 / chunk_tiles, 1);
}

/// The order that the plan is to have of the active keys: the latest last first, cut into the strata of least waste,
/// each by the first; then whole tiles by how far the last of their stratum lies behind their first.
inline std::vector<std::int32_t> expected_order(const HostMask& mask, const Limits& limits, int b, int h) {
  constexpr std::size_t kTile = 128;
  std::vector<ActiveKey> keys = active_keys(mask, limits, b, h);
  std::stable_sort(keys.begin(), keys.end(), [](const ActiveKey& x, const ActiveKey& y) { return x.last > y.last; });
  const std::size_t tiles = (keys.size() + kTile - 1) / kTile;
  const std::size_t chunk_tiles = (tiles + 127) / 128;
  std::vector<std::vector<ActiveKey>> chunks;
  for (std::size_t i = 0; i < keys.size(); i += chunk_tiles * kTile)
    chunks.emplace_back(keys.begin() + static_cast<std::ptrdiff_t>(i),
                        keys.begin() + static_cast<std::ptrdiff_t>(std::min(keys.size(), i + chunk_tiles * kTile)));
  std::vector<std::pair<int, std::size_t>> least = {
      {0, 0}};  // waste of the first chunks, and their last stratum's begin
  for (std::size_t j = 1; j <= chunks.size(); ++j) {
    std::pair<int, std::size_t> best = {1 << 30, 0};
    for (std::size_t i = 0; i < j; ++i)
      best = std::min(best, {least[i].first + stratum_waste(chunks, i, j, static_cast<int>(chunk_tiles)), i});
    least.push_back(best);
  }
  std::vector<int> latest_lasts(tiles);  // of each tile's stratum
  for (std::size_t end = chunks.size(); end > 0; end = least[end].second) {
    const auto place = [&](std::size_t chunk) {
      return keys.begin() + static_cast<std::ptrdiff_t>(std::min(keys.size(), chunk * chunk_tiles * kTile));
    };
    for (std::size_t t = least[end].second * chunk_tiles; t < std::min(tiles, end * chunk_tiles); ++t)
      latest_lasts[t] = place(least[end].second)->last;
    std::stable_sort(place(least[end].second), place(end),
                     [](const ActiveKey& x, const ActiveKey& y) { return x.first < y.first; });
  }
  std::vector<std::pair<int, std::size_t>> lengths;  // of whole tiles, negative
  for (std::size_t t = 0; t < keys.size() / kTile; ++t)
    lengths.emplace_back(keys[t * kTile].first - latest_lasts[t], t);
  std::sort(lengths.begin(), lengths.end());
  std::vector<std::int32_t> order;
  for (const auto& [length, tile] : lengths)
    for (std::size_t i = tile * kTile; i < (tile + 1) * kTile; ++i) order.push_back(keys[i].key);
  for (std::size_t i = order.size(); i < keys.size(); ++i) order.push_back(keys[i].key);
  return order;
}

inline int natural_tiles(const HostMask& mask, const Limits& limits, int b, int h) {
  std::set<std::pair<int, int>> tiles;
  for (int i = 0; i < mask.queries; ++i)
    for (int j = 0; j < mask.keys; ++j)
      if (read(mask, limits, b, h, i, j)) tiles.emplace(i / kMaskAtom, j / (2 * kMaskAtom));
  return static_cast<int>(tiles.size());
}

/// Empty, or what is wrong with one mask's order, or with a bit or a class that a tile may read. `keeps_order`: whether
/// the plan may have kept the keys' own order.
inline std::string plan_defect(const HostMask& mask, const Limits& limits, const ReorderedPlan& plan, int b, int h,
                               bool keeps_order) {
  const int index = b * mask.heads + h;
  const int key_atoms = mask_atoms(mask.keys);
  const int query_atoms = mask_atoms(mask.queries);
  const KeyOrder& order = plan.orders[index];
  std::vector<std::int32_t> expected = expected_order(mask, limits, b, h);
  if (order.natural != 0) {
    if (!keeps_order) return "the keys' own order was kept";
    expected.resize(static_cast<std::size_t>(mask.keys));
    for (int j = 0; j < mask.keys; ++j) expected[static_cast<std::size_t>(j)] = j;
  }
  if (order.keys != static_cast<std::int32_t>(expected.size()))
    return std::to_string(order.keys) + " keys instead of " + std::to_string(expected.size());
  if (const int tiles = natural_tiles(mask, limits, b, h); order.natural_tiles != tiles)
    return std::to_string(order.natural_tiles) + " natural tiles instead of " + std::to_string(tiles);
  const std::int32_t* keys = plan.keys + std::int64_t{index} * mask.keys;
  if (!std::equal(expected.begin(), expected.end(), keys)) return "another order";

  // Words may be read wherever an atom of the same 128 keys and 128 queries is not empty.
  const auto atom_of = [&](int key_atom, int query_atom) {
    return (static_cast<std::size_t>(index) * static_cast<std::size_t>(key_atoms) +
            static_cast<std::size_t>(key_atom)) *
               static_cast<std::size_t>(query_atoms) +
           static_cast<std::size_t>(query_atom);
  };
  for (int key_atom = 0; key_atom < key_atoms; ++key_atom)
    for (int query_atom = 0; query_atom < query_atoms; ++query_atom) {
      const std::size_t atom = atom_of(key_atom, query_atom);
      const std::string place =
          " of key atom " + std::to_string(key_atom) + ", query atom " + std::to_string(query_atom);
      bool readable = false;
      for (int k = 0; k < 2; ++k)
        for (int q = 0; q < 2; ++q)
          readable |= plan.classes[atom_of(key_atom / 2 * 2 + k, query_atom / 2 * 2 + q)] !=
                      static_cast<std::uint8_t>(MaskClass::empty);
      bool any = false;
      bool all = true;
      for (int i = 0; i < kMaskAtom; ++i)
        for (int slot = key_atom * kMaskAtom; slot < (key_atom + 1) * kMaskAtom; ++slot) {
          const int query = query_atom * kMaskAtom + i;
          const bool inside = query < mask.queries && slot < order.keys;
          const bool kept = inside && read(mask, limits, b, h, query, keys[slot]);
          any |= kept;
          all &= !inside || kept;
          if (readable && (plan.words[atom * kMaskAtom + static_cast<std::size_t>(i)] >> (slot % kMaskAtom) & 1u) !=
                              (kept ? 1u : 0u))
            return "a wrong bit" + place;
        }
      const MaskClass kind = !any ? MaskClass::empty : all ? MaskClass::full : MaskClass::partial;
      if (static_cast<MaskClass>(plan.classes[atom]) != kind) return "a wrong class" + place;
    }
  return "";
}

/// Keys that live for an interval of queries, as in a top-w mask; some never.
inline HostMask interval_mask(std::mt19937& generator, int batch, int heads, int queries, int keys) {
  HostMask mask{batch, heads, queries, keys, 0, {}};
  mask.bytes.assign(mask.index(batch, 0, 0, 0), 0);
  const auto draw = [&](int high) { return std::uniform_int_distribution<int>(0, high)(generator); };
  for (int b = 0; b < batch; ++b)
    for (int h = 0; h < heads; ++h)
      for (int j = 0; j < keys; ++j) {
        if (draw(3) == 0) continue;
        const int begin = draw(queries - 1);
        const int end = std::min(queries, begin + 1 + draw(draw(1) == 0 ? 40 : queries));
        for (int i = begin; i < end; ++i) mask.bytes[mask.index(b, h, i, j)] = 1;
      }
  return mask;
}

}  // namespace flashdma_bwd::testing
