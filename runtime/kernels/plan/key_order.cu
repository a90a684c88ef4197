// The second pass of a reordered plan: the order of the keys of each mask.
//
// Never-active keys are left out. The others are sorted by the last query atom that sees them, in steps of half an
// octave and the last first, then by the first: keys that share a tile are then active in alike intervals, and the
// longest lists of query tiles come first. Simulated for causal top-w masks of random scores, tiles of 128 keys have
// 1.6 times the area of the active pairs (w = 1024; half octaves lose nothing against finer steps).
//
// The sort is a stable radix sort of 16-bit codes by one CTA a mask: each warp has a part of the keys and counters of
// its own, and takes its part in order. cub::DeviceSegmentedSort partitions its segments with a synchronisation, and
// cub::DeviceSegmentedRadixSort also has one CTA a segment, but a launch for each digit and temporary memory whose size
// only a GPU tells.
#include "common/launch_kernel.hpp"
#include "common/load_kernels.hpp"
#include "plan/reordered_plan.hpp"

namespace flashdma_bwd {
namespace {

constexpr int kOrderWarps = 32;
constexpr int kOrderThreads = kOrderWarps * 32;
constexpr int kDigits = 256;
constexpr int kUnroll = 4;  ///< strips of 32 keys whose loads are in flight together
constexpr int kFirstBits = 10;
constexpr int kLevels = 64;
/// A tile of the predictions: 128 keys.
constexpr int kTileAtoms = 2;

/// Reordering must save a ninth of the tiles: it costs a gather of K and V and zeros for the keys that it drops.
__device__ __forceinline__ bool keeps_natural(int natural_tiles, int ordered_tiles) {
  return std::int64_t{ordered_tiles} * 9 >= std::int64_t{natural_tiles} * 8;
}

struct OrderProblem {
  int keys;
  int query_atoms;
  bool may_keep_natural;
};

/// Position in the order: late last atoms first, in two steps a doubling, then early first atoms.
__device__ __forceinline__ std::uint32_t order_code(int query_atoms, int from_end, int end) {
  const int octave = 31 - __clz(end);
  const int level = octave * 2 + (octave > 0 ? end >> (octave - 1) & 1 : 0);
  const int bits = 32 - __clz(query_atoms);
  const int first = (query_atoms - from_end) >> (bits > kFirstBits ? bits - kFirstBits : 0);
  return static_cast<std::uint32_t>(kLevels - 1 - level) << kFirstBits | static_cast<std::uint32_t>(first);
}

/// The part of [0, count) that a warp takes: whole strips of 32.
struct Part {
  int begin;
  int end;
  __device__ __forceinline__ Part(int count, int warp) {
    const int strips = (count + 31) / 32;
    const int of_warp = (strips + kOrderWarps - 1) / kOrderWarps;
    begin = min(warp * of_warp * 32, count);
    end = min(begin + of_warp * 32, count);
  }
};

/// A key with its code, or nothing.
constexpr std::uint64_t kNoKey = ~std::uint64_t{0};
__device__ __forceinline__ std::uint64_t coded_key(int key, std::uint32_t code) {
  return std::uint64_t{code} << 32 | static_cast<std::uint32_t>(key);
}

/// What a CTA shares.
struct OrderState {
  std::int32_t counters[kOrderWarps][kDigits];
  std::int32_t totals[kDigits];
  std::int32_t natural_tiles;
  std::int32_t ordered_tiles;
};

/// Sorts by one digit of the code: source(i) for i < count, in order, to destination(slot, coded key).
/// Returns how many keys there are.
template <int kShift, class Source, class Destination>
__device__ __forceinline__ int sort_by_digit(OrderState& state, int count, const Source& source,
                                             const Destination& destination) {
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const auto digit_of = [](std::uint64_t coded) { return static_cast<int>(coded >> (32 + kShift)) & (kDigits - 1); };
  for (int i = thread; i < kOrderWarps * kDigits; i += kOrderThreads) (&state.counters[0][0])[i] = 0;
  __syncthreads();

  const Part part(count, warp);
  for (int base = part.begin; base < part.end; base += 32 * kUnroll) {
    std::uint64_t coded[kUnroll];
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      const int i = base + j * 32 + lane;
      coded[j] = i < part.end ? source(i) : kNoKey;
    }
#pragma unroll
    for (int j = 0; j < kUnroll; ++j)
      if (coded[j] != kNoKey) atomicAdd(&state.counters[warp][digit_of(coded[j])], 1);
  }
  __syncthreads();

