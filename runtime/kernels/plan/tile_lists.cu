// The ordered list of active query tiles of each key tile, and in deterministic mode the rank of each key tile in a
// query tile.
#include "common/launch_kernel.hpp"
#include "common/launch_order.cuh"
#include "common/load_kernels.hpp"
#include "common/visibility.hpp"
#include "plan/mask_plan.hpp"

namespace flashdma_bwd {
namespace {

constexpr int kListWarps = 4;
constexpr int kInFlight = 4;
constexpr int kRankThreads = 128;
constexpr int kClipThreads = 256;

/// A key tile of one (batch, list head), ready to be asked about query tiles of kBlockM: known, so that divisions by it
/// are shifts.
template <int kBlockM>
class KeyTileClasses {
 public:
  __device__ KeyTileClasses(const BackwardParameters& parameters, int batch, int list_head, int block_n)
      : p_(parameters),
        block_n_(block_n),
        batch_(batch),
        sequence_(sequence_of(parameters, batch)),
        limits_(limits_of(parameters, sequence_)) {
    // The list heads are the mask's heads; without a mask there is one list for all heads.
    if (p_.mask_classes != nullptr)
      classes_ = p_.mask_classes + batch * p_.mask_batch_stride + list_head * p_.mask_head_stride;
    const KeyList list = keys_of(p_, batch, list_head, sequence_);
    active_ = list.keys;
    keys_ = list.count;
    if (p_.key_ranges != nullptr && active_ != nullptr)
      ranges_ = p_.key_ranges + std::int64_t{batch * p_.compact_batch_stride + list_head} * mask_atoms(p_.seqlen_k);
  }

  __device__ void select(int key_tile) {
    const int first_key = key_tile * block_n_;
    first_atom_ = first_key / kMaskAtom;
    last_atom_ = (min(first_key + block_n_, keys_) - 1) / kMaskAtom;
    const int keys = has_halves() ? block_n_ / 2 : block_n_;
    const Positions positions[] = {positions_of(first_key, keys), positions_of(first_key + keys, keys)};
    halves_[0] = part_of(positions[0]);
    halves_[1] = has_halves() ? part_of(positions[1]) : halves_[0];
  }

  /// The classes of the atoms that the tile touches with a query tile, two by two at most.
  struct Atoms {
    std::uint8_t of[2][2] = {};  ///< [key atom][query atom]
  };
  /// Loads without branches between them, so that those of several query tiles are under way at once.
  __device__ Atoms atoms_of(int query_tile) const {
    Atoms atoms;
    const bool visible = classes_ != nullptr && query_tile < p_.query_tiles && active_by_limits(query_tile) != 0;
#pragma unroll
    for (int key = 0; key < 2; ++key)
#pragma unroll
      for (int query = 0; query < 2; ++query) {
        const std::int64_t atom = std::int64_t{first_atom_ + key} * p_.query_atoms + first_query(query_tile) + query;
        if (visible && touches(query_tile, key, query)) atoms.of[key][query] = classes_[atom];
      }
    return atoms;
  }

  /// The step that a walk of the tile takes with a query tile, if it is active.
  __device__ TileStep step_of(int query_tile, const Atoms& atoms) const {
    // Of either half a bit: whether some of its pairs are active, and whether all are.
    unsigned some = query_tile < p_.query_tiles ? active_by_limits(query_tile) : 0;
    unsigned all = (in(halves_[0].whole, query_tile) ? 1u : 0u) | (in(halves_[1].whole, query_tile) ? 2u : 0u);
    if (classes_ != nullptr) {
      unsigned in_mask = 0;
#pragma unroll
      for (int key = 0; key < 2; ++key)
#pragma unroll
        for (int query = 0; query < 2; ++query) {
          if (!touches(query_tile, key, query)) continue;
          const unsigned of_half = has_halves() ? 1u << key : 3u;
          const auto atom = static_cast<MaskClass>(atoms.of[key][query]);
          if (atom != MaskClass::empty) in_mask |= of_half;
          if (atom != MaskClass::full) all &= ~of_half;
        }
      some &= in_mask;
    }
    const auto half = [&](unsigned bit) {
      const MaskClass pairs = (some & bit) == 0  ? MaskClass::empty
                              : (all & bit) == 0 ? MaskClass::partial
                                                 : MaskClass::full;
      return facts_of_half(pairs, p_.mask_words != nullptr);
    };
    return {query_tile, facts_of_halves(half(1), half(2))};
  }
  __device__ TileStep step_of(int query_tile) const {
    return step_of(query_tile, atoms_of(query_tile));
  }

