// The first pass of a reordered plan: reads a bool mask once, and writes for each key the bits of its queries and the
// interval of query atoms in which it is active.
#include "common/launch_kernel.hpp"
#include "common/load_kernels.hpp"
#include "common/transpose_quad.cuh"
#include "plan/bit_matrix.cuh"
#include "plan/mask_bytes.cuh"
#include "plan/reordered_plan.hpp"

namespace flashdma_bwd {
namespace {

constexpr int kKeyRowWarps = 8;
constexpr int kClearThreads = 256;

/// The bits of an atom as rows of queries: four lanes read a row, eight rows at a time, and trade.
template <bool Vectorised>
__device__ __forceinline__ BitRows read_atom(const MaskView& mask, const std::uint8_t* head, int first_query,
                                             int first_key, int lane) {
  const int piece = lane % 4;
  std::uint32_t units[4];
#pragma unroll
  for (int pass = 0; pass < kMaskAtom / 8; ++pass) {
    const int query = first_query + pass * 8 + lane / 4;
    const std::uint32_t bits = query < mask.queries
                                   ? load_bits<Vectorised>(head + query * mask.stride_row, mask.stride_column,
                                                           first_key + piece * kBytesPerLoad, mask.keys)
                                   : 0;
    units[pass / 2] = pass % 2 == 0 ? bits : units[pass / 2] | bits << 16;
  }
  // From 16 columns of sixteen rows to all columns of two, those that BitRows gives to the lane.
  transpose_quad(units, lane);
  BitRows rows;
  rows.low[0] = (units[0] & 0xffffu) | units[1] << 16;
  rows.low[1] = units[0] >> 16 | (units[1] & 0xffff0000u);
  rows.high[0] = (units[2] & 0xffffu) | units[3] << 16;
  rows.high[1] = units[2] >> 16 | (units[3] & 0xffff0000u);
  return rows;
}

/// One warp takes a key atom's pairs with two query atoms.
template <bool Vectorised>
__global__ void __launch_bounds__(kKeyRowWarps * 32, 3)
    key_rows_kernel(MaskView mask, KeyIntervals intervals, std::uint8_t* active_atoms, uint4* key_rows) {
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
    const std::uint8_t* head = mask_head(mask, mask_index);
    BitRows keys[2];
#pragma unroll
    for (int atom = 0; atom < 2; ++atom) {
      keys[atom] = {};
      if (!visible[atom]) continue;
      keys[atom] = read_atom<Vectorised>(mask, head, (pair * 2 + atom) * kMaskAtom, key_atom * kMaskAtom, lane);
      transpose_bits(keys[atom], lane);
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
  const std::int64_t i = std::int64_t{blockIdx.x} * kClearThreads + threadIdx.x;
  if (i < count) values[i] = 0;
}

}  // namespace

cudaError_t read_key_rows(const MaskView& mask, const ReorderedPlan& plan, cudaStream_t stream) {
  const std::int64_t heads = std::int64_t{mask.batch} * mask.heads;
  const std::int64_t values = 2 * heads * mask.keys;
  const std::int64_t warps = heads * query_atom_pairs(mask.queries) * mask_atoms(mask.keys);
  if (warps == 0) return cudaSuccess;
  const cudaError_t error =
      launch_kernel(clear_intervals_kernel, static_cast<unsigned>((values + kClearThreads - 1) / kClearThreads),
                    kClearThreads, 0, stream, plan.intervals.from_end, values);
  if (error != cudaSuccess) return error;
  const auto kernel = vectorisable(mask) ? key_rows_kernel<true> : key_rows_kernel<false>;
  return launch_kernel(kernel, static_cast<unsigned>((warps + kKeyRowWarps - 1) / kKeyRowWarps), kKeyRowWarps * 32, 0,
                       stream, mask, plan.intervals, plan.active_atoms, reinterpret_cast<uint4*>(plan.key_rows));
}

cudaError_t load_key_row_kernels() {
  return load_kernels(key_rows_kernel<true>, key_rows_kernel<false>, clear_intervals_kernel);
}

}  // namespace flashdma_bwd
