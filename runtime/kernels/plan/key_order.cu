// The second pass of a reordered plan: the order of the keys of each mask.
//
// Never-active keys are left out. The others are sorted by the last query atom that sees them, the last first, cut into
// strata (key_strata.cuh) and sorted by the first in each: keys that share a tile are then active in alike intervals.
// The tiles themselves are sorted by the length of these intervals, so that the longest lists of query tiles come
// first.
#include "common/launch_kernel.hpp"
#include "common/load_kernels.hpp"
#include "plan/digit_sort.cuh"
#include "plan/key_strata.cuh"
#include "plan/reordered_plan.hpp"

namespace flashdma_bwd {
namespace {

/// A tile of the predictions and of the order of tiles: 128 keys.
constexpr int kTileAtoms = kStratumTileKeys / kMaskAtom;

/// Reordering must save a ninth of the tiles: it costs a gather of K and V and zeros for the keys that it drops.
__device__ __forceinline__ bool keeps_natural(int natural_tiles, int ordered_tiles) {
  return std::int64_t{ordered_tiles} * 9 >= std::int64_t{natural_tiles} * 8;
}

struct OrderProblem {
  int keys;
  int query_atoms;
  bool may_keep_natural;
};

/// Tiles that are sorted; the others, of longer sequences, stay in their strata.
constexpr int kMostSortedTiles = 2048;

/// What a CTA shares.
struct OrderState {
  DigitCounters counters;
  KeyStrata strata;
  std::uint8_t tile_lengths[kMostSortedTiles];  ///< in levels, less 1
  std::uint16_t sorted_tiles[kMostSortedTiles];
  std::int32_t natural_tiles;
  std::int32_t ordered_tiles;
};

/// Writes the active keys of one mask to `keys` in the order of the plan, and returns how many there are. `lists` are
/// two buffers of as many coded values as there are keys.
__device__ __forceinline__ int sort_keys(OrderState& state, const OrderProblem& p, const std::int32_t* from_end,
                                         const std::int32_t* ends, std::uint64_t* const (&lists)[2],
                                         std::int32_t* keys) {
  const KeyLevels levels(p.query_atoms);
  const int count = sort_by_digit<kLastDigit>(
      state.counters, p.keys,
      [&](int key) {
        const int end = ends[key];
        return end == 0 ? kNothing : coded_value(key, levels.code(p.query_atoms - from_end[key], end - 1));
      },
      [&](int slot, std::uint64_t coded) { lists[0][slot] = coded; });
  state.strata.find(lists[0], count);
  sort_by_digit<kFirstDigit>(
      state.counters, count, [&](int i) { return lists[0][i] | with_digit(kStratumDigit, state.strata.of(i)); },
      [&](int slot, std::uint64_t coded) { lists[1][slot] = coded; });
  sort_by_digit<kStratumDigit>(
      state.counters, count, [&](int i) { return lists[1][i]; },
      [&](int slot, std::uint64_t coded) { lists[0][slot] = coded; });

  // Whole tiles by their lengths; what is left of the keys stays last.
  const int tiles = min(count / kStratumTileKeys, kMostSortedTiles);
  const int thread = static_cast<int>(threadIdx.x);
  for (int tile = thread / 32; tile < tiles; tile += kSortWarps) {
    LevelRange range;
    range.find(lists[0], tile * kStratumTileKeys, (tile + 1) * kStratumTileKeys);
    if (thread % 32 == 0)
      state.tile_lengths[tile] = static_cast<std::uint8_t>(range.latest_last - range.earliest_first);
  }
  __syncthreads();
  for (int tile = thread; tile < tiles; tile += kSortThreads) {
    const int length = state.tile_lengths[tile];
    int place = 0;
    for (int other = 0; other < tiles; ++other)
      if (state.tile_lengths[other] > length || (state.tile_lengths[other] == length && other < tile)) ++place;
    state.sorted_tiles[place] = static_cast<std::uint16_t>(tile);
  }
  __syncthreads();
  for (int slot = thread; slot < count; slot += kSortThreads) {
    const int tile = slot / kStratumTileKeys;
    const int from = tile < tiles ? state.sorted_tiles[tile] : tile;
    keys[slot] = value_of(lists[0][from * kStratumTileKeys + slot % kStratumTileKeys]);
  }
  __syncthreads();
  return count;
}

/// The smallest and largest positions and the query atoms of each key atom, in the order of `keys`, or in the keys' own
/// if it is nullptr. Adds up the query tiles of tiles of two key atoms.
__device__ __forceinline__ void find_ranges(OrderState& state, const OrderProblem& p, const std::int32_t* keys,
                                            int count, const std::int32_t* from_end, const std::int32_t* ends,
                                            KeyAtomRange* ranges) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int key_atoms = mask_atoms(p.keys);
  int tiles = 0;
  for (int tile = warp; tile < key_atoms / kTileAtoms; tile += kSortWarps) {
    int tile_begin = kUnlimited;
    int tile_end = 0;
    for (int atom = tile * kTileAtoms; atom < (tile + 1) * kTileAtoms; ++atom) {
      KeyAtomRange range = {kUnlimited, -1, kUnlimited, 0};
      for (int half = 0; half < 2; ++half) {
        const int slot = atom * kMaskAtom + half * 32 + lane;
        if (slot >= count) continue;
        const int key = keys != nullptr ? keys[slot] : slot;
        range.first_position = min(range.first_position, key);
        range.last_position = max(range.last_position, key);
        if (ends[key] == 0) continue;
        range.query_begin = min(range.query_begin, p.query_atoms - from_end[key]);
        range.query_end = max(range.query_end, ends[key]);
      }
#pragma unroll
      for (int step = 16; step > 0; step /= 2) {
        range.first_position = min(range.first_position, __shfl_xor_sync(0xffffffffu, range.first_position, step));
        range.last_position = max(range.last_position, __shfl_xor_sync(0xffffffffu, range.last_position, step));
        range.query_begin = min(range.query_begin, __shfl_xor_sync(0xffffffffu, range.query_begin, step));
        range.query_end = max(range.query_end, __shfl_xor_sync(0xffffffffu, range.query_end, step));
      }
      if (lane == 0) ranges[atom] = range;
      tile_begin = min(tile_begin, range.query_begin);
      tile_end = max(tile_end, range.query_end);
    }
    tiles += max(tile_end - tile_begin, 0);
  }
  if (lane == 0) atomicAdd(&state.ordered_tiles, tiles);
}

/// One CTA orders the keys of one mask.
__global__ void __launch_bounds__(kSortThreads)
    key_order_kernel(OrderProblem p, KeyIntervals intervals, const std::uint8_t* active_atoms, std::uint64_t* lists,
                     KeyOrder* orders, std::int32_t* keys, KeyAtomRange* ranges) {
  __shared__ OrderState state;
  const int mask_index = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t first = std::int64_t{mask_index} * p.keys;
  const std::int32_t* from_end = intervals.from_end + first;
  const std::int32_t* ends = intervals.ends + first;
  std::int32_t* own_keys = keys + first;
  const int key_atoms = mask_atoms(p.keys);
  KeyAtomRange* own_ranges = ranges + std::int64_t{mask_index} * key_atoms;
  if (thread == 0) state.natural_tiles = state.ordered_tiles = 0;

  std::uint64_t* const own_lists[2] = {lists + 2 * first, lists + 2 * first + p.keys};
  const int count = sort_keys(state, p, from_end, ends, own_lists, own_keys);
  find_ranges(state, p, own_keys, count, from_end, ends, own_ranges);
  // Tiles of the keys' own order, as the first pass found them.
  const std::int64_t flags = std::int64_t{p.query_atoms / 2} * key_atoms;
  const std::uint8_t* own_atoms = active_atoms + mask_index * flags;
  int natural_tiles = 0;
#pragma unroll 8
  for (std::int64_t i = std::int64_t{thread} * kTileAtoms; i < flags; i += std::int64_t{kSortThreads} * kTileAtoms) {
    const unsigned atoms = *reinterpret_cast<const std::uint16_t*>(own_atoms + i);
    natural_tiles += __popc((atoms | atoms >> 8) & 0xffu);
  }
  if (natural_tiles > 0) atomicAdd(&state.natural_tiles, natural_tiles);
  __syncthreads();
  natural_tiles = state.natural_tiles;
  const int ordered_tiles = state.ordered_tiles;
  __syncthreads();  // finding ranges again adds to it
  const bool natural = p.may_keep_natural && keeps_natural(natural_tiles, ordered_tiles);
  if (natural) {
    for (int key = thread; key < p.keys; key += kSortThreads) own_keys[key] = key;
    find_ranges(state, p, nullptr, p.keys, from_end, ends, own_ranges);
  }
  if (thread == 0) orders[mask_index] = {natural ? p.keys : count, natural ? 1 : 0, natural_tiles, ordered_tiles};
}

}  // namespace

cudaError_t order_keys(const MaskView& mask, const ReorderedPlan& plan, bool may_keep_natural, cudaStream_t stream) {
  const auto masks = static_cast<unsigned>(mask.batch * mask.heads);
  if (masks == 0) return cudaSuccess;
  const OrderProblem problem{mask.keys, mask_atoms(mask.queries), may_keep_natural};
  return launch_kernel(key_order_kernel, masks, kSortThreads, 0, stream, problem, plan.intervals,
                       static_cast<const std::uint8_t*>(plan.active_atoms), plan.lists, plan.orders, plan.keys,
                       plan.ranges);
}

cudaError_t load_key_order_kernels() {
  return load_kernels(key_order_kernel);
}

}  // namespace flashdma_bwd
