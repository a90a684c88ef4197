// A mask plan whose keys lie in an order of its own, so that keys with alike activity share a tile.
//
// Three passes on the stream, behind what prepares them (prepare_keys.cu), without a word to the host. The first reads
// the mask and writes each key's queries as bits, and the interval of query atoms in which the key is active. The
// second orders the keys of each mask. The third gathers the bits of every atom of the new order, as the natural layout
// has them, and classifies it. Where the first and last queries of a long mask prove that its keys keep their own order
// (own_order_proof.hpp), the first pass writes atoms of that order, and the third gathers none.
#pragma once

#include "plan/mask_plan.hpp"
#include "plan/own_order_proof.hpp"

namespace flashdma_bwd {

/// Two query atoms: what a warp of the first and of the third pass takes of a key atom.
constexpr std::int64_t query_atom_pairs(std::int64_t seqlen_q) {
  return mask_atoms(seqlen_q) / 2;
}

/// Byte offsets in the memory of a reordered plan of `heads` = batch x heads masks. Parts from `scratch` on are not
/// read any more when the plan is there.
struct ReorderedPlanLayout {
  std::size_t orders = 0;     ///< KeyOrder[heads]
  std::size_t keys = 0;       ///< int32[heads][seqlen_k]: the active keys in the plan's order
  std::size_t ranges = 0;     ///< KeyAtomRange[heads][key atom]
  std::size_t classes = 0;    ///< MaskClass[heads][key atom][query atom]
  std::size_t words = 0;      ///< uint64[heads][key atom][query atom][64 queries]: bit = key
  std::size_t intervals = 0;  ///< int32[2][heads][seqlen_k], see KeyIntervals
  std::size_t scratch = 0;
  std::size_t lists = 0;         ///< room for uint64[heads][2][seqlen_k]: keys with their codes, half sorted. Of 32
                                 ///< bits each, or not used, where shared memory holds one list, or both
  std::size_t active_atoms = 0;  ///< uint8[heads][query atom pair][key atom]: a bit for each of the two
  std::size_t least_tiles = 0;   ///< int32[heads][kMostParts], see OwnOrderProof
  std::size_t key_rows = 0;      ///< uint64[heads][key atom][query atom pair][64 keys][2]: bit = query
  std::size_t bytes = 0;
};
constexpr ReorderedPlanLayout reordered_plan_layout(std::int64_t heads, std::int64_t seqlen_q, std::int64_t seqlen_k) {
  ReorderedPlanLayout layout;
  const auto key_atoms = static_cast<std::size_t>(heads) * static_cast<std::size_t>(mask_atoms(seqlen_k));
  const std::size_t atoms = key_atoms * static_cast<std::size_t>(mask_atoms(seqlen_q));
  const auto keys = static_cast<std::size_t>(heads * seqlen_k);
  const auto take = [&layout](std::size_t bytes) {
    const std::size_t offset = layout.bytes;
    layout.bytes += (bytes + 255) / 256 * 256;
    return offset;
  };
  layout.orders = take(static_cast<std::size_t>(heads) * sizeof(KeyOrder));
  layout.keys = take(keys * 4);
  layout.ranges = take(key_atoms * sizeof(KeyAtomRange));
  layout.classes = take(atoms);
  layout.words = take(atoms * kMaskAtom * 8);
  layout.intervals = take(keys * 8);
  layout.scratch = layout.bytes;
  layout.lists = take(keys * 16);
  layout.active_atoms = take(atoms / 2);
  layout.least_tiles = take(static_cast<std::size_t>(heads * kMostParts) * 4);
  layout.key_rows = take(atoms * kMaskAtom * 8);
  return layout;
}

/// Per key the query atoms [begin, end) between its first and its last active query. Both numbers are 0 for a key that
/// is never active, so that atomicMax makes them.
struct KeyIntervals {
  std::int32_t* from_end = nullptr;  ///< query atoms - begin
  std::int32_t* ends = nullptr;
};

/// The parts of a reordered plan.
struct ReorderedPlan {
  KeyOrder* orders = nullptr;
  std::int32_t* keys = nullptr;
  KeyAtomRange* ranges = nullptr;
  std::uint8_t* classes = nullptr;
  std::uint64_t* words = nullptr;
  KeyIntervals intervals;
  std::uint64_t* lists = nullptr;
  std::uint8_t* active_atoms = nullptr;
  std::int32_t* least_tiles = nullptr;
  std::uint64_t* key_rows = nullptr;
};
inline ReorderedPlan reordered_plan(std::byte* memory, std::int64_t heads, std::int64_t seqlen_q,
                                    std::int64_t seqlen_k) {
  const ReorderedPlanLayout layout = reordered_plan_layout(heads, seqlen_q, seqlen_k);
  ReorderedPlan plan;
  plan.orders = reinterpret_cast<KeyOrder*>(memory + layout.orders);
  plan.keys = reinterpret_cast<std::int32_t*>(memory + layout.keys);
  plan.ranges = reinterpret_cast<KeyAtomRange*>(memory + layout.ranges);
  plan.classes = reinterpret_cast<std::uint8_t*>(memory + layout.classes);
  plan.words = reinterpret_cast<std::uint64_t*>(memory + layout.words);
  plan.intervals.from_end = reinterpret_cast<std::int32_t*>(memory + layout.intervals);
  plan.intervals.ends = plan.intervals.from_end + heads * seqlen_k;
  plan.lists = reinterpret_cast<std::uint64_t*>(memory + layout.lists);
  plan.active_atoms = reinterpret_cast<std::uint8_t*>(memory + layout.active_atoms);
  plan.least_tiles = reinterpret_cast<std::int32_t*>(memory + layout.least_tiles);
  plan.key_rows = reinterpret_cast<std::uint64_t*>(memory + layout.key_rows);
  return plan;
}

/// What the first and last queries of a mask are to prove: nothing where it is not long enough.
OwnOrderProof own_order_proof(const MaskView& mask, const PlanDevice& device, const ReorderedPlan& plan);

/// Clears the keys' intervals, and finds the proof, if there is to be one.
cudaError_t prepare_keys(const MaskView& mask, const OwnOrderProof& proof, const ReorderedPlan& plan,
                         cudaStream_t stream);

/// The first pass.
cudaError_t read_key_rows(const MaskView& mask, const PlanDevice& device, const OwnOrderProof& proof,
                          const ReorderedPlan& plan, cudaStream_t stream);

/// The second. `may_keep_natural`: a mask whose keys' own order promises no more tiles keeps it.
cudaError_t order_keys(const MaskView& mask, const PlanDevice& device, const ReorderedPlan& plan, bool may_keep_natural,
                       cudaStream_t stream);

/// The third.
cudaError_t pack_ordered_atoms(const MaskView& mask, const PlanDevice& device, const OwnOrderProof& proof,
                               const ReorderedPlan& plan, cudaStream_t stream);

cudaError_t load_key_preparations();
cudaError_t load_key_row_kernels();
cudaError_t load_key_order_kernels();
cudaError_t load_ordered_atom_kernels();

}  // namespace flashdma_bwd
