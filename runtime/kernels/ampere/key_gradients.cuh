// How dK and dV leave a CTA: as 16-bit rows by way of shared memory, or as float32 rows that are added up later.
#pragma once

#include "ampere/cta.cuh"
#include "common/numeric.cuh"

namespace flashdma_bwd::ampere {

/// float32 rows, which are added up later.
template <KernelConfig kConfig>
__device__ __forceinline__ void write_float_rows(const Cta<kConfig>& cta, bool value,
                                                 const DkvAccumulator<kConfig>& values) {
  using G = Geometry<kConfig>;
  const BackwardParameters& p = cta.p;
  const WarpShare share = cta.dkv_share();
  const KeyItem& item = cta.item();
  float* rows = float_rows(p, item, value);
#pragma unroll
  for (int m = 0; m < G::kDkvM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = cta.positions()[share.row(m, half)];
      if (key == kPastEnd) continue;
      float* row = rows + static_cast<std::int64_t>(item.summed_later ? share.row(m, half) : key) * p.head_dim;
#pragma unroll
      for (int n = 0; n < G::kDkvN; ++n)
        if (share.column(n) < p.head_dim)
          *reinterpret_cast<float2*>(row + share.column(n)) = {values[m][n][half * 2], values[m][n][half * 2 + 1]};
    }
}

/// 16-bit rows, into the tile of keys at `offset` in shared memory.
template <KernelConfig kConfig>
__device__ __forceinline__ void stage(const Cta<kConfig>& cta, int offset, const DkvAccumulator<kConfig>& values) {
  using G = Geometry<kConfig>;
  const WarpShare share = cta.dkv_share();
#pragma unroll
  for (int m = 0; m < G::kDkvM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < G::kDkvN; ++n)
        ptx::st_shared_32(cta.shared_base + offset + G::KeyTile::offset(share.row(m, half), share.column(n)),
                          pack<kConfig.data_type>(values[m][n][half * 2], values[m][n][half * 2 + 1]));
}

/// From there to the rows of the item's keys in dK or dV.
template <KernelConfig kConfig>
__device__ __forceinline__ void write_rows(const Cta<kConfig>& cta, const TensorView& tensor, int offset) {
  using G = Geometry<kConfig>;
  const HeadView view = cta.key_head(tensor);
  store_tile<typename G::KeyTile, G::kThreads>(cta.shared + offset, const_cast<std::uint16_t*>(view.data),
                                               tensor.stride_row, cta.p.head_dim, cta.thread(), cta.key_of_row());
}

/// Adds up dK and dV of the item's pieces, in their order, so that the sum does not depend on who is last. Returns
/// whether this is the last piece, which then has the sums.
template <KernelConfig kConfig>
__device__ __forceinline__ bool add_pieces(const Cta<kConfig>& cta, DkvAccumulator<kConfig>& d_k,
                                           DkvAccumulator<kConfig>& d_v) {
  using G = Geometry<kConfig>;
  const BackwardParameters& p = cta.p;
  constexpr int kBlocks = G::kDkvM * G::kDkvN;  // of a thread's accumulator, four values each
  static_assert(kBlocks * G::kThreads * 4 == G::kN * G::kD);
  // Calls visit(place in the part, accumulator) for each four values.
  const auto for_each = [&](int piece, auto&& visit) {
    float4* place = piece_part<2 * G::kN * G::kD>(p, cta.item(), piece, 0, 1) + cta.thread();
#pragma unroll
    for (int m = 0; m < G::kDkvM; ++m)
#pragma unroll
      for (int n = 0; n < G::kDkvN; ++n) {
        visit(place + (m * G::kDkvN + n) * G::kThreads, d_k[m][n]);
        visit(place + (kBlocks + m * G::kDkvN + n) * G::kThreads, d_v[m][n]);
      }
  };
  for_each(cta.item().piece, [](float4* place, const float(&v)[4]) { __stcg(place, float4{v[0], v[1], v[2], v[3]}); });
  // All have been written before thread 0 says so, and are read after it has heard of the others'.
  __syncthreads();
  bool last = false;
  if (cta.thread() == 0) last = ptx::atom_add_acq_rel(piece_arrivals(p, cta.item(), 0, 0), 1) == cta.item().pieces - 1;
  if (__syncthreads_or(last ? 1 : 0) == 0) return false;
  clear(d_k);
  clear(d_v);
#pragma unroll 1
  for (int piece = 0; piece < cta.item().pieces; ++piece)
    for_each(piece, [](const float4* place, float(&v)[4]) {
      const float4 four = __ldcg(place);
      v[0] += four.x, v[1] += four.y, v[2] += four.z, v[3] += four.w;
    });
  return true;
}

/// Writes dK and dV of the item. Nothing may read the buffers of K, V, Q and dO any more.
template <KernelConfig kConfig>
__device__ __forceinline__ void write_key_gradients(const Cta<kConfig>& cta, DkvAccumulator<kConfig>& d_k,
                                                    DkvAccumulator<kConfig>& d_v) {
  using G = Geometry<kConfig>;
  const BackwardParameters& p = cta.p;
#pragma unroll
  for (int m = 0; m < G::kDkvM; ++m)
#pragma unroll
    for (int n = 0; n < G::kDkvN; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) d_k[m][n][e] *= p.scale;
  if (is_added_up(cta.item()) && !add_pieces(cta, d_k, d_v)) return;
  if (leaves_as_floats(p, cta.item())) {
    write_float_rows(cta, false, d_k);
    write_float_rows(cta, true, d_v);
    return;
  }
  stage(cta, G::kKey, d_k);
  stage(cta, G::kValueStaging, d_v);
  __syncthreads();
  write_rows(cta, p.d_k, G::kKey);
  write_rows(cta, p.d_v, G::kValueStaging);
}

}  // namespace flashdma_bwd::ampere
