// The first pass of a reordered plan: reads a mask, and writes for each key the bits of its queries and the
// interval of query atoms in which it is active. Of a mask whose keys are known to keep their own order it writes atoms
// instead of keys' bits.
#include <array>

#include "common/launch_kernel.hpp"
#include "common/launch_order.cuh"
#include "common/load_kernels.hpp"
#include "plan/mask_atoms.cuh"
#include "plan/own_order_proof.cuh"
#include "plan/reordered_plan.hpp"
#include "plan/write_atom.cuh"

namespace flashdma_bwd {
namespace {

constexpr int kKeyRowWarps = 8;

/// One warp takes a key atom's pairs with two query atoms. kProbed: there may be a proof.
template <AtomSource kSource, bool kProbed>
__global__ void __launch_bounds__(kKeyRowWarps * 32, 3)
    key_rows_kernel(MaskView mask, OwnOrderProof proof, ReorderedPlan plan) {
  // A proof is there then before the third pass can begin.
  wait_for_predecessor_of_all();
  const int query_atoms = mask_atoms(mask.queries);
  const int key_atoms = mask_atoms(mask.keys);
  const int pairs = query_atoms / 2;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Neighbouring warps take neighbouring keys, so that a row's bytes are read together.
  const std::int64_t warp = std::int64_t{blockIdx.x} * kKeyRowWarps + threadIdx.x / 32;
  const int key_atom = static_cast<int>(warp % key_atoms);
  const std::int64_t rest = warp / key_atoms;
  const int pair = static_cast<int>(rest % pairs);
  const int mask_index = static_cast<int>(rest / pairs);
  if (mask_index >= mask.batch * mask.heads) return;
  const bool visible[2] = {atom_visible(mask.limits, pair * 2, key_atom),
                           atom_visible(mask.limits, pair * 2 + 1, key_atom)};
  const std::int64_t head_atom = std::int64_t{mask_index} * key_atoms + key_atom;
  const std::int64_t first_atom = head_atom * query_atoms + pair * 2;
  const auto write_own_order = [&](const BitRows& queries, int atom) {
    write_atom(queries, (pair * 2 + atom) * kMaskAtom, mask.queries, mask.keys - key_atom * kMaskAtom,
               plan.words + (first_atom + atom) * kMaskAtom, plan.classes + first_atom + atom, lane);
  };
  const int least_tiles = kProbed ? least_tiles_of_lane(proof, mask_index, lane) : 0;

  unsigned active = 0;
  if (visible[0] || visible[1]) {
    // What others have said of the lane's keys. Where the first and the last queries were probed, and most keys are
    // active in both, nobody has more to say, and a load is less than an atomic operation.
    int known_from_end[2] = {-1, -1};
    int known_end[2] = {-1, -1};
#pragma unroll
    for (int half = 0; kProbed && half < 2; ++half) {
      const int key = min(key_atom * kMaskAtom + BitRows::row(lane, half), mask.keys - 1);
      known_from_end[half] = __ldcg(plan.intervals.from_end + std::int64_t{mask_index} * mask.keys + key);
      known_end[half] = __ldcg(plan.intervals.ends + std::int64_t{mask_index} * mask.keys + key);
    }
    BitRows keys[2];
#pragma unroll
    for (int atom = 0; atom < 2; ++atom) {
      keys[atom] = {};
      if (!visible[atom]) continue;
      keys[atom] = read_atom<kSource>(mask, mask_index, pair * 2 + atom, key_atom, lane);
      if (!kProbed && !kComesByKey<kSource>) transpose_bits(keys[atom], lane);
    }
    const bool own_order = kProbed && holds(proof, least_tiles);
#pragma unroll
    for (int atom = 0; kProbed && atom < 2; ++atom) {
      if (!own_order) {
        if (!kComesByKey<kSource>) transpose_bits(keys[atom], lane);
        continue;
      }
      BitRows queries = keys[atom];
      if (kComesByKey<kSource>) transpose_bits(queries, lane);
      write_own_order(queries, atom);
      if (kComesByKey<kSource>) continue;
      // Of the keys' bits it counts whether there are any, which is less to find than the bits.
      const std::uint64_t active_keys = columns_with_bits(queries);
#pragma unroll
      for (int half = 0; half < 2; ++half) keys[atom].set(half, active_keys >> BitRows::row(lane, half) & 1u);
    }
    bool any[2] = {false, false};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = BitRows::row(lane, half);
      if (!own_order)
        reinterpret_cast<uint4*>(plan.key_rows)[(head_atom * pairs + pair) * kMaskAtom + row] = {
            keys[0].low[half], keys[0].high[half], keys[1].low[half], keys[1].high[half]};
      const bool own[2] = {keys[0].word(half) != 0, keys[1].word(half) != 0};
      any[0] |= own[0];
      any[1] |= own[1];
      if (own[0] || own[1]) {  // the key is inside: bits past the last are 0
        const std::int64_t key = std::int64_t{mask_index} * mask.keys + key_atom * kMaskAtom + row;
        const int from_end = query_atoms - (pair * 2 + (own[0] ? 0 : 1));
        const int end = pair * 2 + (own[1] ? 2 : 1);
        if (from_end > known_from_end[half]) atomicMax(plan.intervals.from_end + key, from_end);
        if (end > known_end[half]) atomicMax(plan.intervals.ends + key, end);
      }
    }
#pragma unroll
    for (int atom = 0; atom < 2; ++atom) active |= __any_sync(0xffffffffu, any[atom]) ? 1u << atom : 0u;
  } else if (kProbed && holds(proof, least_tiles)) {
    // Its words are read only with those of an atom of the same tile.
    if (atoms_visible(mask.limits, pair * 2, key_atom)) {
      write_own_order({}, 0);
      write_own_order({}, 1);
    } else if (lane < 2) {
      plan.classes[first_atom + lane] = static_cast<std::uint8_t>(MaskClass::empty);
    }
  }
  if (lane == 0)
    plan.active_atoms[(std::int64_t{mask_index} * pairs + pair) * key_atoms + key_atom] =
        static_cast<std::uint8_t>(active);
}

// In the order of AtomSource.
template <bool kProbed>
constexpr std::array kKeyRowKernels = {
    key_rows_kernel<AtomSource::bytes, kProbed>,  key_rows_kernel<AtomSource::aligned_bytes, kProbed>,
    key_rows_kernel<AtomSource::bits, kProbed>,   key_rows_kernel<AtomSource::aligned_bits, kProbed>,
    key_rows_kernel<AtomSource::blocks, kProbed>, key_rows_kernel<AtomSource::intervals, kProbed>};

}  // namespace

cudaError_t read_key_rows(const MaskView& mask, const PlanDevice& device, const OwnOrderProof& proof,
                          const ReorderedPlan& plan, cudaStream_t stream) {
  const std::int64_t warps =
      std::int64_t{mask.batch} * mask.heads * query_atom_pairs(mask.queries) * mask_atoms(mask.keys);
  // Without queries the order is made of the intervals all the same.
  if (warps == 0) return cudaSuccess;
  const auto& kernels = proof.least_tiles != nullptr ? kKeyRowKernels<true> : kKeyRowKernels<false>;
  return launch_kernel(
      kernels[static_cast<std::size_t>(atom_source(mask))],
      Grid(static_cast<unsigned>((warps + kKeyRowWarps - 1) / kKeyRowWarps)).launched_early(device.early_launches),
      kKeyRowWarps * 32, 0, stream, mask, proof, plan);
}

cudaError_t load_key_row_kernels() {
  cudaError_t error = cudaSuccess;
  for (const auto& kernels : {kKeyRowKernels<false>, kKeyRowKernels<true>})
    for (const auto kernel : kernels)
      if (error == cudaSuccess) error = load_kernels(kernel);
  return error;
}

}  // namespace flashdma_bwd
