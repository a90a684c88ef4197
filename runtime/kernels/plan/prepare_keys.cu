// What comes before the first pass of a reordered plan: the keys' intervals are cleared, or, of a long mask, become
// what its first and last queries say of them, which are probed for a proof that the keys keep their own order
// (own_order_proof.hpp).
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
constexpr int kProbeThreads = 2 * kProbedAtoms * 32;

__global__ void __launch_bounds__(kClearThreads) clear_intervals_kernel(std::int32_t* values, std::int64_t count) {
  let_successor_launch();
  const std::int64_t i = std::int64_t{blockIdx.x} * kClearThreads + threadIdx.x;
  if (i < count) values[i] = 0;
}

/// The query atoms [begin, end) of which the limits hide no pair with a key atom.
__device__ __forceinline__ TileRange whole_query_atoms(const MaskView& mask, int key_atom) {
  const int first_key = key_atom * kMaskAtom;
  if (first_key >= mask.keys) return {0, 0};
  TileRange whole =
      whole_query_tiles(mask.limits, mask.queries, first_key, min(first_key + kMaskAtom, mask.keys) - 1, kMaskAtom);
  // An atom of few queries says little.
  if (whole.end * kMaskAtom > mask.queries && whole.end - whole.begin > 1) --whole.end;
  return whole;
}

/// The keys of an atom with an active pair, as bits. All lanes of the warp.
template <AtomSource kSource>
__device__ __forceinline__ std::uint64_t active_keys(const MaskView& mask, int mask_index, int query_atom, int key_atom,
                                                     int lane) {
  BitRows rows = read_atom<kSource>(mask, mask_index, query_atom, key_atom, lane);
  if (kComesByKey<kSource>) transpose_bits(rows, lane);
  return columns_with_bits(rows);
}

/// Begins the intervals of a part's keys and finds the part's tiles. Of each key atom one warp reads the first of the
/// query atoms that it sees whole, another the last.
template <AtomSource kSource>
__global__ void __launch_bounds__(kProbeThreads)
    probe_keys_kernel(MaskView mask, OwnOrderProof proof, KeyIntervals intervals) {
  __shared__ std::uint64_t active[2][kProbedAtoms];
  let_successor_launch();
  const int thread = static_cast<int>(threadIdx.x);
  const int part = static_cast<int>(blockIdx.x) % proof.parts;
  const int mask_index = static_cast<int>(blockIdx.x) / proof.parts;
  const std::int64_t first = std::int64_t{mask_index} * mask.keys;
  const int begin = part * proof.part_atoms;
  const int end = begin + proof.part_atoms;
  const int query_atoms = mask_atoms(mask.queries);
  const int lane = thread % 32;
  const int atom = thread / 32 % kProbedAtoms;
  const int last = thread / 32 / kProbedAtoms;
  int spanned = 0;
  for (int base = begin; base < end; base += kProbedAtoms) {
    const TileRange whole = whole_query_atoms(mask, base + atom);
    std::uint64_t keys = 0;
    if (whole.begin < whole.end)
      keys = active_keys<kSource>(mask, mask_index, last == 0 ? whole.begin : whole.end - 1, base + atom, lane);
    if (lane == 0) active[last][atom] = keys;
    __syncthreads();
    static_assert(kProbeThreads == kProbedAtoms * kMaskAtom);
    if (const int key = base * kMaskAtom + thread; key < mask.keys) {
      const int of_key = thread / kMaskAtom;
      const TileRange probed = whole_query_atoms(mask, base + of_key);
      const bool in_first = (active[0][of_key] >> thread % kMaskAtom & 1u) != 0;
      const bool in_last = (active[1][of_key] >> thread % kMaskAtom & 1u) != 0;
      intervals.from_end[first + key] = in_first  ? query_atoms - probed.begin
                                        : in_last ? query_atoms - (probed.end - 1)
                                                  : 0;
      intervals.ends[first + key] = in_last ? probed.end : in_first ? probed.begin + 1 : 0;
    }
    if (thread == 0)
      for (int i = 0; i < kProbedAtoms; ++i) {
        const TileRange of_atom = whole_query_atoms(mask, base + i);
        spanned += __popcll(active[0][i] & active[1][i]) * (of_atom.end - of_atom.begin);
      }
    __syncthreads();
  }
  if (thread == 0) proof.least_tiles[mask_index * kMostParts + part] = spanned / kCountedTileKeys;
}

// In the order of AtomSource.
constexpr std::array kProbeKernels = {
    probe_keys_kernel<AtomSource::bytes>,  probe_keys_kernel<AtomSource::aligned_bytes>,
    probe_keys_kernel<AtomSource::bits>,   probe_keys_kernel<AtomSource::aligned_bits>,
    probe_keys_kernel<AtomSource::blocks>, probe_keys_kernel<AtomSource::intervals>};

}  // namespace

OwnOrderProof own_order_proof(const MaskView& mask, const PlanDevice& device, const ReorderedPlan& plan) {
  if (mask.keys == 0) return {};
  const int atoms = mask_atoms(mask.keys);
  const int groups = (atoms + kProbedAtoms - 1) / kProbedAtoms;  // one to a part, or as many as leave kMostParts
  const int part_atoms = (groups + kMostParts - 1) / kMostParts * kProbedAtoms;
  OwnOrderProof proof{plan.least_tiles, part_atoms, (atoms + part_atoms - 1) / part_atoms, 0};
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
