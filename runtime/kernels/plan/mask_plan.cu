// Reads a bool mask once and writes what the main kernels read instead: bit atoms with classes, or active keys.
#include "common/launch_kernel.hpp"
#include "common/load_kernels.hpp"
#include "plan/mask_bytes.cuh"
#include "plan/mask_plan.hpp"
#include "plan/reordered_plan.hpp"

namespace flashdma_bwd {
namespace {

constexpr int kPackWarps = 8;
constexpr int kCompactThreads = 1024;

/// One warp packs one atom: four lanes a row, eight rows a pass.
template <bool Vectorised>
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
    // Its words stay as they are: the limits hide each of their bits.
    if (lane == 0) classes[atom] = static_cast<std::uint8_t>(MaskClass::empty);
    return;
  }

  const std::uint8_t* head = mask_head(mask, mask_index);
  const int first_key = key_atom * kMaskAtom;
  const int piece = lane % 4;
  const int keys_inside = min(max(mask.keys - first_key, 0), kMaskAtom);
  const std::uint64_t inside = keys_inside == kMaskAtom ? ~std::uint64_t{0} : (std::uint64_t{1} << keys_inside) - 1;

  std::uint32_t bits[kMaskAtom / 8];
#pragma unroll
  for (int pass = 0; pass < kMaskAtom / 8; ++pass) {
    const int query = query_atom * kMaskAtom + pass * 8 + lane / 4;
    bits[pass] = query < mask.queries ? load_bits<Vectorised>(head + query * mask.stride_row, mask.stride_column,
                                                              first_key + piece * kBytesPerLoad, mask.keys)
                                      : 0;
  }
  bool any = false;
  bool all = true;
#pragma unroll
  for (int pass = 0; pass < kMaskAtom / 8; ++pass) {
    const int query = query_atom * kMaskAtom + pass * 8 + lane / 4;
    std::uint32_t half = bits[pass] << (piece % 2 * 16);
    half |= __shfl_xor_sync(0xffffffffu, half, 1);
    const std::uint32_t other = __shfl_xor_sync(0xffffffffu, half, 2);
    const std::uint64_t word = piece < 2 ? half | std::uint64_t{other} << 32 : other | std::uint64_t{half} << 32;
    if (piece == 0) words[atom * kMaskAtom + pass * 8 + lane / 4] = word;
    any |= word != 0;
    all &= query >= mask.queries || word == inside;
  }
  any = __any_sync(0xffffffffu, any);
  all = __all_sync(0xffffffffu, all);
  if (lane == 0)
    classes[atom] = static_cast<std::uint8_t>(!any ? MaskClass::empty : all ? MaskClass::full : MaskClass::partial);
}

/// One CTA compacts the mask of one (batch, head): a running count over blocks of 16 keys a thread.
template <bool Vectorised>
__global__ void __launch_bounds__(kCompactThreads)
    compact_mask_kernel(MaskView mask, std::int32_t* counts, std::int32_t* keys) {
  __shared__ int warp_sums[kCompactThreads / 32];
  const int mask_index = static_cast<int>(blockIdx.x);
  const std::uint8_t* row = mask_head(mask, mask_index);
  std::int32_t* out = keys + std::int64_t{mask_index} * mask.keys;
  const int thread = static_cast<int>(threadIdx.x);
  int total = 0;
  for (int base = 0; base < mask.keys; base += kCompactThreads * kBytesPerLoad) {
    const int first = base + thread * kBytesPerLoad;
    std::uint32_t bits = first < mask.keys ? load_bits<Vectorised>(row, mask.stride_column, first, mask.keys) : 0;
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

}  // namespace

cudaError_t pack_mask(const MaskView& mask, std::uint64_t* words, std::uint8_t* classes, cudaStream_t stream) {
  const std::int64_t warps = std::int64_t{mask.batch} * mask.heads * mask_atoms(mask.queries) * mask_atoms(mask.keys);
  const auto blocks = static_cast<unsigned>((warps + kPackWarps - 1) / kPackWarps);
  if (blocks == 0) return cudaSuccess;
  if (vectorisable(mask))
    return launch_kernel(pack_mask_kernel<true>, blocks, kPackWarps * 32, 0, stream, mask, words, classes);
  return launch_kernel(pack_mask_kernel<false>, blocks, kPackWarps * 32, 0, stream, mask, words, classes);
}

cudaError_t compact_mask(const MaskView& mask, std::int32_t* counts, std::int32_t* keys, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(mask.batch * mask.heads);
  if (blocks == 0) return cudaSuccess;
  if (vectorisable(mask))
    return launch_kernel(compact_mask_kernel<true>, blocks, kCompactThreads, 0, stream, mask, counts, keys);
  return launch_kernel(compact_mask_kernel<false>, blocks, kCompactThreads, 0, stream, mask, counts, keys);
}

cudaError_t reorder_mask(const MaskView& mask, bool may_keep_natural, std::byte* memory, cudaStream_t stream) {
  const ReorderedPlan plan = reordered_plan(memory, std::int64_t{mask.batch} * mask.heads, mask.queries, mask.keys);
  cudaError_t error = read_key_rows(mask, plan, stream);
  if (error == cudaSuccess) error = order_keys(mask, plan, may_keep_natural, stream);
  if (error == cudaSuccess) error = pack_ordered_atoms(mask, plan, stream);
  return error;
}

cudaError_t load_plan_kernels() {
  cudaError_t error = load_kernels(pack_mask_kernel<true>, pack_mask_kernel<false>, compact_mask_kernel<true>,
                                   compact_mask_kernel<false>);
  for (const auto load :
       {load_tile_list_kernels, load_key_row_kernels, load_key_order_kernels, load_ordered_atom_kernels})
    if (error == cudaSuccess) error = load();
  return error;
}

}  // namespace flashdma_bwd