  // Where each warp's keys of each digit begin.
  int total = 0;
  if (thread < kDigits) {
    for (int w = 0; w < kOrderWarps; ++w) {
      const int own = state.counters[w][thread];
      state.counters[w][thread] = total;
      total += own;
    }
    state.totals[thread] = total;
  }
  __syncthreads();
  for (int step = 1; step < kDigits; step *= 2) {
    int below = 0;
    if (thread < kDigits && thread >= step) below = state.totals[thread - step];
    __syncthreads();
    if (thread < kDigits) state.totals[thread] += below;
    __syncthreads();
  }
  if (thread < kDigits) {
    const int before = state.totals[thread] - total;
    for (int w = 0; w < kOrderWarps; ++w) state.counters[w][thread] += before;
  }
  __syncthreads();
  const int keys = state.totals[kDigits - 1];

  for (int base = part.begin; base < part.end; base += 32 * kUnroll) {
    std::uint64_t coded[kUnroll];
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      const int i = base + j * 32 + lane;
      coded[j] = i < part.end ? source(i) : kNoKey;
    }
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      const bool active = coded[j] != kNoKey;
      const int digit = digit_of(coded[j]);
      const unsigned peers = __match_any_sync(0xffffffffu, active ? digit : kDigits);
      const unsigned before = peers & ((1u << lane) - 1);
      if (active) destination(state.counters[warp][digit] + __popc(before), coded[j]);
      __syncwarp();
      if (active && before == 0) state.counters[warp][digit] += __popc(peers);
      __syncwarp();
    }
  }
  __syncthreads();
  return keys;
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
  for (int tile = warp; tile < key_atoms / kTileAtoms; tile += kOrderWarps) {
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
__global__ void __launch_bounds__(kOrderThreads)
    key_order_kernel(OrderProblem p, KeyIntervals intervals, const std::uint8_t* active_atoms, std::uint64_t* sorted,
                     KeyOrder* orders, std::int32_t* keys, KeyAtomRange* ranges) {
  __shared__ OrderState state;
  const int mask_index = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t first = std::int64_t{mask_index} * p.keys;
  const std::int32_t* from_end = intervals.from_end + first;
  const std::int32_t* ends = intervals.ends + first;
  std::uint64_t* half_sorted = sorted + first;
  std::int32_t* own_keys = keys + first;
  const int key_atoms = mask_atoms(p.keys);
  KeyAtomRange* own_ranges = ranges + std::int64_t{mask_index} * key_atoms;
  if (thread == 0) state.natural_tiles = state.ordered_tiles = 0;

  const int count = sort_by_digit<0>(
      state, p.keys,
      [&](int key) {
        const int end = ends[key];
        return end == 0 ? kNoKey : coded_key(key, order_code(p.query_atoms, from_end[key], end));
      },
      [&](int slot, std::uint64_t coded) { half_sorted[slot] = coded; });
  sort_by_digit<8>(
      state, count, [&](int i) { return half_sorted[i]; },
      [&](int slot, std::uint64_t coded) { own_keys[slot] = static_cast<std::int32_t>(coded); });

  find_ranges(state, p, own_keys, count, from_end, ends, own_ranges);
  // Tiles of the keys' own order, as the first pass found them.
  const std::int64_t flags = std::int64_t{p.query_atoms / 2} * key_atoms;
  const std::uint8_t* own_atoms = active_atoms + mask_index * flags;
  int natural_tiles = 0;
#pragma unroll 8
  for (std::int64_t i = std::int64_t{thread} * kTileAtoms; i < flags; i += std::int64_t{kOrderThreads} * kTileAtoms) {
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
    for (int key = thread; key < p.keys; key += kOrderThreads) own_keys[key] = key;
    find_ranges(state, p, nullptr, p.keys, from_end, ends, own_ranges);
  }
  if (thread == 0) orders[mask_index] = {natural ? p.keys : count, natural ? 1 : 0, natural_tiles, ordered_tiles};
}

}  // namespace

cudaError_t order_keys(const MaskView& mask, const ReorderedPlan& plan, bool may_keep_natural, cudaStream_t stream) {
  const auto masks = static_cast<unsigned>(mask.batch * mask.heads);
  if (masks == 0) return cudaSuccess;
  const OrderProblem problem{mask.keys, mask_atoms(mask.queries), may_keep_natural};
  return launch_kernel(key_order_kernel, masks, kOrderThreads, 0, stream, problem, plan.intervals,
                       static_cast<const std::uint8_t*>(plan.active_atoms), plan.sorted, plan.orders, plan.keys,
                       plan.ranges);
}

cudaError_t load_key_order_kernels() {
  return load_kernels(key_order_kernel);
}

}  // namespace flashdma_bwd
