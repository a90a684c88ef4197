// Reads a mask once and writes what the main kernels read instead: bit atoms with classes, or active keys.
#include <array>

#include "common/launch_kernel.hpp"
#include "common/load_kernels.hpp"
#include "plan/mask_atoms.cuh"
#include "plan/mask_plan.hpp"
#include "plan/reordered_plan.hpp"
#include "plan/write_atom.cuh"

namespace flashdma_bwd {
namespace {

constexpr int kPackWarps = 8;
constexpr int kCompactThreads = 1024;

/// One warp packs one atom.
template <AtomSource kSource>
__global__ void __launch_bounds__(kPackWarps * 32)
    pack_mask_kernel(MaskView mask, std::uint64_t* words, std::uint8_t* classes) {
  const int query_atoms = mask_atoms(mask.queries);
  const int key_atoms = mask_atoms(mask.keys);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Neighbouring warps take neighbouring keys, so that a row's bytes are read together.
  const std::int64_t warp = std::int64_t{blockIdx.x} * kPackWarps + threadIdx.x / 32;
  const int key_atom = static_cast<int>(warp % key_atoms);
  const std::int64_t rest = warp / key_atoms;
  const int query_atom = static_cast<int>(rest % query_atoms);
  const int mask_index = static_cast<int>(rest / query_atoms);
  if (mask_index >= mask.batch * mask.heads) return;

  const std::int64_t atom = (std::int64_t{mask_index} * key_atoms + key_atom) * query_atoms + query_atom;
  if (!atom_visible(mask.limits, query_atom, key_atom)) {
    // Its words are read only with those of an atom of the same tile.
    if (atoms_visible(mask.limits, query_atom, key_atom))
      for (int half = 0; half < 2; ++half) words[atom * kMaskAtom + BitRows::row(lane, half)] = 0;
    if (lane == 0) classes[atom] = static_cast<std::uint8_t>(MaskClass::empty);
    return;
  }

  BitRows rows = read_atom<kSource>(mask, mask_index, query_atom, key_atom, lane);
  if (kComesByKey<kSource>) transpose_bits(rows, lane);
  write_atom(rows, query_atom * kMaskAtom, mask.queries, mask.keys - key_atom * kMaskAtom, words + atom * kMaskAtom,
             classes + atom, lane);
}

/// One CTA compacts the mask of one (batch, head): a running count over blocks of 16 keys a thread.
template <AtomSource kSource>
__global__ void __launch_bounds__(kCompactThreads)
    compact_mask_kernel(MaskView mask, std::int32_t* counts, std::int32_t* keys) {
  __shared__ int warp_sums[kCompactThreads / 32];
  const int mask_index = static_cast<int>(blockIdx.x);
  const std::uint8_t* row = mask_head<std::uint8_t>(mask, mask_index);
  std::int32_t* out = keys + std::int64_t{mask_index} * mask.keys;
  const int thread = static_cast<int>(threadIdx.x);
  int total = 0;
  for (int base = 0; base < mask.keys; base += kCompactThreads * kBytesPerLoad) {
    const int first = base + thread * kBytesPerLoad;
    std::uint32_t bits = first < mask.keys ? load_row_bits<kSource>(mask, row, first) : 0;
    const int own = __popc(bits);
    int inclusive = own;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int below = __shfl_up_sync(0xffffffffu, inclusive, step);
      if (thread % 32 >= step) inclusive += below;
    }
    __syncthreads();
    if (thread % 32 == 31) warp_sums[thread / 32] = inclusive;
    __syncthreads();
    int before = 0;
    int block = 0;
    for (int warp = 0; warp < kCompactThreads / 32; ++warp) {
      if (warp < thread / 32) before += warp_sums[warp];
      block += warp_sums[warp];
    }
    int slot = total + before + inclusive - own;
    while (bits != 0) {
      out[slot++] = first + __ffs(static_cast<int>(bits)) - 1;
      bits &= bits - 1;
    }
    total += block;
  }
  if (thread == 0) counts[mask_index] = total;
}

// In the order of AtomSource. A mask with one row is not one of intervals.
constexpr std::array kPackKernels = {pack_mask_kernel<AtomSource::bytes>,  pack_mask_kernel<AtomSource::aligned_bytes>,
                                     pack_mask_kernel<AtomSource::bits>,   pack_mask_kernel<AtomSource::aligned_bits>,
                                     pack_mask_kernel<AtomSource::blocks>, pack_mask_kernel<AtomSource::intervals>};
constexpr std::array kCompactKernels = {
    compact_mask_kernel<AtomSource::bytes>, compact_mask_kernel<AtomSource::aligned_bytes>,
    compact_mask_kernel<AtomSource::bits>, compact_mask_kernel<AtomSource::aligned_bits>,
    compact_mask_kernel<AtomSource::blocks>};

}  // namespace

cudaError_t pack_mask(const MaskView& mask, std::uint64_t* words, std::uint8_t* classes, cudaStream_t stream) {
  const std::int64_t warps = std::int64_t{mask.batch} * mask.heads * mask_atoms(mask.queries) * mask_atoms(mask.keys);
  const auto blocks = static_cast<unsigned>((warps + kPackWarps - 1) / kPackWarps);
  if (blocks == 0) return cudaSuccess;
  return launch_kernel(kPackKernels[static_cast<std::size_t>(atom_source(mask))], blocks, kPackWarps * 32, 0, stream,
                       mask, words, classes);
}

cudaError_t compact_mask(const MaskView& mask, std::int32_t* counts, std::int32_t* keys, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(mask.batch * mask.heads);
  if (blocks == 0) return cudaSuccess;
  return launch_kernel(kCompactKernels[static_cast<std::size_t>(atom_source(mask))], blocks, kCompactThreads, 0, stream,
                       mask, counts, keys);
}

cudaError_t reorder_mask(const MaskView& mask, const PlanDevice& device, bool may_keep_natural, std::byte* memory,
                         cudaStream_t stream, const BesideOrder& beside_order) {
  const ReorderedPlan plan = reordered_plan(memory, std::int64_t{mask.batch} * mask.heads, mask.queries, mask.keys);
  const OwnOrderProof proof = may_keep_natural ? own_order_proof(mask, device, plan) : OwnOrderProof();
  cudaError_t error = prepare_keys(mask, proof, plan, stream);
  if (error == cudaSuccess) error = read_key_rows(mask, device, proof, plan, stream);
  if (error == cudaSuccess) error = order_keys(mask, device, plan, may_keep_natural, stream);
  if (error == cudaSuccess && beside_order) error = beside_order();
  if (error == cudaSuccess) error = pack_ordered_atoms(mask, device, proof, plan, stream);
  return error;
}

cudaError_t load_plan_kernels() {
  cudaError_t error = cudaSuccess;
  for (const auto kernel : kPackKernels)
    if (error == cudaSuccess) error = load_kernels(kernel);
  for (const auto kernel : kCompactKernels)
    if (error == cudaSuccess) error = load_kernels(kernel);
  for (const auto load : {load_key_list_kernels, load_tile_list_kernels, load_key_preparations, load_key_row_kernels,
                          load_key_order_kernels, load_ordered_atom_kernels})
    if (error == cudaSuccess) error = load();
  return error;
}

}  // namespace flashdma_bwd
