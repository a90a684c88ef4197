// Set arithmetic on boxes.
#include "validation/region.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <string_view>

#include "selection/problem_domain.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd::generator {
namespace {

constexpr std::uint32_t kBoth = 3;  // false and true
constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

// Axes, in the order of Region.
constexpr std::size_t kDataTypeAxis = 0, kBiasAxis = 1, kLayoutAxis = 2, kSoftcapAxis = 3, kMaskedAxis = 6,
                      kCopiesAxis = 7;
constexpr std::size_t kSeqlenAxes[] = {0, 1};
constexpr std::size_t kDensityAxis = 3;

constexpr std::uint32_t bit(auto value) {
  return 1u << static_cast<unsigned>(value);
}
constexpr std::uint32_t kNo = bit(false), kYes = bit(true);

std::uint32_t bits_of(Choice choice) {
  return choice == Choice::any ? kBoth : choice == Choice::yes ? kYes : kNo;
}

/// What possible() takes away.
std::vector<Region> impossible_regions() {
  const Region whole = whole_domain();
  std::vector<Region> all;
  const auto add = [&](auto narrow) { narrow(all.emplace_back(whole)); };
  const auto scattered = [](Region& r) { r.sets[kLayoutAxis] &= ~bit(KeyLayout::natural); };
  add([&](Region& r) { r.sets[kMaskedAxis] = kNo, scattered(r); });
  add([](Region& r) { r.sets[kMaskedAxis] = kNo, r.ranges[kDensityAxis].high = 999; });
  add([](Region& r) { r.ranges[kDensityAxis].high = 0; });
  add([](Region& r) { r.sets[kCopiesAxis] = kYes, r.sets[kBiasAxis] &= ~bit(BiasKind::tile); });
  add([&](Region& r) { r.sets[kCopiesAxis] = kYes, scattered(r); });
  for (const std::size_t axis : kSeqlenAxes) add([&](Region& r) { r.ranges[axis].low = kLongestSequence + 1; });
  return all;
}

constexpr std::string_view kFlagAxes[] = {"softcap", "causal", "deterministic", "masked", "bias_copies"};
constexpr std::string_view kRangeAxisNames[] = {"seqlen_q", "seqlen_k", "work_items_per_sm", "mask_density"};

std::string words_in(std::uint32_t bits, std::span<const std::string_view> words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    if ((bits >> i & 1u) != 0) text += (text.empty() ? "" : " or ") + std::string(words[i]);
  return text;
}

/// Two boxes that differ on one axis only and join there without a gap.
std::optional<Region> join(const Region& a, const Region& b) {
  Region joined = a;
  int differing = 0;
  for (std::size_t i = 0; i < kSetAxes; ++i)
    if (a.sets[i] != b.sets[i]) {
      ++differing;
      joined.sets[i] |= b.sets[i];
    }
  for (std::size_t i = 0; i < kRangeAxes; ++i)
    if (a.ranges[i] != b.ranges[i]) {
      ++differing;
      const Range& first = a.ranges[i].low < b.ranges[i].low ? a.ranges[i] : b.ranges[i];
      const Range& second = a.ranges[i].low < b.ranges[i].low ? b.ranges[i] : a.ranges[i];
      if (first.high < kLargest && first.high + 1 < second.low) return std::nullopt;
      joined.ranges[i] = {first.low, std::max(first.high, second.high)};
    }
  return differing <= 1 ? std::optional(joined) : std::nullopt;
}

}  // namespace

Region whole_domain() {
  return region_of(When{});
}

Region region_of(const When& when) {
  Region region;
  region.sets = {when.data_types.bits & all_bits<DataType>(),
                 when.biases.bits & all_bits<BiasKind>(),
                 when.layouts.bits & all_bits<KeyLayout>(),
                 bits_of(when.softcap),
                 bits_of(when.causal),
                 bits_of(when.deterministic),
                 bits_of(when.masked),
                 bits_of(when.bias_copies)};
  region.ranges = {when.seqlen_q, when.seqlen_k, when.work_items_per_sm, when.mask_density};
  return region;
}

std::optional<Region> intersect(const Region& a, const Region& b) {
  Region result;
  for (std::size_t i = 0; i < kSetAxes; ++i) {
    result.sets[i] = a.sets[i] & b.sets[i];
    if (result.sets[i] == 0) return std::nullopt;
  }
  for (std::size_t i = 0; i < kRangeAxes; ++i) {
    result.ranges[i] = {std::max(a.ranges[i].low, b.ranges[i].low), std::min(a.ranges[i].high, b.ranges[i].high)};
    if (result.ranges[i].low > result.ranges[i].high) return std::nullopt;
  }
  return result;
}

