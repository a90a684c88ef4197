// The third pass of a reordered plan: the bits and classes of the atoms of the new order, gathered key by key.
#include "common/launch_kernel.hpp"
#include "common/load_kernels.hpp"
#include "plan/bit_matrix.cuh"
#include "plan/reordered_plan.hpp"

namespace flashdma_bwd {
namespace {

constexpr int kOrderedAtomWarps = 8;

/// One warp takes a key atom's pairs with two query atoms.
__global__ void __launch_bounds__(kOrderedAtomWarps * 32)
    ordered_atoms_kernel(int masks, int queries, int seqlen_k, KeyIntervals intervals, const KeyOrder* orders,
                         const std::int32_t* keys, const KeyAtomRange* ranges, const uint4* key_rows,
                         std::uint8_t* classes, std::uint64_t* words) {
  const int query_atoms = mask_atoms(queries);
  const int key_atoms = mask_atoms(seqlen_k);
  const int pairs = query_atoms / 2;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t warp = std::int64_t{blockIdx.x} * kOrderedAtomWarps + threadIdx.x / 32;
  const int pair = static_cast<int>(warp % pairs);
  const std::int64_t rest = warp / pairs;
  const int key_atom = static_cast<int>(rest % key_atoms);
  const int mask_index = static_cast<int>(rest / key_atoms);
  if (mask_index >= masks) return;
  const std::int64_t head_atom = std::int64_t{mask_index} * key_atoms;
  const std::int64_t atom = (head_atom + key_atom) * query_atoms + pair * 2;

  // A tile of two key atoms and two query atoms may read the bits of all four where one of them is active: the other
  // key atom's interval counts, too.
  const KeyAtomRange& own = ranges[head_atom + key_atom];
  const KeyAtomRange& other = ranges[head_atom + (key_atom ^ 1)];
  if (pair * 2 + 2 <= min(own.query_begin, other.query_begin) || pair * 2 >= max(own.query_end, other.query_end)) {
    if (lane < 2) classes[atom + lane] = static_cast<std::uint8_t>(MaskClass::empty);
    return;
  }

  const KeyOrder& order = orders[mask_index];
  const std::int64_t first = std::int64_t{mask_index} * seqlen_k;
  BitRows rows[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int slot = key_atom * kMaskAtom + BitRows::row(lane, half);
    if (slot >= order.keys) continue;
    const int key = keys[first + slot];
    // Outside of a key's interval the first pass may have left its bits unread.
    const int begin = query_atoms - intervals.from_end[first + key];
    if (pair * 2 + 2 <= begin || pair * 2 >= intervals.ends[first + key]) continue;
    const uint4 bits = __ldg(key_rows + ((head_atom + key / kMaskAtom) * pairs + pair) * kMaskAtom + key % kMaskAtom);
    rows[0].low[half] = bits.x;
    rows[0].high[half] = bits.y;
    rows[1].low[half] = bits.z;
    rows[1].high[half] = bits.w;
  }
  const int keys_inside = min(max(order.keys - key_atom * kMaskAtom, 0), kMaskAtom);
  const std::uint64_t inside = keys_inside == kMaskAtom ? ~std::uint64_t{0} : (std::uint64_t{1} << keys_inside) - 1;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    transpose_bits(rows[i], lane);
    bool any = false;
    bool all = true;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = BitRows::row(lane, half);
      const std::uint64_t word = rows[i].word(half);
      words[(atom + i) * kMaskAtom + row] = word;
      any |= word != 0;
      all &= (pair * 2 + i) * kMaskAtom + row >= queries || word == inside;
    }
    any = __any_sync(0xffffffffu, any);
    all = __all_sync(0xffffffffu, all);
    if (lane == 0)
      classes[atom + i] = static_cast<std::uint8_t>(!any  ? MaskClass::empty
                                                    : all ? MaskClass::full
                                                          : MaskClass::partial);
  }
}

}  // namespace

cudaError_t pack_ordered_atoms(const MaskView& mask, const ReorderedPlan& plan, cudaStream_t stream) {
  const int masks = mask.batch * mask.heads;
  const std::int64_t warps = std::int64_t{masks} * query_atom_pairs(mask.queries) * mask_atoms(mask.keys);
  if (warps == 0) return cudaSuccess;
  return launch_kernel(ordered_atoms_kernel, static_cast<unsigned>((warps + kOrderedAtomWarps - 1) / kOrderedAtomWarps),
                       kOrderedAtomWarps * 32, 0, stream, masks, mask.queries, mask.keys, plan.intervals,
                       static_cast<const KeyOrder*>(plan.orders), static_cast<const std::int32_t*>(plan.keys),
                       static_cast<const KeyAtomRange*>(plan.ranges), reinterpret_cast<const uint4*>(plan.key_rows),
                       plan.classes, plan.words);
}

cudaError_t load_ordered_atom_kernels() {
  return load_kernels(ordered_atoms_kernel);
}

}  // namespace flashdma_bwd
