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

/// Warps that fill a GPU some four times; with more work each takes several pairs of query atoms, so that what comes
/// before the first one's bits, two reads one after the other, is waited for less often. Fewer warps with more pairs
/// each are slower (NOTES.md).
constexpr std::int64_t kEnoughWarps = 16384;
constexpr std::int64_t kMostPairs = 16;

/// One warp takes every `parts`-th pair of a key atom with two query atoms: a key is active over an interval, of which
/// all warps get something.
__global__ void __launch_bounds__(kOrderedAtomWarps * 32)
    ordered_atoms_kernel(int masks, int queries, int seqlen_k, int parts, OwnOrderProof proof, ReorderedPlan plan) {
  let_successor_launch();
  const int query_atoms = mask_atoms(queries);
  const int key_atoms = mask_atoms(seqlen_k);
  const int pairs = query_atoms / 2;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t warp = std::int64_t{blockIdx.x} * kOrderedAtomWarps + threadIdx.x / 32;
  const int part = static_cast<int>(warp % parts);
  const std::int64_t rest = warp / parts;
  const int key_atom = static_cast<int>(rest % key_atoms);
  const int mask_index = static_cast<int>(rest / key_atoms);
  if (mask_index >= masks) return;
  // The first pass has written the atoms then. It had waited for the proof when it let the second one launch.
  if (holds(proof, least_tiles_of_lane(proof, mask_index, lane))) {
    if (blockIdx.x == 0) wait_for_predecessor();
    return;
  }
  wait_for_predecessor();
  const std::int64_t head_atom = std::int64_t{mask_index} * key_atoms;
  const std::int64_t head_key = std::int64_t{mask_index} * seqlen_k;
  // The lane's keys, read before it is known how many there are.
  int slots[2];
  int keys[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    slots[half] = key_atom * kMaskAtom + BitRows::row(lane, half);
    keys[half] = slots[half] < seqlen_k ? plan.keys[head_key + slots[half]] : 0;
  }
  // A tile of two key atoms and two query atoms may read the bits of all four where one of them is active: the other
  // key atom's interval counts, too.
  const KeyAtomRange& own = plan.ranges[head_atom + key_atom];
  const KeyAtomRange& other = plan.ranges[head_atom + (key_atom ^ 1)];
  const int begin = min(own.query_begin, other.query_begin);
  const int end = max(own.query_end, other.query_end);
  const int count = plan.orders[mask_index].keys;

  // Outside of a key's interval the first pass may have left its bits unread.
  const uint4* bits[2] = {nullptr, nullptr};
  int key_begin[2] = {0, 0};
  int key_end[2] = {0, 0};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (slots[half] >= count) continue;
    const int key = keys[half];
    key_begin[half] = query_atoms - plan.intervals.from_end[head_key + key];
    key_end[half] = plan.intervals.ends[head_key + key];
    bits[half] = reinterpret_cast<const uint4*>(plan.key_rows) + (head_atom + key / kMaskAtom) * pairs * kMaskAtom +
                 key % kMaskAtom;
  }
  const auto load = [&](uint4(&both)[2], int pair) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      both[half] = {};
      if (pair * 2 + 2 > key_begin[half] && pair * 2 < key_end[half])
        both[half] = bits[half][std::int64_t{pair} * kMaskAtom];
    }
  };
  const int keys_inside = count - key_atom * kMaskAtom;
  uint4 next[2];
  load(next, part);
  for (int pair = part; pair < pairs; pair += parts) {
    const uint4 both[2] = {next[0], next[1]};
    load(next, pair + parts);  // past all intervals there is nothing to load
    const std::int64_t atom = (head_atom + key_atom) * query_atoms + pair * 2;
    if (pair * 2 + 2 <= begin || pair * 2 >= end) {
      if (lane < 2) plan.classes[atom + lane] = static_cast<std::uint8_t>(MaskClass::empty);
      continue;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      BitRows rows;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        rows.low[half] = i == 0 ? both[half].x : both[half].z;
        rows.high[half] = i == 0 ? both[half].y : both[half].w;
      }
      transpose_bits(rows, lane);
      write_atom(rows, (pair * 2 + i) * kMaskAtom, queries, keys_inside, plan.words + (atom + i) * kMaskAtom,
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
  const std::int64_t parts = (pairs + pairs_of_warp - 1) / pairs_of_warp;
  const auto ctas = static_cast<unsigned>((parts * key_atoms + kOrderedAtomWarps - 1) / kOrderedAtomWarps);
  return launch_kernel(ordered_atoms_kernel, Grid(ctas).launched_early(device.early_launches), kOrderedAtomWarps * 32,
                       0, stream, masks, mask.queries, mask.keys, static_cast<int>(parts), proof, plan);
}

cudaError_t load_ordered_atom_kernels() {
  return load_kernels(ordered_atoms_kernel);
}

}  // namespace flashdma_bwd