std::vector<Region> subtract(const Region& region, const Region& cut) {
  const std::optional<Region> common = intersect(region, cut);
  if (!common) return {region};
  // Peels off, axis by axis, what lies outside the cut; what remains in the end is the common part.
  std::vector<Region> pieces;
  Region rest = region;
  for (std::size_t i = 0; i < kSetAxes; ++i) {
    if (const std::uint32_t outside = rest.sets[i] & ~common->sets[i]; outside != 0) {
      Region piece = rest;
      piece.sets[i] = outside;
      pieces.push_back(piece);
    }
    rest.sets[i] = common->sets[i];
  }
  for (std::size_t i = 0; i < kRangeAxes; ++i) {
    const Range inside = common->ranges[i];
    if (rest.ranges[i].low < inside.low) {
      Region piece = rest;
      piece.ranges[i].high = inside.low - 1;
      pieces.push_back(piece);
    }
    if (rest.ranges[i].high > inside.high) {
      Region piece = rest;
      piece.ranges[i].low = inside.high + 1;
      pieces.push_back(piece);
    }
    rest.ranges[i] = inside;
  }
  return pieces;
}

std::vector<Region> subtract(const std::vector<Region>& regions, const Region& cut) {
  std::vector<Region> result;
  for (const Region& region : regions) {
    const std::vector<Region> pieces = subtract(region, cut);
    result.insert(result.end(), pieces.begin(), pieces.end());
  }
  return result;
}

std::vector<Region> intersect(const std::vector<Region>& regions, const Region& with) {
  std::vector<Region> result;
  for (const Region& region : regions)
    if (const std::optional<Region> common = intersect(region, with)) result.push_back(*common);
  return result;
}

std::vector<Region> possible(std::vector<Region> regions) {
  for (const Region& impossible : impossible_regions()) regions = subtract(regions, impossible);
  return regions;
}

std::vector<Region> simplify(std::vector<Region> regions) {
  for (bool joined = true; joined;) {
    joined = false;
    for (std::size_t i = 0; i < regions.size(); ++i)
      for (std::size_t j = i + 1; j < regions.size();)
        if (const std::optional<Region> both = join(regions[i], regions[j])) {
          regions[i] = *both;
          regions.erase(regions.begin() + static_cast<std::ptrdiff_t>(j));
          joined = true;
        } else {
          ++j;
        }
  }
  return regions;
}

bool admits(const Region& region, DataType data_type, BiasKind bias, bool softcap) {
  return (region.sets[kDataTypeAxis] & bit(data_type)) != 0 && (region.sets[kBiasAxis] & bit(bias)) != 0 &&
         (region.sets[kSoftcapAxis] & bit(softcap)) != 0;
}

bool admits_uncopied_tile_bias(const Region& region) {
  return (region.sets[kBiasAxis] & bit(BiasKind::tile)) != 0 && (region.sets[kCopiesAxis] & kNo) != 0;
}

std::string describe(const Region& region) {
  const Region whole = whole_domain();
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (region.sets[0] != whole.sets[0]) add(words_in(region.sets[0], words_of(DataType{})));
  if (region.sets[1] != whole.sets[1]) add("bias " + words_in(region.sets[1], words_of(BiasKind{})));
  if (region.sets[2] != whole.sets[2]) add(words_in(region.sets[2], words_of(KeyLayout{})) + " keys");
  for (std::size_t i = 0; i < std::size(kFlagAxes); ++i)
    if (const std::uint32_t bits = region.sets[3 + i]; bits != kBoth)
      add((bits == 1 ? "not " : "") + std::string(kFlagAxes[i]));
  for (std::size_t i = 0; i < kRangeAxes; ++i) {
    const Range& range = region.ranges[i];
    if (range == whole.ranges[i]) continue;
    const bool open = range.high == whole.ranges[i].high;
    add(std::string(kRangeAxisNames[i]) + ' ' + std::to_string(range.low) +
        (range.low == range.high ? "" : ".." + (open ? "" : std::to_string(range.high))));
  }
  return text;
}

std::string describe_head_dims(int bucket) {
  int below = 0;
  for (const int b : kHeadDimBuckets) {
    if (b == bucket) break;
    below = b;
  }
  return '(' + std::to_string(below) + ", " + std::to_string(bucket) + ']';
}

}  // namespace flashdma_bwd::generator
