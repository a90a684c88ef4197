// What comes before the first pass of a reordered plan: the keys' intervals are cleared, and the first and the last
// queries of a long mask are asked whether the keys keep their own order (own_order_proof.hpp).
#include <algorithm>
#include <array>

#include "common/launch_kernel.hpp"
#include "common/launch_order.cuh"
#include "common/load_kernels.hpp"
#include "plan/mask_atoms.cuh"
#include "plan/reordered_plan.hpp"

namespace flashdma_bwd {
namespace {

constexpr int kClearThreads = 256;
constexpr int kProbeThreads = kProofKeyAtoms * 32;

__global__ void __launch_bounds__(kClearThreads) clear_intervals_kernel(std::int32_t* values, std::int64_t count) {
  let_successor_launch();
  const std::int64_t i = std::int64_t{blockIdx.x} * kClearThreads + threadIdx.x;
  if (i < count) values[i] = 0;
}

/// The query atoms that those keys of a key atom span together which are active in both of the atoms that are read: the
/// first and the last query atom that the limits hide nothing of. All lanes of the warp.
template <AtomSource kSource>
__device__ __forceinline__ int spanned_for_certain(const MaskView& mask, int mask_index, int key_atom, int lane) {
  const int first_key = key_atom * kMaskAtom;
  if (first_key >= mask.keys) return 0;
  const TileRange whole =
      whole_query_tiles(mask.limits, mask.queries, first_key, min(first_key + kMaskAtom, mask.keys) - 1, kMaskAtom);
  // An atom of few queries says little.
  const bool last_is_cut = whole.end * kMaskAtom > mask.queries && whole.end - whole.begin > 1;
  const int end = last_is_cut ? whole.end - 1 : whole.end;
  if (end == whole.begin) return 0;
  BitRows first = read_atom<kSource>(mask, mask_index, whole.begin, key_atom, lane);
  BitRows last = read_atom<kSource>(mask, mask_index, end - 1, key_atom, lane);
  if (!kComesByKey<kSource>) {
    transpose_bits(first, lane);
    transpose_bits(last, lane);
  }
  int keys = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) keys += first.word(half) != 0 && last.word(half) != 0 ? 1 : 0;
  return __reduce_add_sync(0xffffffffu, keys) * (end - whole.begin);
}

/// Clears the intervals of a part's keys and finds the part's tiles.
template <AtomSource kSource>
__global__ void __launch_bounds__(kProbeThreads)
    probe_keys_kernel(MaskView mask, OwnOrderProof proof, KeyIntervals intervals) {
  __shared__ int spanned[kProofKeyAtoms];
  let_successor_launch();
  const int thread = static_cast<int>(threadIdx.x);
  const int part = static_cast<int>(blockIdx.x) % proof.parts;
  const int mask_index = static_cast<int>(blockIdx.x) / proof.parts;
  const std::int64_t first = std::int64_t{mask_index} * mask.keys;
  const int first_key = part * kProofKeyAtoms * kMaskAtom;
  for (int key = first_key + thread; key < min(first_key + kProofKeyAtoms * kMaskAtom, mask.keys);
       key += kProbeThreads) {
    intervals.from_end[first + key] = 0;
    intervals.ends[first + key] = 0;
  }
  const int of_warp = spanned_for_certain<kSource>(mask, mask_index, part * kProofKeyAtoms + thread / 32, thread % 32);
  if (thread % 32 == 0) spanned[thread / 32] = of_warp;
  __syncthreads();
  if (thread > 0) return;
  int sum = 0;
  for (const int of_atom : spanned) sum += of_atom;
  proof.least_tiles[blockIdx.x] = sum / kCountedTileKeys;
}

// In the order of AtomSource.
constexpr std::array kProbeKernels = {
    probe_keys_kernel<AtomSource::bytes>,  probe_keys_kernel<AtomSource::aligned_bytes>,
    probe_keys_kernel<AtomSource::bits>,   probe_keys_kernel<AtomSource::aligned_bits>,
    probe_keys_kernel<AtomSource::blocks>, probe_keys_kernel<AtomSource::intervals>};

}  // namespace

OwnOrderProof own_order_proof(const MaskView& mask, const PlanDevice& device, const ReorderedPlan& plan) {
  OwnOrderProof proof{plan.least_tiles, proof_parts(mask.keys), 0};
  for (int key = 0; key < mask.keys; key += kCountedTileKeys) {
    const TileRange seen =
        visible_query_tiles(mask.limits, mask.queries, key, std::min(key + kCountedTileKeys, mask.keys) - 1, kMaskAtom);
    proof.most_own_tiles += seen.end - seen.begin;
  }
  const std::int64_t pairs =
      mask.batch * mask.heads * proof.most_own_tiles * std::int64_t{kMaskAtom * kCountedTileKeys};
  return pairs >= device.least_probed_pairs ? proof : OwnOrderProof();
}

cudaError_t prepare_keys(const MaskView& mask, const OwnOrderProof& proof, const ReorderedPlan& plan,
                         cudaStream_t stream) {
  const std::int64_t heads = std::int64_t{mask.batch} * mask.heads;
  const std::int64_t values = 2 * heads * mask.keys;
  if (values == 0) return cudaSuccess;
  if (proof.least_tiles == nullptr)
    return launch_kernel(clear_intervals_kernel, static_cast<unsigned>((values + kClearThreads - 1) / kClearThreads),
                         kClearThreads, 0, stream, plan.intervals.from_end, values);
  return launch_kernel(kProbeKernels[static_cast<std::size_t>(atom_source(mask))],
                       static_cast<unsigned>(heads * proof.parts), kProbeThreads, 0, stream, mask, proof,
                       plan.intervals);
}

cudaError_t load_key_preparations() {
  cudaError_t error = load_kernels(clear_intervals_kernel);
  for (const auto kernel : kProbeKernels)
    if (error == cudaSuccess) error = load_kernels(kernel);
  return error;
}

}  // namespace flashdma_bwd
