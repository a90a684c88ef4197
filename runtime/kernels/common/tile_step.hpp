// A query tile as the walk over a key tile takes it, and as the key tile's list holds it.
#pragma once

#include <cstdint>

#include "common/host_device.hpp"

namespace flashdma_bwd {

/// Class of a mask atom, or of other pairs inside the tensor: what they have in common.
enum class MaskClass : std::uint8_t { empty, partial, full };

/// What is known of a step's pairs, in bits: those with the first half of the keys, and from kBitsOfHalf on those with
/// the second. In tiles of other than kKeysOfTwoHalves keys either half has what the tile has.
using StepFacts = std::uint8_t;
constexpr int kKeysOfTwoHalves = 128;
constexpr int kBitsOfHalf = 4;
constexpr StepFacts kSomeActive = 1;     ///< some pairs are active
constexpr StepFacts kSomeMasked = 2;     ///< some are not,
constexpr StepFacts kMaskedByWords = 4;  ///< of which the mask's words know, maybe not of all

/// Of a half. `words`: whether there are words of a mask.
FLASHDMA_HOST_DEVICE constexpr StepFacts facts_of_half(MaskClass pairs, bool words) {
  const StepFacts masked = words ? kSomeMasked | kMaskedByWords : kSomeMasked;
  return pairs == MaskClass::full    ? kSomeActive
         : pairs == MaskClass::empty ? masked
                                     : static_cast<StepFacts>(kSomeActive | masked);
}
FLASHDMA_HOST_DEVICE constexpr StepFacts facts_of_halves(StepFacts first, StepFacts second) {
  return static_cast<StepFacts>(first | second << kBitsOfHalf);
}

/// A step of a walk.
struct TileStep {
  int tile;
  StepFacts facts;

  FLASHDMA_HOST_DEVICE constexpr StepFacts half(int number) const {
    return static_cast<StepFacts>(facts >> number * kBitsOfHalf & ((1 << kBitsOfHalf) - 1));
  }
  /// Whether some of its pairs are masked.
  FLASHDMA_HOST_DEVICE constexpr bool is_partial() const {
    return (facts & facts_of_halves(kSomeMasked, kSomeMasked)) != 0;
  }
  FLASHDMA_HOST_DEVICE constexpr bool is_active() const {
    return (facts & facts_of_halves(kSomeActive, kSomeActive)) != 0;
  }
};

/// What a step takes, in the units of time_of_step(): without a masked pair; more for each half with masked pairs; less
/// for each half that is left out. By least squares of the times of 1256 pieces of three masks of the highest scores
/// (H200, d 128; plan/NOTES.md), where masked pairs cost 7 % of a half and what leaves a half out saves 16 %.
inline constexpr int kStepTime = 32;
inline constexpr int kMaskedHalfTime = 2;
inline constexpr int kEmptyHalfTime = -5;
/// What a step takes at most.
inline constexpr int kLongestStepTime = kStepTime + 2 * kMaskedHalfTime;
/// An estimate of what a step takes. What does not leave out halves masks both or none.
FLASHDMA_HOST_DEVICE constexpr int time_of_step(const TileStep& step, bool leaves_out_halves) {
  if (!leaves_out_halves) return step.is_partial() ? kLongestStepTime : kStepTime;
  int time = kStepTime;
  for (int half = 0; half < 2; ++half) {
    const StepFacts facts = step.half(half);
    time += (facts & kSomeActive) == 0 ? kEmptyHalfTime : (facts & kSomeMasked) != 0 ? kMaskedHalfTime : 0;
  }
  return time;
}

/// A step as an entry of a list.
FLASHDMA_HOST_DEVICE constexpr std::uint32_t list_entry(const TileStep& step) {
  return static_cast<std::uint32_t>(step.tile) << 2 * kBitsOfHalf | step.facts;
}
FLASHDMA_HOST_DEVICE constexpr int query_tile_of(std::uint32_t entry) {
  return static_cast<int>(entry >> 2 * kBitsOfHalf);
}
FLASHDMA_HOST_DEVICE constexpr TileStep step_of_entry(std::uint32_t entry) {
  return {query_tile_of(entry), static_cast<StepFacts>(entry)};
}

}  // namespace flashdma_bwd
