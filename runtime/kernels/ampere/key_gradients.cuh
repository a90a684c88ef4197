// How dK and dV leave a CTA: as 16-bit rows by way of shared memory, or as float32 rows that are added up later.
#pragma once

#include "ampere/cta.cuh"
#include "common/numeric.cuh"

namespace flashdma_bwd::ampere {

/// float32 rows of this item's heads, which the postprocess kernel adds over the items of a KV head.
template <KernelConfig kConfig>
__device__ __forceinline__ void write_partial(const Cta<kConfig>& cta, float* partial,
                                              const DkvAccumulator<kConfig>& values) {
  using G = Geometry<kConfig>;
  const BackwardParameters& p = cta.p;
  const WarpShare share = cta.dkv_share();
  float* rows = partial + (cta.item().head_item * p.key_rows + cta.item().sequence.key_row) * p.head_dim;
#pragma unroll
  for (int m = 0; m < G::kDkvM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = cta.positions()[share.row(m, half)];
      if (key == kPastEnd) continue;
      float* row = rows + static_cast<std::int64_t>(key) * p.head_dim;
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
  if (p.d_k_partial != nullptr) {
    write_partial(cta, p.d_k_partial, d_k);
    write_partial(cta, p.d_v_partial, d_v);
    return;
  }
  stage(cta, G::kKey, d_k);
  stage(cta, G::kValueStaging, d_v);
  __syncthreads();
  write_rows(cta, p.d_k, G::kKey);
  write_rows(cta, p.d_v, G::kValueStaging);
}

}  // namespace flashdma_bwd::ampere
