// What the tuner knows of a problem: the times of the tiles that were timed on it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <flashdma_bwd/kernel_table.hpp>
#include <string>
#include <vector>

namespace flashdma_bwd::generator {

/// Milliseconds of one backward: the median over the rounds, and the distance of their first from their third quartile.
struct Time {
  double ms = 0;
  double spread_ms = 0;
  friend bool operator==(const Time&, const Time&) = default;
};

/// What a tile's times are. Rows use tiles that are `timed` only.
enum class Evidence : std::uint8_t {
  timed,      ///< of the kernel that a row with this tile would run
  elsewhere,  ///< of a kernel with this tile that is compiled for another architecture
  at_least,   ///< not known: slower beyond the noise than the fastest, and by these times at least
};

struct MeasuredTile {
  TileConfig tile;
  Time cold;  ///< inputs come from device memory, as in training: by this time tiles are compared
  Time warm;  ///< inputs are in the L2 cache as far as they fit
  Evidence evidence = Evidence::timed;
};

/// The tiles were timed in the same rounds, so that their times can be compared.
struct MeasuredProblem {
  Problem problem;
  std::vector<MeasuredTile> tiles;
  std::string date;  ///< YYYY-MM-DD
};

inline const MeasuredTile* find_tile(const MeasuredProblem& measured, const TileConfig& tile) {
  for (const MeasuredTile& candidate : measured.tiles)
    if (candidate.tile == tile) return &candidate;
  return nullptr;
}

/// The fastest tile, or nullptr if none was timed.
inline const MeasuredTile* fastest(const MeasuredProblem& measured) {
  const auto found =
      std::ranges::min_element(measured.tiles, {}, [](const MeasuredTile& tile) { return tile.cold.ms; });
  return found == measured.tiles.end() ? nullptr : &*found;
}

/// Whether `time` is longer than `other` by more than the rounds of either differ.
inline bool slower_beyond_noise(const Time& time, const Time& other) {
  return time.ms > other.ms + std::max(time.spread_ms, other.spread_ms);
}

}  // namespace flashdma_bwd::generator
