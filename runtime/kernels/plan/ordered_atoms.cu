// The third pass of a reordered plan: the bits and classes of the atoms of the new order, gathered key by key, but of
// masks whose atoms the first pass has written.
#include <algorithm>

#include "common/launch_kernel.hpp"
#include "common/launch_order.cuh"
#include "common/load_kernels.hpp"
#include "plan/bit_matrix.cuh"
#include "plan/own_order_proof.cuh"
#include "plan/reordered_plan.hpp"
#include "plan/write_atom.cuh"

namespace flashdma_bwd {
namespace {

constexpr int kOrderedAtomWarps = 8;

/// Warps that fill a GPU; with more work each takes several pairs of query atoms.
constexpr std::int64_t kEnoughWarps = 16384;
constexpr std::int64_t kMostPairs = 16;

/// One warp takes a key atom's pairs with up to `pairs_of_warp` times two query atoms.
__global__ void __launch_bounds__(kOrderedAtomWarps * 32)
    ordered_atoms_kernel(int masks, int queries, int seqlen_k, int pairs_of_warp, OwnOrderProof proof,
                         ReorderedPlan plan) {
  wait_for_predecessor();
  const int query_atoms = mask_atoms(queries);
  const int key_atoms = mask_atoms(seqlen_k);
  const int pairs = query_atoms / 2;
  const int parts = (pairs + pairs_of_warp - 1) / pairs_of_warp;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t warp = std::int64_t{blockIdx.x} * kOrderedAtomWarps + threadIdx.x / 32;
  const int first_pair = static_cast<int>(warp % parts) * pairs_of_warp;
  const std::int64_t rest = warp / parts;
  const int key_atom = static_cast<int>(rest % key_atoms);
  const int mask_index = static_cast<int>(rest / key_atoms);
  if (mask_index >= masks) return;
  const std::int64_t head_atom = std::int64_t{mask_index} * key_atoms;
  // A tile of two key atoms and two query atoms may read the bits of all four where one of them is active: the other
  // key atom's interval counts, too.
  const KeyAtomRange& own = plan.ranges[head_atom + key_atom];
  const KeyAtomRange& other = plan.ranges[head_atom + (key_atom ^ 1)];
  const int begin = min(own.query_begin, other.query_begin);
  const int end = max(own.query_end, other.query_end);
  const int count = plan.orders[mask_index].keys;
  // The first pass has written the atoms then.
  if (holds(proof, least_tiles_of_lane(proof, mask_index, lane))) return;

  // The lane's keys. Outside of a key's interval the first pass may have left its bits unread.
  const uint4* bits[2] = {nullptr, nullptr};
  int key_begin[2] = {0, 0};
  int key_end[2] = {0, 0};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int slot = key_atom * kMaskAtom + BitRows::row(lane, half);
    if (slot >= count || first_pair * 2 >= end || (first_pair + pairs_of_warp) * 2 <= begin) continue;
    const std::int64_t first = std::int64_t{mask_index} * seqlen_k;
    const int key = plan.keys[first + slot];
    key_begin[half] = query_atoms - plan.intervals.from_end[first + key];
    key_end[half] = plan.intervals.ends[first + key];
    bits[half] = reinterpret_cast<const uint4*>(plan.key_rows) + (head_atom + key / kMaskAtom) * pairs * kMaskAtom +
                 key % kMaskAtom;
  }
  const int keys_inside = count - key_atom * kMaskAtom;
  for (int pair = first_pair; pair < min(first_pair + pairs_of_warp, pairs); ++pair) {
    const std::int64_t atom = (head_atom + key_atom) * query_atoms + pair * 2;
    if (pair * 2 + 2 <= begin || pair * 2 >= end) {
      if (lane < 2) plan.classes[atom + lane] = static_cast<std::uint8_t>(MaskClass::empty);
      continue;
    }
    BitRows rows[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (pair * 2 + 2 <= key_begin[half] || pair * 2 >= key_end[half]) continue;
      const uint4 both = bits[half][std::int64_t{pair} * kMaskAtom];
      rows[0].low[half] = both.x;
      rows[0].high[half] = both.y;
      rows[1].low[half] = both.z;
      rows[1].high[half] = both.w;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      transpose_bits(rows[i], lane);
      write_atom(rows[i], (pair * 2 + i) * kMaskAtom, queries, keys_inside, plan.words + (atom + i) * kMaskAtom,
                 plan.classes + atom + i, lane);
    }
  }
}

}  // namespace

cudaError_t pack_ordered_atoms(const MaskView& mask, const PlanDevice& device, const OwnOrderProof& proof,
                               const ReorderedPlan& plan, cudaStream_t stream) {
  const int masks = mask.batch * mask.heads;
  const std::int64_t pairs = query_atom_pairs(mask.queries);
  const std::int64_t key_atoms = std::int64_t{masks} * mask_atoms(mask.keys);
  if (pairs * key_atoms == 0) return cudaSuccess;
  const std::int64_t pairs_of_warp = std::clamp<std::int64_t>(pairs * key_atoms / kEnoughWarps, 1, kMostPairs);
  const std::int64_t warps = (pairs + pairs_of_warp - 1) / pairs_of_warp * key_atoms;
  const auto ctas = static_cast<unsigned>((warps + kOrderedAtomWarps - 1) / kOrderedAtomWarps);
  return launch_kernel(ordered_atoms_kernel, Grid(ctas).launched_early(device.early_launches), kOrderedAtomWarps * 32,
                       0, stream, masks, mask.queries, mask.keys, static_cast<int>(pairs_of_warp), proof, plan);
}

cudaError_t load_ordered_atom_kernels() {
  return load_kernels(ordered_atoms_kernel);
}

}  // namespace flashdma_bwd
