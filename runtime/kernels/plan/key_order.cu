// The second pass of a reordered plan: the order of the keys of each mask.
//
// Never-active keys are left out. The others are sorted by the last query atom that sees them, the last first, cut into
// strata (key_strata.cuh) and sorted by the first in each: keys that share a tile are then active in alike intervals.
// The tiles themselves are sorted by how far the last of their stratum lies behind their first, so that the longest
// lists of query tiles come first.
#include "common/dynamic_shared.cuh"
#include "common/launch_kernel.hpp"
#include "common/launch_order.cuh"
#include "common/load_kernels.hpp"
#include "plan/digit_sort.cuh"
#include "plan/key_strata.cuh"
#include "plan/reordered_plan.hpp"

namespace flashdma_bwd {
namespace {

/// A tile of the predictions and of the order of tiles: 128 keys.
static_assert(kStratumTileKeys == kCountedTileKeys);
constexpr int kTileAtoms = kStratumTileKeys / kMaskAtom;

struct OrderProblem {
  int keys;
  int query_atoms;
  bool may_keep_natural;
};

/// Tiles that are sorted; the others, of longer sequences, stay in their strata.
constexpr int kMostSortedTiles = 2048;

/// What keys span, in query atoms from the first to the last active one, as far as it says how many tiles any order of
/// them has. A tile has what the longest of its 128 keys spans, so that all tiles have a 128th of the sum of all keys'
/// spans at least. Where few keys span much, as the first ones of a window with sinks do, more follows from spans of
/// which none counts for more than a clip, and from what the longest key's tile has beyond that.
class Spans {
 public:
  __device__ __forceinline__ void add(int span) {
    sum_ += span;
#pragma unroll
    for (int i = 0; i < kClips; ++i) clipped_[i] += min(span, clip(i));
    longest_ = max(longest_, span);
  }
  /// Those of a warp's lanes. All lanes of the warp.
  __device__ __forceinline__ Spans of_warp() const {
    Spans all{};
    all.sum_ = __reduce_add_sync(0xffffffffu, sum_);
#pragma unroll
    for (int i = 0; i < kClips; ++i) all.clipped_[i] = __reduce_add_sync(0xffffffffu, clipped_[i]);
    all.longest_ = __reduce_max_sync(0xffffffffu, longest_);
    return all;
  }
  /// The tiles that the keys of all these, one a lane, have at least. All lanes of the warp.
  __device__ __forceinline__ static std::int64_t least_tiles(const Spans& of_lane) {
    const int longest = __reduce_max_sync(0xffffffffu, of_lane.longest_);
    std::int64_t least = tiles_of(of_lane.sum_);
#pragma unroll
    for (int i = 0; i < kClips; ++i) least = max(least, tiles_of(of_lane.clipped_[i]) + max(longest - clip(i), 0));
    return least;
  }

 private:
  static constexpr int kClips = 2;
  /// What the keys of windows of 700 and of 1400 queries span. Of longer ones the sinks are too few tiles to matter.
  __device__ __forceinline__ static constexpr int clip(int i) {
    return 12 << i;
  }

  /// A 128th of all lanes' sums.
  __device__ __forceinline__ static std::int64_t tiles_of(std::uint32_t sum) {
    const std::int64_t all =
        (std::int64_t{__reduce_add_sync(0xffffffffu, sum >> 16)} << 16) + __reduce_add_sync(0xffffffffu, sum & 0xffffu);
    return (all + kStratumTileKeys - 1) / kStratumTileKeys;
  }

