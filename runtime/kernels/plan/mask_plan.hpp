// Mask plans on the device: from a mask to bits, classes and lists of active tiles.
//
// A plan has two parts. What depends on the mask alone is built once and may be kept: for the natural layout a 64 x 64
// bit atom and its class for every 64 queries x 64 keys, for the compacted layout the active keys. What also depends on
// the tile and on causality, the ordered list of query tiles of each key tile, is cheap and is built by every call.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

#include "common/host_device.hpp"
#include "common/parameters.hpp"
#include "common/tile_step.hpp"
#include "common/visibility.hpp"

namespace flashdma_bwd {

/// flashdma_bwd_mask_encoding, which says what the elements mean.
enum class MaskEncoding : std::uint8_t { bytes, bits, key_list, intervals, blocks };

/// A mask as given; strides in elements, which are bytes or int32, 0 where broadcast.
struct MaskView {
  const void* data = nullptr;
  MaskEncoding encoding = MaskEncoding::bytes;
  int block_queries = 0;  ///< of a mask of blocks: multiples of kMaskAtom
  int block_keys = 0;
  int batch = 1;
  int heads = 1;
  int columns = 1;  ///< of bits: seqlen_k, or 1; of a key list: its length
  int keys = 0;     ///< seqlen_k
  int queries = 0;  ///< seqlen_q
  std::int64_t stride_batch = 0;
  std::int64_t stride_head = 0;
  std::int64_t stride_row = 0;
  std::int64_t stride_column = 0;  ///< not of bits
  Limits limits;                   ///< what they hide is masked, as by every call that uses the plan, and not read
};

/// Atoms along a sequence: whole 128-wide tiles, so that no tile reads past them.
FLASHDMA_HOST_DEVICE constexpr int mask_atoms(std::int64_t length) {
  return static_cast<int>((length + 127) / 128 * 2);
}

/// Whether the limits leave any pair of an atom.
FLASHDMA_HOST_DEVICE inline bool atom_visible(const Limits& limits, int query_atom, int key_atom) {
  const int query = query_atom * kMaskAtom;
  const int key = key_atom * kMaskAtom;
  return key + kMaskAtom - 1 >= query + limits.low && key <= query + kMaskAtom - 1 + limits.high;
}

/// Whether they leave any pair of the 2 x 2 atoms, of a tile of 128 x 128, in which an atom lies.
FLASHDMA_HOST_DEVICE inline bool atoms_visible(const Limits& limits, int query_atom, int key_atom) {
  const int query = query_atom / 2 * 2;
  const int key = key_atom / 2 * 2;
  return atom_visible(limits, query, key) || atom_visible(limits, query, key + 1) ||
         atom_visible(limits, query + 1, key) || atom_visible(limits, query + 1, key + 1);
}

/// Byte offsets in the memory of a natural plan of `heads` = batch x heads masks.
struct NaturalPlanLayout {
  std::size_t words = 0;
  std::size_t classes = 0;
  std::size_t bytes = 0;
};
constexpr NaturalPlanLayout natural_plan_layout(std::int64_t heads, std::int64_t seqlen_q, std::int64_t seqlen_k) {
  const std::size_t atoms = static_cast<std::size_t>(heads) * static_cast<std::size_t>(mask_atoms(seqlen_q)) *
                            static_cast<std::size_t>(mask_atoms(seqlen_k));
  return {0, atoms * kMaskAtom * 8, (atoms * kMaskAtom * 8 + atoms + 255) / 256 * 256};
}

/// Byte offsets in the memory of a compacted plan.
struct CompactedPlanLayout {
  std::size_t counts = 0;
  std::size_t keys = 0;
  std::size_t bytes = 0;
};
constexpr CompactedPlanLayout compacted_plan_layout(std::int64_t heads, std::int64_t seqlen_k) {
  const std::size_t counts = (static_cast<std::size_t>(heads) * 4 + 255) / 256 * 256;
  return {0, counts, (counts + static_cast<std::size_t>(heads * seqlen_k) * 4 + 255) / 256 * 256};
}

/// Bytes of key lists as bits, `heads` = batch x heads rows of whole words.
constexpr std::size_t key_list_bits_bytes(std::int64_t heads, std::int64_t seqlen_k) {
  return (static_cast<std::size_t>(heads * mask_atoms(seqlen_k)) * 8 + 255) / 256 * 256;
}

/// Makes bits of key lists, in memory that must stay until the plan is built, and sets `mask` to them.
cudaError_t mark_keys(MaskView& mask, std::uint64_t* bits, cudaStream_t stream);

/// Builds words and classes of the natural layout. No mask of these three is one of key lists.
cudaError_t pack_mask(const MaskView& mask, std::uint64_t* words, std::uint8_t* classes, cudaStream_t stream);

/// Builds the ascending active keys of each (batch, head) of a mask with one row.
cudaError_t compact_mask(const MaskView& mask, std::int32_t* counts, std::int32_t* keys, cudaStream_t stream);

/// What the passes over a mask may use of the GPU.
struct PlanDevice {
  std::size_t shared_bytes = 0;  ///< of a CTA, at most
  bool early_launches = false;   ///< kernels may be launched before their predecessors are done, see launch_order.cuh
  /// Plans of whose masks together the limits leave fewer pairs, in whole tiles, are not probed (own_order_proof.hpp):
  /// it takes 3 to 6 us whatever comes of it, and saves 40 us and more where it proves something.
  std::int64_t least_probed_pairs = 200'000'000;
};

/// Enqueues what may run beside the kernel that orders the keys, one CTA a mask.
using BesideOrder = std::function<cudaError_t()>;

/// Builds the reordered layout in `memory`. `may_keep_natural`: a mask whose keys' own order promises no more tiles
/// keeps it, which the mask's KeyOrder says. `beside_order`: what else there is to do meanwhile, in the same stream, as
/// a kernel of the chain that lets its successor launch; nothing if empty.
cudaError_t reorder_mask(const MaskView& mask, const PlanDevice& device, bool may_keep_natural, std::byte* memory,
                         cudaStream_t stream, const BesideOrder& beside_order = {});

/// Copies the keys of a reordered plan to [batch][mask head][seqlen_k], those past the end of a packed sequence as
/// kPastEnd. parameters.list_heads are the mask's.
cudaError_t clip_keys(const BackwardParameters& parameters, const std::int32_t* keys, std::int32_t* clipped,
                      cudaStream_t stream);

/// Builds parameters.list_* (whose pointers are const there; the memory is the caller's workspace) for tiles of block_m
/// x block_n. Ranks are built where list_ranks is not nullptr.
cudaError_t build_tile_lists(const BackwardParameters& parameters, int block_m, int block_n, cudaStream_t stream);

/// Loads these kernels into the current context, which lazy loading would otherwise do at their first launch.
cudaError_t load_plan_kernels();
cudaError_t load_key_list_kernels();
cudaError_t load_tile_list_kernels();

}  // namespace flashdma_bwd
