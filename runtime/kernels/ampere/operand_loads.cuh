// The copies that bring a CTA its operands: K and V of its keys, and Q, dO and the statistics of a step's query tile.
#pragma once

#include "ampere/cta.cuh"

namespace flashdma_bwd::ampere {

/// V where it stays in registers, the B operand of dP.
template <KernelConfig kConfig>
using ValueFragments = RegisterOperandB<Geometry<kConfig>::kScoreN / 2, Geometry<kConfig>::kD / 16>;

/// Starts the copies of K and V.
template <KernelConfig kConfig>
__device__ __forceinline__ void load_keys_and_values(const Cta<kConfig>& cta) {
  using G = Geometry<kConfig>;
  using Tile = typename G::KeyTile;
  const BackwardParameters& p = cta.p;
  load_tile<Tile, G::kThreads>(cta.shared_base + G::kKey, cta.key_head(p.k), p.head_dim, cta.thread(),
                               cta.key_of_row());
  load_tile<Tile, G::kThreads>(cta.shared_base + G::kValueStaging, cta.key_head(p.v), p.head_dim, cta.thread(),
                               cta.key_of_row());
  ptx::cp_async_commit_group();
}

/// Waits for V and reads it into registers: its staging buffer is that of Q and dO.
template <KernelConfig kConfig>
__device__ __forceinline__ void keep_values(const Cta<kConfig>& cta, ValueFragments<kConfig>& value) {
  using G = Geometry<kConfig>;
  ptx::cp_async_wait_group<0>();
  __syncthreads();
  const WarpShare share = cta.score_share();
  value.fill(OperandB<typename G::KeyTile>(cta.shared_base + G::kValueStaging, share.lane, share.first_column));
  __syncthreads();
}

/// The query of a row of a tile, negative past the end.
template <KernelConfig kConfig>
__device__ __forceinline__ auto query_of_row(const Cta<kConfig>& cta, int tile) {
  return [first = tile * Geometry<kConfig>::kM, length = cta.item().sequence.length_q](int row) {
    return first + row < length ? first + row : -1;
  };
}

/// Where a step's tiles of Q and dO lie.
template <KernelConfig kConfig>
__device__ __forceinline__ std::uint32_t query_tile(const Cta<kConfig>& cta, int step) {
  using G = Geometry<kConfig>;
  return cta.shared_base + G::kQuery + (step % G::kQueryStages) * G::QueryTile::kBytes;
}
template <KernelConfig kConfig>
__device__ __forceinline__ std::uint32_t d_out_tile(const Cta<kConfig>& cta, int step) {
  using G = Geometry<kConfig>;
  return cta.shared_base + G::kDOut + (step % G::kDOutStages) * G::QueryTile::kBytes;
}

/// These start the copies of a step's tiles of Q and dO, and of its statistics.
template <KernelConfig kConfig>
__device__ __forceinline__ void load_query(const Cta<kConfig>& cta, int tile, int step) {
  using G = Geometry<kConfig>;
  load_tile<typename G::QueryTile, G::kThreads>(query_tile(cta, step),
                                                HeadView{cta.item().q, static_cast<int>(cta.p.q.stride_row)},
                                                cta.p.head_dim, cta.thread(), query_of_row(cta, tile));
}
template <KernelConfig kConfig>
__device__ __forceinline__ void load_d_out(const Cta<kConfig>& cta, int tile, int step) {
  using G = Geometry<kConfig>;
  load_tile<typename G::QueryTile, G::kThreads>(d_out_tile(cta, step),
                                                HeadView{cta.item().d_out, static_cast<int>(cta.p.d_out.stride_row)},
                                                cta.p.head_dim, cta.thread(), query_of_row(cta, tile));
}
template <KernelConfig kConfig>
__device__ __forceinline__ void load_statistics(const Cta<kConfig>& cta, int tile, int step) {
  using G = Geometry<kConfig>;
  constexpr int kChunks = G::kM / 4;
  const int chunk = cta.thread();
  if (chunk < 2 * kChunks) {
    const float* source = (chunk < kChunks ? cta.p.lse_log2 : cta.p.row_dot) + cta.item().d_q_row;
    ptx::cp_async_16(cta.shared_base + G::kStatistics + (step % 2) * (2 * G::kM * 4) + chunk * 16,
                     source + tile * G::kM + chunk % kChunks * 4, true);
  }
}

/// Waits until all copies that were started have arrived, for all threads.
__device__ __forceinline__ void arrive_loads() {
  ptx::cp_async_wait_group<0>();
  __syncthreads();
}

}  // namespace flashdma_bwd::ampere