  // Without initial values, which shared memory cannot have: Spans{} has none yet.
  std::uint32_t sum_;
  std::uint32_t clipped_[kClips];
  int longest_;
};

/// What a CTA shares, beside the lists of keys where these fit, which begin behind it at a multiple of 16 bytes.
struct alignas(16) OrderState {
  DigitCounters counters;
  KeyStrata strata;
  std::uint8_t tile_lengths[kMostSortedTiles];  ///< in levels, less 1
  std::uint16_t sorted_tiles[kMostSortedTiles];
  std::int32_t natural_tiles[kSortWarps];  ///< that each warp counted
  Spans spans[kSortWarps];                 ///< of each warp's keys
  std::int32_t ordered_tiles;
};

/// Two lists of as many coded keys as there are active ones.
template <class Coded>
using KeyLists = Coded* const (&)[2];

/// Writes the coded active keys of one mask to the list, in their order, and each warp's spans. Returns how many there
/// are.
template <class Coded>
__device__ __forceinline__ int code_active_keys(OrderState& state, const OrderProblem& p, const std::int32_t* from_end,
                                                const std::int32_t* ends, Coded* list) {
  const KeyLevels levels(p.query_atoms);
  constexpr int kUnroll = sizeof(Coded) == 4 ? 8 : 4;  // keys whose loads are in flight together
  static_assert(kUnroll * kSortWarps <= kDigits && kSortWarps == 32);
  const int warp = uniform_warp();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Spans spans{};
  int count = 0;
  for (int base = 0, round = 0; base < p.keys; base += kUnroll * kSortThreads, ++round) {
    int first[kUnroll], end[kUnroll];
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      const int key = base + j * kSortThreads + static_cast<int>(threadIdx.x);
      end[j] = key < p.keys ? ends[key] : 0;
      first[j] = p.query_atoms - (key < p.keys ? from_end[key] : 0);
    }
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) spans.add(end[j] != 0 ? end[j] - first[j] : 0);
    // Those of the round before may still be read.
    std::int32_t* const counts = state.counters.of_warps[round % 2];
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      const unsigned active = __ballot_sync(0xffffffffu, end[j] != 0);
      if (lane == 0) counts[j * kSortWarps + warp] = __popc(active);
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      const int of_warp = counts[j * kSortWarps + lane];
      const unsigned active = __ballot_sync(0xffffffffu, end[j] != 0);
      const int before = __reduce_add_sync(0xffffffffu, lane < warp ? of_warp : 0);
      const int place = count + before + __popc(active & ((1u << lane) - 1));
      count += __reduce_add_sync(0xffffffffu, of_warp);
      if (end[j] == 0) continue;
      const int key = base + j * kSortThreads + static_cast<int>(threadIdx.x);
      list[place] = coded_value<Coded>(key, levels.code(first[j], end[j] - 1));
    }
  }
  spans = spans.of_warp();
  if (lane == 0) state.spans[warp] = spans;
  return count;
}

/// Sorts the `count` coded keys of lists[1] but for the order of tiles, into lists[0].
template <class Coded>
__device__ __forceinline__ void sort_keys(OrderState& state, int count, KeyLists<Coded> lists) {
  sort_by_digit<Coded, kLastDigit>(
      state.counters, count, [&](int i) { return lists[1][i]; },
      [&](int slot, Coded coded) { lists[0][slot] = coded; });
  state.strata.find(lists[0], count);
  sort_by_digit<Coded, kFirstDigit>(
      state.counters, count, [&](int i) { return with_digit(lists[0][i], kStratumDigit, state.strata.of(i)); },
      [&](int slot, Coded coded) { lists[1][slot] = coded; });
  sort_by_digit<Coded, kStratumDigit>(
      state.counters, count, [&](int i) { return lists[1][i]; },
      [&](int slot, Coded coded) { lists[0][slot] = coded; });
}

/// Sorts whole tiles by their lengths; what is left of the keys stays last. A tile's keys lie in one stratum, the
/// earliest first in front.
template <class Coded>
__device__ __forceinline__ void sort_tiles(OrderState& state, const Coded* list, int tiles) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int tile = thread; tile < tiles; tile += kSortThreads) {
    const Coded front = list[tile * kStratumTileKeys];
    const int latest_last = state.strata.latest_last(digit_of(front, kStratumDigit));
    state.tile_lengths[tile] = static_cast<std::uint8_t>(latest_last - first_level(front));
  }
  __syncthreads();
  for (int tile = uniform_warp(); tile < tiles; tile += kSortWarps) {
    const int length = state.tile_lengths[tile];
    int place = 0;
    for (int other = thread % 32; other < tiles; other += 32)
      place += state.tile_lengths[other] > length || (state.tile_lengths[other] == length && other < tile) ? 1 : 0;
    place = __reduce_add_sync(0xffffffffu, place);
    if (thread % 32 == 0) state.sorted_tiles[place] = static_cast<std::uint16_t>(tile);
  }
  __syncthreads();
}

