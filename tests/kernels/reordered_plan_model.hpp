// What a reordered plan must hold, made pair by pair on the host.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/host_mask.hpp"
#include "plan/reordered_plan.hpp"

namespace flashdma_bwd::testing {

/// Whether a pair is active: the mask's bit where the limits leave the pair.
inline bool read(const HostMask& mask, const Limits& limits, int b, int h, int i, int j) {
  return j >= i + limits.low && j <= i + limits.high && mask.keeps(b, h, i, j);
}

/// The order that the plan is to have: of each key that is active, by the last and the first query atom.
inline std::vector<std::int32_t> expected_order(const HostMask& mask, const Limits& limits, int b, int h) {
  std::vector<std::tuple<int, int, int>> order;  // half octave of the last atom, descending; first atom; key
  for (int j = 0; j < mask.keys; ++j) {
    int first = -1;
    int last = -1;
    for (int i = 0; i < mask.queries; ++i)
      if (read(mask, limits, b, h, i, j)) {
        if (first < 0) first = i / kMaskAtom;
        last = i / kMaskAtom;
      }
    if (first < 0) continue;
    int octave = 0;
    while (2 << octave <= last + 1) ++octave;
    const bool upper = octave > 0 && (last + 1) * 2 >= 3 << octave;
    order.emplace_back(-(octave * 2 + (upper ? 1 : 0)), first, j);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::int32_t> keys;
  for (const auto& entry : order) keys.push_back(std::get<2>(entry));
  return keys;
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
