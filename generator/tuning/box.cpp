// Hulls and the check that they do not reach past what was measured.
#include "tuning/box.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>

#include "selection/vocabulary.hpp"

namespace flashdma_bwd::generator {
namespace {

// Places of axes in Region::sets and Region::ranges.
constexpr std::size_t kDataType = 0, kBias = 1, kLayout = 2, kSoftcap = 3, kCausal = 4, kDeterministic = 5, kMasked = 6,
                      kBiasCopies = 7;
constexpr std::size_t kQueries = 0, kKeys = 1, kWorkItems = 2, kDensity = 3;
constexpr std::uint32_t kNo = 1, kYes = 2;

constexpr std::uint32_t bit_of(auto enumerator) {
  return std::uint32_t{1} << static_cast<unsigned>(enumerator);
}
constexpr std::uint32_t bit_of(bool flag) {
  return flag ? kYes : kNo;
}

using Kind = std::array<std::uint32_t, kSetAxes>;

/// Whether there are problems of this kind.
bool exists(const Kind& kind) {
  if (kind[kBiasCopies] == kYes && kind[kBias] != bit_of(BiasKind::tile)) return false;
  return kind[kMasked] == kYes || kind[kLayout] == bit_of(KeyLayout::natural);
}

/// The number of kinds of problems in a box.
std::size_t kinds_in(const Region& box) {
  std::size_t count = 0;
  const auto walk = [&](auto& self, Kind& kind, std::size_t axis) -> void {
    if (axis == kSetAxes) {
      count += exists(kind) ? 1 : 0;
      return;
    }
    for (std::uint32_t rest = box.sets[axis]; rest != 0; rest &= rest - 1) {
      kind[axis] = rest & (0 - rest);
      self(self, kind, axis + 1);
    }
  };
  Kind kind{};
  walk(walk, kind, 0);
  return count;
}

Range hull(const Range& a, const Range& b) {
  return {std::min(a.low, b.low), std::max(a.high, b.high)};
}

Choice choice_of(std::uint32_t bits) {
  return bits == (kNo | kYes) ? Choice::any : bits == kYes ? Choice::yes : Choice::no;
}

template <class Enum>
EnumSet<Enum> set_of(std::uint32_t bits) {
  return bits == all_bits<Enum>() ? EnumSet<Enum>{} : EnumSet<Enum>{bits};
}

}  // namespace

Region point_of(const Problem& problem, const DeviceTraits& device) {
  Region point;
  point.sets[kDataType] = bit_of(problem.data_type);
  point.sets[kBias] = bit_of(problem.bias);
  point.sets[kLayout] = bit_of(problem.layout);
  point.sets[kSoftcap] = bit_of(problem.softcap);
  point.sets[kCausal] = bit_of(problem.causal);
  point.sets[kDeterministic] = bit_of(problem.deterministic);
  point.sets[kMasked] = bit_of(problem.masked);
  point.sets[kBiasCopies] = bit_of(problem.bias_copies);
  const std::int64_t items = work_items_per_sm(problem, device), density = problem.mask_density;
  point.ranges[kQueries] = {queries_of_key(problem), queries_of_key(problem)};
  point.ranges[kKeys] = {problem.seqlen_k, problem.seqlen_k};
  point.ranges[kWorkItems] = {items, items};
  point.ranges[kDensity] = {density, density};
  return point;
}

Region hull(const Region& a, const Region& b) {
  Region result;
  for (std::size_t i = 0; i < kSetAxes; ++i) result.sets[i] = a.sets[i] | b.sets[i];
  for (std::size_t i = 0; i < kRangeAxes; ++i) result.ranges[i] = hull(a.ranges[i], b.ranges[i]);
  return result;
}

bool holds(const Region& box, const Region& point) {
  for (std::size_t i = 0; i < kSetAxes; ++i)
    if ((point.sets[i] & ~box.sets[i]) != 0) return false;
  for (std::size_t i = 0; i < kRangeAxes; ++i)
    if (!box.ranges[i].contains(point.ranges[i])) return false;
  return true;
}

bool is_measured(const Region& box, std::span<const Region> points) {
  std::map<Kind, std::array<Range, kRangeAxes>> hulls;
  for (const Region& point : points) {
    const auto [place, first] = hulls.emplace(point.sets, point.ranges);
    if (!first)
      for (std::size_t i = 0; i < kRangeAxes; ++i) place->second[i] = hull(place->second[i], point.ranges[i]);
  }
  return hulls.size() == kinds_in(box) &&
         std::ranges::all_of(hulls, [&](const auto& kind) { return kind.second == box.ranges; });
}

When condition_of(int head_dim, const Region& box) {
  When when;
  when.head_dim = head_dim;
  when.data_types = set_of<DataType>(box.sets[kDataType]);
  when.biases = set_of<BiasKind>(box.sets[kBias]);
  when.softcap = choice_of(box.sets[kSoftcap]);
  when.causal = choice_of(box.sets[kCausal]);
  when.deterministic = choice_of(box.sets[kDeterministic]);
  when.masked = choice_of(box.sets[kMasked]);
  if ((box.sets[kBias] & bit_of(BiasKind::tile)) != 0) when.bias_copies = choice_of(box.sets[kBiasCopies]);
  when.seqlen_q = box.ranges[kQueries];
  when.seqlen_k = box.ranges[kKeys];
  when.work_items_per_sm = box.ranges[kWorkItems];
  if ((box.sets[kMasked] & kYes) != 0) {
    when.layouts = set_of<KeyLayout>(box.sets[kLayout]);
    when.mask_density = box.ranges[kDensity];
  }
  return when;
}

double distance(const Region& a, const Region& b) {
  double sum = 0;
  for (std::size_t i = 0; i < kSetAxes; ++i) sum += 100.0 * std::popcount(b.sets[i] & ~a.sets[i]);
  for (std::size_t i = 0; i < kRangeAxes; ++i) {
    const Range both = hull(a.ranges[i], b.ranges[i]);
    sum += std::log2(1.0 + static_cast<double>(both.high)) - std::log2(1.0 + static_cast<double>(a.ranges[i].high));
    sum += std::log2(1.0 + static_cast<double>(a.ranges[i].low)) - std::log2(1.0 + static_cast<double>(both.low));
  }
  return sum;
}

}  // namespace flashdma_bwd::generator