/// Writes the order in which slot i has the key key_at(i), and of each of its key atoms the smallest and largest
/// positions and the query atoms. Adds up the query tiles of tiles of two key atoms.
template <class KeyAt>
__device__ __forceinline__ void write_order(OrderState& state, const OrderProblem& p, int count, const KeyAt& key_at,
                                            const std::int32_t* from_end, const std::int32_t* ends, std::int32_t* keys,
                                            KeyAtomRange* ranges) {
  const int warp = uniform_warp();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int kKeysOfLane = kStratumTileKeys / 32;
  int tiles = 0;
  for (int tile = warp; tile < mask_atoms(p.keys) / kTileAtoms; tile += kSortWarps) {
    int key[kKeysOfLane], begin_from_end[kKeysOfLane], end[kKeysOfLane];
#pragma unroll
    for (int j = 0; j < kKeysOfLane; ++j) {
      const int slot = tile * kStratumTileKeys + j * 32 + lane;
      const bool inside = slot < count;
      key[j] = inside ? key_at(slot) : -1;
      begin_from_end[j] = inside ? from_end[key[j]] : 0;
      end[j] = inside ? ends[key[j]] : 0;
    }
#pragma unroll
    for (int j = 0; j < kKeysOfLane; ++j)
      if (key[j] >= 0) keys[tile * kStratumTileKeys + j * 32 + lane] = key[j];
    int tile_begin = kUnlimited;
    int tile_end = 0;
#pragma unroll
    for (int atom = 0; atom < kTileAtoms; ++atom) {
      const int a = atom * 2;
      const int b = atom * 2 + 1;
      KeyAtomRange range;
      range.first_position =
          __reduce_min_sync(0xffffffffu, min(key[a] < 0 ? kUnlimited : key[a], key[b] < 0 ? kUnlimited : key[b]));
      range.last_position = __reduce_max_sync(0xffffffffu, max(key[a], key[b]));
      const int from = __reduce_max_sync(0xffffffffu, max(begin_from_end[a], begin_from_end[b]));
      range.query_begin = from == 0 ? kUnlimited : p.query_atoms - from;
      range.query_end = __reduce_max_sync(0xffffffffu, max(end[a], end[b]));
      if (lane == 0) ranges[tile * kTileAtoms + atom] = range;
      tile_begin = min(tile_begin, range.query_begin);
      tile_end = max(tile_end, range.query_end);
    }
    tiles += max(tile_end - tile_begin, 0);
  }
  if (lane == 0) atomicAdd(&state.ordered_tiles, tiles);
}

/// Counts the tiles of the keys' own order, as the first pass found them: of each pair of query atoms a byte for each
/// key atom.
class NaturalTiles {
  static constexpr int kAhead = 2;

 public:
  /// Asks for the first bytes, whose way is as long as that of all else that the kernel begins with.
  __device__ __forceinline__ NaturalTiles(const std::uint8_t* atoms, std::int64_t count)
      : atoms_(atoms), words_(count % 16 == 0 ? count / 16 : 0), count_(count) {
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const std::int64_t i = thread() + j * kSortThreads;
      ahead_[j] = i < words_ ? word(i) : uint4{};
    }
  }

  /// Of the thread's bytes.
  __device__ __forceinline__ int count() const {
    int tiles = 0;
#pragma unroll
    for (int j = 0; j < kAhead; ++j) tiles += tiles_of(ahead_[j]);
#pragma unroll 4
    for (std::int64_t i = thread() + kAhead * kSortThreads; i < words_; i += kSortThreads) tiles += tiles_of(word(i));
    if (words_ == 0)
      for (std::int64_t i = thread(); i < count_ / 2; i += kSortThreads)
        tiles += tiles_of(reinterpret_cast<const std::uint16_t*>(atoms_)[i]);
    return tiles;
  }

 private:
  static __device__ __forceinline__ int thread() {
    return static_cast<int>(threadIdx.x);
  }
  static __device__ __forceinline__ int tiles_of(std::uint32_t pair_of_tiles) {
    static_assert(kTileAtoms == 2);
    return __popc((pair_of_tiles | pair_of_tiles >> 8) & 0x00ff00ffu);
  }
  static __device__ __forceinline__ int tiles_of(const uint4& v) {
    return tiles_of(v.x) + tiles_of(v.y) + tiles_of(v.z) + tiles_of(v.w);
  }
  __device__ __forceinline__ uint4 word(std::int64_t i) const {
    return reinterpret_cast<const uint4*>(atoms_)[i];
  }

  const std::uint8_t* atoms_;
  std::int64_t words_;  ///< of 16 bytes, which is what a mask's begin with, too; 0: they do not
  std::int64_t count_;
  uint4 ahead_[kAhead];
};

