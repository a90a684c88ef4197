// Strata of keys that are sorted by their last active query: where the order by the last ends and one by the first
// begins.
//
// A tile of keys visits the queries from the earliest first to the latest last of its keys. Sorted by the last alone,
// its keys begin anywhere; sorted by the first alone, they end anywhere. So the keys, the latest last first, are cut
// into strata of whole tiles, and each stratum is sorted by the first. Each of its tiles then has keys of the latest
// last of the stratum, nearly, so that what lies between a key's own last and that one is visited in vain; and of the
// firsts a tile has an even share, so that over all tiles half of their range is:
//     waste = sum over the tiles of (latest last - mean last) + (latest first - earliest first) / 2
// The cuts with the least waste are found by dynamic programming over the tiles. For causal top-w masks of random
// scores the tiles so made are within 1 % of the fewest that any cuts of this order have (plan/NOTES.md).
#pragma once

#include <cstdint>

#include "common/parameters.hpp"
#include "plan/digit_sort.cuh"

namespace flashdma_bwd {

/// Firsts and lasts are compared in at most this many levels, which are digits of the sorts.
inline constexpr int kLevels = kDigits;
/// Cuts lie between chunks of tiles: one tile each, or as many as leave this many chunks.
inline constexpr int kMostChunks = 128;
inline constexpr int kStratumTileKeys = 128;

/// The levels of a key's query atoms. As digits: the first, and the last from the highest level down, so that sorts
/// put the latest in front.
struct KeyLevels {
  int shift;
  __device__ __forceinline__ explicit KeyLevels(int query_atoms) {
    const int bits = 32 - __clz(query_atoms - 1);
    shift = max(bits - kDigitBits, 0);
  }
  __device__ __forceinline__ std::uint32_t code(int first_atom, int last_atom) const {
    return static_cast<std::uint32_t>(first_atom >> shift) << kDigitBits |
           static_cast<std::uint32_t>(kLevels - 1 - (last_atom >> shift));
  }
};
/// Which digit is what. That of the last becomes that of the stratum when the strata are known.
enum KeyDigit { kLastDigit = 0, kFirstDigit = 1, kStratumDigit = 0 };
template <class Coded>
__device__ __forceinline__ int last_level(Coded coded) {
  return kLevels - 1 - digit_of(coded, kLastDigit);
}
template <class Coded>
__device__ __forceinline__ int first_level(Coded coded) {
  return digit_of(coded, kFirstDigit);
}

/// The levels of the keys [begin, end) of a sorted list, for a whole warp.
struct LevelRange {
  int earliest_first = kLevels;
  int latest_first = -1;
  int latest_last = -1;
  int sum_of_lasts = 0;

  template <class Coded>
  __device__ __forceinline__ void find(const Coded* coded, int begin, int end) {
    for (int i = begin + static_cast<int>(threadIdx.x) % 32; i < end; i += 32) {
      earliest_first = min(earliest_first, first_level(coded[i]));
      latest_first = max(latest_first, first_level(coded[i]));
      latest_last = max(latest_last, last_level(coded[i]));
      sum_of_lasts += last_level(coded[i]);
    }
    earliest_first = __reduce_min_sync(0xffffffffu, earliest_first);
    latest_first = __reduce_max_sync(0xffffffffu, latest_first);
    latest_last = __reduce_max_sync(0xffffffffu, latest_last);
    sum_of_lasts = __reduce_add_sync(0xffffffffu, sum_of_lasts);
  }
};

/// The strata of one list of keys.
class KeyStrata {
  static constexpr int kUnit = 64;  ///< parts of a level in which waste is counted
  static constexpr int kPerLane = kMostChunks / 32;

 public:
  /// All threads of a CTA of kSortThreads: finds the cuts of `count` keys, sorted by their lasts.
  template <class Coded>
  __device__ __forceinline__ void find(const Coded* coded, int count) {
    const int tiles = (count + kStratumTileKeys - 1) / kStratumTileKeys;
    const int chunk_tiles = max((tiles + kMostChunks - 1) / kMostChunks, 1);
    const int chunk_keys = chunk_tiles * kStratumTileKeys;
    const int chunks = (count + chunk_keys - 1) / chunk_keys;
    const int warp = uniform_warp();
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int chunk = warp; chunk < chunks; chunk += kSortWarps) {
      const int begin = chunk * chunk_keys;
      const int end = min(begin + chunk_keys, count);
      LevelRange range;
      range.find(coded, begin, end);
      if (lane == 0)
        chunks_[chunk] = {range.latest_last * kUnit, parts_of(range.sum_of_lasts, end - begin), range.earliest_first,
                          range.latest_first};
    }
    if (threadIdx.x == 0) chunk_tiles_ = chunk_tiles;
    __syncthreads();
    if (warp == 0 && chunks > 0) cut(chunks, chunk_tiles);
    __syncthreads();
  }

