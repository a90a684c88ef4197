// The keys' own order, and what proves that a mask keeps it before all of it has been read.
//
// The second pass counts a tile of 128 keys from the earliest first to the latest last query that is active with any of
// them, so that it has at least as many query atoms as each of its keys spans. By that count any order has at least
//     sum over the keys of the query atoms from the first to the last active one / 128
// tiles, and a mask whose own order has not many more keeps it. Two query atoms give a bound for the sum: a key that is
// active in both spans what lies between them. The limits bound the tiles of the own order. So the first and the last
// queries, a hundredth of a long mask, prove of masks that keep pairs all over, as of half of them by chance, that the
// first pass can write what the main kernels read.
#pragma once

#include "plan/mask_plan.hpp"

namespace flashdma_bwd {

/// A tile of the counts: 128 keys.
inline constexpr int kCountedTileKeys = 128;

/// Parts of the keys of a proof, each of them a lane's.
inline constexpr int kMostParts = 32;
/// Key atoms that are probed at a time: a part has so many or a multiple.
inline constexpr int kProbedAtoms = 8;

/// Reordering must save a ninth of the tiles: it costs a gather of K and V and zeros for the keys that it drops.
FLASHDMA_HOST_DEVICE constexpr bool keeps_own_order(std::int64_t own_tiles, std::int64_t ordered_tiles) {
  return ordered_tiles * 9 >= own_tiles * 8;
}

struct OwnOrderProof {
  /// [heads][kMostParts]: the tiles that each part's keys need at least, in any order. nullptr: nothing was probed.
  std::int32_t* least_tiles = nullptr;
  int part_atoms = 0;  ///< key atoms of a part, the last one less
  int parts = 0;
  std::int64_t most_own_tiles = 0;  ///< of each mask
};

}  // namespace flashdma_bwd