 private:
  /// The keys of a part of a tile: the first and the last position (-1: there are none), and how many are missing.
  struct Positions {
    int first = 0;
    int last = -1;
    int missing = 0;
  };
  /// The query tiles that see some of these keys, and those that see all.
  struct Part {
    TileRange seen;
    TileRange whole;
  };

  __device__ bool has_halves() const {
    return block_n_ == kKeysOfTwoHalves;
  }

  __device__ int first_query(int query_tile) const {
    return query_tile * kBlockM / kMaskAtom;
  }
  __device__ bool touches(int query_tile, int key, int query) const {
    return first_atom_ + key <= last_atom_ &&
           first_query(query_tile) + query <= ((query_tile + 1) * kBlockM - 1) / kMaskAtom;
  }
  static __device__ bool in(const TileRange& range, int query_tile) {
    return query_tile >= range.begin && query_tile < range.end;
  }
  /// A bit for each half of the keys that limits leave some pairs.
  __device__ unsigned active_by_limits(int query_tile) const {
    return (in(halves_[0].seen, query_tile) ? 1u : 0u) | (in(halves_[1].seen, query_tile) ? 2u : 0u);
  }

  /// Of neighbouring slots, whole atoms where there are ranges.
  __device__ Positions positions_of(int first_key, int keys) const {
    const int valid = min(keys, keys_ - first_key);
    if (valid <= 0) return {};
    const int last_key = first_key + valid - 1;
    Positions positions{first_key, last_key, keys - valid};
    if (ranges_ != nullptr) {
      const KeyAtomRange& first = ranges_[first_key / kMaskAtom];
      const KeyAtomRange& last = ranges_[last_key / kMaskAtom];
      positions.first = min(first.first_position, last.first_position);
      positions.last = max(first.last_position, last.last_position);
    } else if (active_ != nullptr) {
      positions.first = active_[first_key];
      positions.last = active_[last_key];
    }
    return positions;
  }

  __device__ Part part_of(const Positions& positions) const {
    Part part;
    if (positions.last < 0) return part;
    part.seen = visible_query_tiles(limits_, sequence_.length_q, positions.first, positions.last, kBlockM);
    const bool some_missing = positions.missing > 0 || positions.last >= sequence_.length_k;
    part.whole = some_missing ? TileRange{0, 0}
                 : p_.limits_in_mask
                     ? part.seen
                     : whole_query_tiles(limits_, sequence_.length_q, positions.first, positions.last, kBlockM);
    return part;
  }

  const BackwardParameters& p_;
  int block_n_;
  int batch_;
  SequenceRows sequence_;
  Limits limits_;
  const std::uint8_t* classes_ = nullptr;
  const std::int32_t* active_ = nullptr;
  const KeyAtomRange* ranges_ = nullptr;  ///< reordered keys: the positions of each atom
  int keys_ = 0;
  int first_atom_ = 0;
  /// That holds keys of the tile: a plan has atoms for tiles of 128 keys, others may lie past them.
  int last_atom_ = 0;
  Part halves_[2];  ///< of a tile that is not split, twice
};

/// One warp a list: 32 query tiles are classified at a time, kInFlight times, and the active ones appended in order.
/// The preprocess kernel, whose first block alone reads lists, runs beside this one.
template <int kBlockM>
__global__ void __launch_bounds__(kListWarps * 32)
    tile_list_kernel(const __grid_constant__ BackwardParameters p, int block_n, std::uint32_t* entries,
                     std::int32_t* counts, std::int32_t* times) {
  let_successor_launch();
  const std::int64_t list = std::int64_t{blockIdx.x} * kListWarps + threadIdx.x / 32;
  if (list >= std::int64_t{p.batch} * p.list_heads * p.key_tiles) return;
  const int key_tile = static_cast<int>(list % p.key_tiles);
  const int head = static_cast<int>(list / p.key_tiles);
  KeyTileClasses<kBlockM> tile(p, head / p.list_heads, head % p.list_heads, block_n);
  tile.select(key_tile);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int count = 0;
  int time = 0;  // of the lane's
  for (int base = 0; base < p.query_tiles; base += 32 * kInFlight) {
    typename KeyTileClasses<kBlockM>::Atoms atoms[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) atoms[i] = tile.atoms_of(base + i * 32 + lane);
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const TileStep step = tile.step_of(base + i * 32 + lane, atoms[i]);
      const bool listed = step.is_active();
      const unsigned active = __ballot_sync(0xffffffffu, listed);
      if (listed) entries[list * p.query_tiles + count + __popc(active & ((1u << lane) - 1))] = list_entry(step);
      if (listed) time += time_of_step(step, p.leaves_out_halves);
      count += __popc(active);
    }
  }
  time = __reduce_add_sync(0xffffffffu, time);
  if (lane != 0) return;
  counts[list] = count;
  if (times != nullptr) times[list] = time;
}

/// One thread a query tile walks the key tiles in order.
template <int kBlockM>
__global__ void __launch_bounds__(kRankThreads)
    tile_rank_kernel(const __grid_constant__ BackwardParameters p, int block_n, std::int32_t* ranks) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kRankThreads + threadIdx.x;
  const int query_tile = static_cast<int>(index % p.query_tiles);
  const std::int64_t head = index / p.query_tiles;
  if (head >= std::int64_t{p.batch} * p.list_heads) return;
  KeyTileClasses<kBlockM> tile(p, static_cast<int>(head) / p.list_heads, static_cast<int>(head) % p.list_heads,
                               block_n);
  int rank = 0;
  for (int key_tile = 0; key_tile < p.key_tiles; ++key_tile) {
    tile.select(key_tile);
    ranks[(head * p.key_tiles + key_tile) * p.query_tiles + query_tile] = rank;
    if (tile.step_of(query_tile).is_active()) ++rank;
  }
}