/// One CTA orders the keys of one mask. Lists of 32 bits a key are in shared memory, which has room for `shared_keys`:
/// for all keys of one list at least. The second is there, too, if there is room for as many as are active.
template <class Coded>
__global__ void __launch_bounds__(kSortThreads)
    key_order_kernel(OrderProblem p, int shared_keys, KeyIntervals intervals, const std::uint8_t* active_atoms,
                     std::uint64_t* lists, KeyOrder* orders, std::int32_t* keys, KeyAtomRange* ranges) {
  __shared__ OrderState state;
  const int mask_index = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) state.ordered_tiles = 0;
  wait_for_predecessor();
  const std::int64_t first = std::int64_t{mask_index} * p.keys;
  const std::int32_t* from_end = intervals.from_end + first;
  const std::int32_t* ends = intervals.ends + first;
  std::int32_t* own_keys = keys + first;
  const int key_atoms = mask_atoms(p.keys);
  KeyAtomRange* own_ranges = ranges + std::int64_t{mask_index} * key_atoms;
  const std::int64_t flags = std::int64_t{p.query_atoms / 2} * key_atoms;
  const NaturalTiles natural_tiles_here(active_atoms + mask_index * flags, flags);
  auto* const memory = reinterpret_cast<Coded*>(lists + 2 * first);
  auto* const shared = reinterpret_cast<Coded*>(dynamic_shared_memory());
  Coded* const active_keys = sizeof(Coded) == 4 ? shared : memory + p.keys;
  const int count = code_active_keys<Coded>(state, p, from_end, ends, active_keys);
  Coded* const own_lists[2] = {2 * count <= shared_keys ? shared + count : memory, active_keys};
  const int tiles_of_warp = __reduce_add_sync(0xffffffffu, natural_tiles_here.count());
  if (thread % 32 == 0) state.natural_tiles[thread / 32] = tiles_of_warp;
  __syncthreads();
  const int natural_tiles = __reduce_add_sync(0xffffffffu, state.natural_tiles[thread % 32]);
  const auto write_own_order = [&] {
    write_order(
        state, p, p.keys, [](int slot) { return slot; }, from_end, ends, own_keys, own_ranges);
  };
  if (const std::int64_t least = Spans::least_tiles(state.spans[thread % 32]);
      p.may_keep_natural && keeps_own_order(natural_tiles, least)) {
    write_own_order();
    if (thread == 0) orders[mask_index] = {p.keys, 1, natural_tiles, static_cast<std::int32_t>(least)};
    return;
  }
  sort_keys<Coded>(state, count, own_lists);
  const int tiles = min(count / kStratumTileKeys, kMostSortedTiles);
  sort_tiles(state, own_lists[0], tiles);
  const auto key_at = [&](int slot) {
    const int tile = slot / kStratumTileKeys;
    const int from = tile < tiles ? state.sorted_tiles[tile] : tile;
    return value_of(own_lists[0][from * kStratumTileKeys + slot % kStratumTileKeys]);
  };
  write_order(state, p, count, key_at, from_end, ends, own_keys, own_ranges);
  __syncthreads();
  const int ordered_tiles = state.ordered_tiles;
  __syncthreads();  // writing an order again adds to it
  const bool natural = p.may_keep_natural && keeps_own_order(natural_tiles, ordered_tiles);
  if (natural) write_own_order();
  if (thread == 0) orders[mask_index] = {natural ? p.keys : count, natural ? 1 : 0, natural_tiles, ordered_tiles};
}

/// Lists of all keys of a mask, in 32 bits a key, for which a CTA has shared memory.
int shared_lists(int keys, const PlanDevice& device) {
  if (keys > 1 << kValueBits<std::uint32_t>) return 0;
  const std::size_t bytes = sizeof(std::uint32_t) * static_cast<std::size_t>(keys);
  for (const int lists : {2, 1})
    if (sizeof(OrderState) + static_cast<std::size_t>(lists) * bytes <= device.shared_bytes) return lists;
  return 0;
}

}  // namespace

cudaError_t order_keys(const MaskView& mask, const PlanDevice& device, const ReorderedPlan& plan, bool may_keep_natural,
                       cudaStream_t stream) {
  const auto masks = static_cast<unsigned>(mask.batch * mask.heads);
  if (masks == 0) return cudaSuccess;
  const OrderProblem problem{mask.keys, mask_atoms(mask.queries), may_keep_natural};
  const int lists = shared_lists(mask.keys, device);
  const std::size_t shared_bytes = sizeof(std::uint32_t) * static_cast<std::size_t>(lists * mask.keys);
  const auto kernel = lists > 0 ? key_order_kernel<std::uint32_t> : key_order_kernel<std::uint64_t>;
  if (lists > 0) {
    // The same for every call, as many as there can be: what a call allows holds for those of other threads, too.
    const cudaError_t error = allow_shared_bytes(kernel, device.shared_bytes - sizeof(OrderState));
    if (error != cudaSuccess) return error;
  }
  return launch_kernel(kernel, Grid(masks).launched_early(device.early_launches && mask.queries > 0), kSortThreads,
                       shared_bytes, stream, problem, lists * mask.keys, plan.intervals,
                       static_cast<const std::uint8_t*>(plan.active_atoms), plan.lists, plan.orders, plan.keys,
                       plan.ranges);
}

cudaError_t load_key_order_kernels() {
  return load_kernels(key_order_kernel<std::uint32_t>, key_order_kernel<std::uint64_t>);
}

}  // namespace flashdma_bwd