  /// The stratum of the key in a place of the sorted list, strata in the list's order.
  __device__ __forceinline__ int of(int place) const {
    const int tile = place / kStratumTileKeys;
    return strata_[chunk_tiles_ == 1 ? tile : tile / chunk_tiles_];
  }
  /// The latest of the lasts of a stratum's keys, as a level.
  __device__ __forceinline__ int latest_last(int stratum) const { return latest_lasts_[stratum]; }

 private:
  struct Chunk {
    int latest_last;
    int mean_last;
    int earliest_first;
    int latest_first;
  };

  /// sum * kUnit / count, without the product.
  static __device__ __forceinline__ int parts_of(int sum, int count) {
    return sum / count * kUnit + sum % count * kUnit / count;
  }

  /// One warp. least_waste(j) = min over i < j of least_waste(i) + waste(stratum of the chunks [i, j)). A lane has the
  /// strata that begin at i = lane, lane + 32, ..., and lets them grow by a chunk a step. This is what all warps wait
  /// for: the growth for a step is computed while the minimum of the step before is on its way, by selections, for
  /// lanes would take turns else.
  __device__ __forceinline__ void cut(int chunks, int chunk_tiles) {
    static_assert((kMostChunks & (kMostChunks - 1)) == 0);
    constexpr int kNotBegun = 1 << 30;  // above every waste times kMostChunks, which is below 2^29
    const int lane = static_cast<int>(threadIdx.x);
    // Waste is counted in chunks of tiles.
    const int unit_of_firsts = max(kUnit / 2 / chunk_tiles, 1);
    int least[kPerLane];  // of the chunks before i, times kMostChunks, and i
    int top[kPerLane];
    int lasts[kPerLane] = {};
    int earliest[kPerLane] = {};
    int latest[kPerLane] = {};
    int growth[kPerLane] = {};
#pragma unroll
    for (int s = 0; s < kPerLane; ++s) {
      least[s] = s * 32 + lane == 0 ? 0 : kNotBegun;
      top[s] = s * 32 + lane < chunks ? chunks_[s * 32 + lane].latest_last : 0;
    }
    const auto grow = [&](int chunk, const Chunk& added) {
#pragma unroll
      for (int s = 0; s < kPerLane; ++s) {
        if (s * 32 >= chunks) break;
        const bool begins = s * 32 + lane == chunk;
        lasts[s] = (begins ? 0 : lasts[s]) + top[s] - added.mean_last;
        earliest[s] = min(begins ? kLevels : earliest[s], added.earliest_first);
        latest[s] = max(begins ? 0 : latest[s], added.latest_first);
        growth[s] = (lasts[s] + (latest[s] - earliest[s]) * unit_of_firsts) * kMostChunks;
      }
    };
    grow(0, chunks_[0]);
    Chunk next = chunks_[min(1, chunks - 1)];
    for (int j = 1; j <= chunks; ++j) {
      int best = kNotBegun;
#pragma unroll
      for (int s = 0; s < kPerLane; ++s) {
        if (s * 32 >= chunks) break;
        best = min(best, least[s] + growth[s]);
      }
      best = __reduce_min_sync(0xffffffffu, best);
      grow(j, next);
      next = chunks_[min(j + 1, chunks - 1)];
      if (lane == 0) begins_[j] = best;
      const int up_to_j = (best & -kMostChunks) | j;
#pragma unroll
      for (int s = 0; s < kPerLane; ++s) least[s] = s * 32 + lane == j ? up_to_j : least[s];
    }
    __syncwarp();
    unsigned starts[kPerLane] = {};  // a bit for each chunk with which a stratum begins
    for (int end = chunks; end > 0;) {
      end = begins_[end] & (kMostChunks - 1);
#pragma unroll
      for (int s = 0; s < kPerLane; ++s) starts[s] |= end / 32 == s ? 1u << end % 32 : 0;
    }
    int later = 0;  // strata that begin in later words
#pragma unroll
    for (int s = kPerLane - 1; s >= 0; --s) {
      const int stratum = kMostChunks - 1 - later - __popc(starts[s] >> lane >> 1);
      strata_[s * 32 + lane] = stratum;
      if ((starts[s] >> lane & 1u) != 0) latest_lasts_[stratum] = top[s] / kUnit;
      later += __popc(starts[s]);
    }
  }

  Chunk chunks_[kMostChunks];
  int begins_[kMostChunks + 1];    ///< of the last stratum of the first j chunks, and times kMostChunks their waste
  int strata_[kMostChunks];        ///< of chunks
  int latest_lasts_[kMostChunks];  ///< of strata
  int chunk_tiles_;
};

}  // namespace flashdma_bwd