/// The keys of a mask's order for one sequence of a packed batch: those past its end lie at kPastEnd.
__global__ void __launch_bounds__(kClipThreads)
    clip_keys_kernel(const __grid_constant__ BackwardParameters p, const std::int32_t* keys, std::int32_t* clipped) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kClipThreads + threadIdx.x;
  const std::int64_t head = index / p.seqlen_k;
  const int slot = static_cast<int>(index % p.seqlen_k);
  const int batch = static_cast<int>(head / p.list_heads);
  if (batch >= p.batch) return;
  const int mask = batch * p.compact_batch_stride + static_cast<int>(head % p.list_heads);
  if (slot >= p.key_orders[mask].keys) return;
  const int key = keys[std::int64_t{mask} * p.seqlen_k + slot];
  clipped[index] = key < sequence_of(p, batch).length_k ? key : kPastEnd;
}

template <int kBlockM>
cudaError_t build_lists_of(const BackwardParameters& parameters, int block_n, cudaStream_t stream) {
  const std::int64_t lists = std::int64_t{parameters.batch} * parameters.list_heads * parameters.key_tiles;
  const cudaError_t error = launch_kernel(
      tile_list_kernel<kBlockM>, static_cast<unsigned>((lists + kListWarps - 1) / kListWarps), kListWarps * 32, 0,
      stream, parameters, block_n, const_cast<std::uint32_t*>(parameters.list_entries),
      const_cast<std::int32_t*>(parameters.list_counts), const_cast<std::int32_t*>(parameters.list_times));
  if (error != cudaSuccess || parameters.list_ranks == nullptr) return error;
  const std::int64_t threads = std::int64_t{parameters.batch} * parameters.list_heads * parameters.query_tiles;
  return launch_kernel(tile_rank_kernel<kBlockM>, static_cast<unsigned>((threads + kRankThreads - 1) / kRankThreads),
                       kRankThreads, 0, stream, parameters, block_n, const_cast<std::int32_t*>(parameters.list_ranks));
}

}  // namespace

cudaError_t clip_keys(const BackwardParameters& parameters, const std::int32_t* keys, std::int32_t* clipped,
                      cudaStream_t stream) {
  const std::int64_t slots = std::int64_t{parameters.batch} * parameters.list_heads * parameters.seqlen_k;
  return launch_kernel(clip_keys_kernel, static_cast<unsigned>((slots + kClipThreads - 1) / kClipThreads), kClipThreads,
                       0, stream, parameters, keys, clipped);
}

cudaError_t build_tile_lists(const BackwardParameters& parameters, int block_m, int block_n, cudaStream_t stream) {
  switch (block_m) {
    case 32:
      return build_lists_of<32>(parameters, block_n, stream);
    case 64:
      return build_lists_of<64>(parameters, block_n, stream);
    case 128:
      return build_lists_of<128>(parameters, block_n, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t load_tile_list_kernels() {
  return load_kernels(tile_list_kernel<32>, tile_list_kernel<64>, tile_list_kernel<128>, tile_rank_kernel<32>,
                      tile_rank_kernel<64>, tile_rank_kernel<128>, clip_keys_kernel);
}

}  // namespace flashdma_bwd
