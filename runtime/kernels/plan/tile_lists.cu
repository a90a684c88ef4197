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

/// A key tile of one (batch, list head), ready to be asked about query tiles.
class KeyTileClasses {
 public:
  __device__ KeyTileClasses(const BackwardParameters& parameters, int batch, int list_head, int block_m, int block_n)
      : p_(parameters),
        block_m_(block_m),
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
    first_key_ = key_tile * block_n_;
    const int valid = min(block_n_, keys_ - first_key_);
    if (valid <= 0) {
      seen_ = whole_ = {0, 0};
      return;
    }
    last_atom_ = (first_key_ + valid - 1) / kMaskAtom;
    int first = active_ != nullptr ? active_[first_key_] : first_key_;
    int last = active_ != nullptr ? active_[first_key_ + valid - 1] : first_key_ + valid - 1;
    if (ranges_ != nullptr) {
      first = kUnlimited;
      last = -1;
      for (int atom = first_key_ / kMaskAtom; atom <= last_atom_; ++atom) {
        first = min(first, ranges_[atom].first_position);
        last = max(last, ranges_[atom].last_position);
      }
    }
    seen_ = visible_query_tiles(limits_, sequence_.length_q, first, last, block_m_);
    const bool some_missing = valid < block_n_ || last >= sequence_.length_k;
    whole_ = some_missing        ? TileRange{0, 0}
             : p_.limits_in_mask ? seen_
                                 : whole_query_tiles(limits_, sequence_.length_q, first, last, block_m_);
  }

  __device__ MaskClass classify(int query_tile) const {
    if (query_tile < seen_.begin || query_tile >= seen_.end) return MaskClass::empty;
    bool full = query_tile >= whole_.begin && query_tile < whole_.end;
    if (classes_ == nullptr) return full ? MaskClass::full : MaskClass::partial;
    bool any = false;
    for (int key = first_key_ / kMaskAtom; key <= last_atom_; ++key)
      for (int query = query_tile * block_m_ / kMaskAtom; query <= ((query_tile + 1) * block_m_ - 1) / kMaskAtom;
           ++query) {
        const auto atom = static_cast<MaskClass>(classes_[std::int64_t{key} * p_.query_atoms + query]);
        any |= atom != MaskClass::empty;
        full &= atom == MaskClass::full;
      }
    return !any ? MaskClass::empty : full ? MaskClass::full : MaskClass::partial;
  }

 private:
  const BackwardParameters& p_;
  int block_m_;
  int block_n_;
  int batch_;
  SequenceRows sequence_;
  Limits limits_;
  const std::uint8_t* classes_ = nullptr;
  const std::int32_t* active_ = nullptr;
  const KeyAtomRange* ranges_ = nullptr;  ///< reordered keys: the positions of each atom
  int keys_ = 0;
  int first_key_ = 0;
  /// That holds keys of the tile: a plan has atoms for tiles of 128 keys, others may lie past them.
  int last_atom_ = 0;
  TileRange seen_;
  TileRange whole_;
};

/// One warp a list: 32 query tiles are classified at a time, kInFlight times, and the active ones appended in order.
/// The preprocess kernel, whose first block alone reads lists, runs beside this one.
__global__ void __launch_bounds__(kListWarps * 32)
    tile_list_kernel(const __grid_constant__ BackwardParameters p, int block_m, int block_n, std::uint32_t* entries,
                     std::int32_t* counts) {
  let_successor_launch();
  const std::int64_t list = std::int64_t{blockIdx.x} * kListWarps + threadIdx.x / 32;
  if (list >= std::int64_t{p.batch} * p.list_heads * p.key_tiles) return;
  const int key_tile = static_cast<int>(list % p.key_tiles);
  const int head = static_cast<int>(list / p.key_tiles);
  KeyTileClasses tile(p, head / p.list_heads, head % p.list_heads, block_m, block_n);
  tile.select(key_tile);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int count = 0;
  for (int base = 0; base < p.query_tiles; base += 32 * kInFlight) {
    MaskClass kinds[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int query_tile = base + i * 32 + lane;
      kinds[i] = query_tile < p.query_tiles ? tile.classify(query_tile) : MaskClass::empty;
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const unsigned active = __ballot_sync(0xffffffffu, kinds[i] != MaskClass::empty);
      if (kinds[i] != MaskClass::empty)
        entries[list * p.query_tiles + count + __popc(active & ((1u << lane) - 1))] =
            static_cast<std::uint32_t>(base + i * 32 + lane) << 1 | (kinds[i] == MaskClass::partial ? 1u : 0u);
      count += __popc(active);
    }
  }
  if (lane == 0) counts[list] = count;
}

/// One thread a query tile walks the key tiles in order.
__global__ void __launch_bounds__(kRankThreads)
    tile_rank_kernel(const __grid_constant__ BackwardParameters p, int block_m, int block_n, std::int32_t* ranks) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kRankThreads + threadIdx.x;
  const int query_tile = static_cast<int>(index % p.query_tiles);
  const std::int64_t head = index / p.query_tiles;
  if (head >= std::int64_t{p.batch} * p.list_heads) return;
  KeyTileClasses tile(p, static_cast<int>(head) / p.list_heads, static_cast<int>(head) % p.list_heads, block_m,
                      block_n);
  int rank = 0;
  for (int key_tile = 0; key_tile < p.key_tiles; ++key_tile) {
    tile.select(key_tile);
    ranks[(head * p.key_tiles + key_tile) * p.query_tiles + query_tile] = rank;
    if (tile.classify(query_tile) != MaskClass::empty) ++rank;
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

}  // namespace

cudaError_t clip_keys(const BackwardParameters& parameters, const std::int32_t* keys, std::int32_t* clipped,
                      cudaStream_t stream) {
  const std::int64_t slots = std::int64_t{parameters.batch} * parameters.list_heads * parameters.seqlen_k;
  return launch_kernel(clip_keys_kernel, static_cast<unsigned>((slots + kClipThreads - 1) / kClipThreads), kClipThreads,
                       0, stream, parameters, keys, clipped);
}

cudaError_t build_tile_lists(const BackwardParameters& parameters, int block_m, int block_n, cudaStream_t stream) {
  const std::int64_t lists = std::int64_t{parameters.batch} * parameters.list_heads * parameters.key_tiles;
  const cudaError_t error =
      launch_kernel(tile_list_kernel, static_cast<unsigned>((lists + kListWarps - 1) / kListWarps), kListWarps * 32, 0,
                    stream, parameters, block_m, block_n, const_cast<std::uint32_t*>(parameters.list_entries),
                    const_cast<std::int32_t*>(parameters.list_counts));
  if (error != cudaSuccess || parameters.list_ranks == nullptr) return error;
  const std::int64_t threads = std::int64_t{parameters.batch} * parameters.list_heads * parameters.query_tiles;
  return launch_kernel(tile_rank_kernel, static_cast<unsigned>((threads + kRankThreads - 1) / kRankThreads),
                       kRankThreads, 0, stream, parameters, block_m, block_n,
                       const_cast<std::int32_t*>(parameters.list_ranks));
}

cudaError_t load_tile_list_kernels() {
  return load_kernels(tile_list_kernel, tile_rank_kernel, clip_keys_kernel);
}

}  // namespace flashdma_bwd
