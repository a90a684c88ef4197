// The first pass of a reordered plan: reads a mask once, and writes for each key the bits of its queries and the
// interval of query atoms in which it is active.
#include <array>

#include "common/launch_kernel.hpp"
#include "common/launch_order.cuh"
#include "common/load_kernels.hpp"
#include "plan/mask_atoms.cuh"
#include "plan/reordered_plan.hpp"

namespace flashdma_bwd {
namespace {

constexpr int kKeyRowWarps = 8;
constexpr int kClearThreads = 256;

/// One warp takes a key atom's pairs with two query atoms.
template <AtomSource kSource>
__global__ void __launch_bounds__(kKeyRowWarps * 32, 3)
    key_rows_kernel(MaskView mask, KeyIntervals intervals, std::uint8_t* active_atoms, uint4* key_rows) {
  wait_for_predecessor();
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

  unsigned active = 0;
  if (visible[0] || visible[1]) {
    BitRows keys[2];
#pragma unroll
    for (int atom = 0; atom < 2; ++atom) {
      keys[atom] = {};
      if (!visible[atom]) continue;
      keys[atom] = read_atom<kSource>(mask, mask_index, pair * 2 + atom, key_atom, lane);
      if (!kComesByKey<kSource>) transpose_bits(keys[atom], lane);
    }
    bool any[2] = {false, false};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = BitRows::row(lane, half);
      key_rows[((std::int64_t{mask_index} * key_atoms + key_atom) * pairs + pair) * kMaskAtom + row] = {
          keys[0].low[half], keys[0].high[half], keys[1].low[half], keys[1].high[half]};
      const bool own[2] = {keys[0].word(half) != 0, keys[1].word(half) != 0};
      any[0] |= own[0];
      any[1] |= own[1];
      if (own[0] || own[1]) {  // the key is inside: bits past the last are 0
        const std::int64_t key = std::int64_t{mask_index} * mask.keys + key_atom * kMaskAtom + row;
        atomicMax(intervals.from_end + key, query_atoms - (pair * 2 + (own[0] ? 0 : 1)));
        atomicMax(intervals.ends + key, pair * 2 + (own[1] ? 2 : 1));
      }
    }
#pragma unroll
    for (int atom = 0; atom < 2; ++atom) active |= __any_sync(0xffffffffu, any[atom]) ? 1u << atom : 0u;
  }
  if (lane == 0)
    active_atoms[(std::int64_t{mask_index} * pairs + pair) * key_atoms + key_atom] = static_cast<std::uint8_t>(active);
}

__global__ void __launch_bounds__(kClearThreads) clear_intervals_kernel(std::int32_t* values, std::int64_t count) {
  let_successor_launch();
  const std::int64_t i = std::int64_t{blockIdx.x} * kClearThreads + threadIdx.x;
  if (i < count) values[i] = 0;
}

// In the order of AtomSource.
constexpr std::array kKeyRowKernels = {key_rows_kernel<AtomSource::bytes>,  key_rows_kernel<AtomSource::aligned_bytes>,
                                       key_rows_kernel<AtomSource::bits>,   key_rows_kernel<AtomSource::aligned_bits>,
                                       key_rows_kernel<AtomSource::blocks>, key_rows_kernel<AtomSource::intervals>};

}  // namespace

cudaError_t read_key_rows(const MaskView& mask, const PlanDevice& device, const ReorderedPlan& plan,
                          cudaStream_t stream) {
  const std::int64_t heads = std::int64_t{mask.batch} * mask.heads;
  const std::int64_t values = 2 * heads * mask.keys;
  const std::int64_t warps = heads * query_atom_pairs(mask.queries) * mask_atoms(mask.keys);
  if (values == 0) return cudaSuccess;
  const cudaError_t error =
      launch_kernel(clear_intervals_kernel, static_cast<unsigned>((values + kClearThreads - 1) / kClearThreads),
                    kClearThreads, 0, stream, plan.intervals.from_end, values);
  // Without queries the order is made of the intervals all the same.
  if (error != cudaSuccess || warps == 0) return error;
  return launch_kernel(
      kKeyRowKernels[static_cast<std::size_t>(atom_source(mask))],
      Grid(static_cast<unsigned>((warps + kKeyRowWarps - 1) / kKeyRowWarps)).launched_early(device.early_launches),
      kKeyRowWarps * 32, 0, stream, mask, plan.intervals, plan.active_atoms, reinterpret_cast<uint4*>(plan.key_rows));
}

cudaError_t load_key_row_kernels() {
  cudaError_t error = load_kernels(clear_intervals_kernel);
  for (const auto kernel : kKeyRowKernels)
    if (error == cudaSuccess) error = load_kernels(kernel);
  return error;
}

}  // namespace flashdma_bwd
