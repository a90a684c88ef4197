// dQ of a query tile: a product of dS and K, added to float32 scratch in global memory, in turn where it must be.
#pragma once

#include "ampere/cta.cuh"
#include "ampere/schedule.cuh"

namespace flashdma_bwd::ampere {

template <KernelConfig kConfig>
__device__ __forceinline__ void reduce_d_query(const Cta<kConfig>& cta, int tile) {
  using G = Geometry<kConfig>;
  const BackwardParameters& p = cta.p;
  const WarpShare share = cta.dq_share();
  float d_q[G::kDqM][G::kDqN][4];
  clear(d_q);
  multiply_accumulate<kConfig.data_type == DataType::bf16, G::kN / 16>(
      d_q,
      OperandA<typename G::PairTile, Storage::reduction_along_columns>(cta.shared_base + G::kDScore, share.lane,
                                                                       share.first_row),
      OperandBTransposed<typename G::KeyTile, G::kDqN / 2>(cta.shared_base + G::kKey, share.lane, share.first_column));

  const std::int64_t row = cta.item().d_q_row + tile * G::kM;
  std::int32_t* turn = p.d_q_turns == nullptr ? nullptr : p.d_q_turns + row / kTurnRows;
  int rank = 0;
  if (turn != nullptr) {
    rank = cta.item().ranks[tile];
    if (cta.thread() == 0)
      while (ptx::ld_acquire(turn) != rank) {
      }
    __syncthreads();
  }
  float* atoms = p.d_q_scratch + ((row + share.first_row) / 16 * (G::kD / 8) + share.first_column / 8) * kAtomFloats;
#pragma unroll
  for (int m = 0; m < G::kDqM; ++m)
#pragma unroll
    for (int n = 0; n < G::kDqN; ++n) {
      float* atom = atoms + (m * (G::kD / 8) + n) * kAtomFloats;
      if constexpr (Schedule<kConfig>::kVectorReduction) {
#if __CUDA_ARCH__ >= 900
        ptx::red_add_v4(atom + atom_offset(true, share.lane, 0), d_q[m][n]);
#endif
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) ptx::red_add(atom + atom_offset(false, share.lane, e), d_q[m][n][e]);
      }
    }
  if (turn != nullptr) {
    __threadfence();
    __syncthreads();
    if (cta.thread() == 0) ptx::st_release(turn, rank + 1);
  }
}

}  // namespace flashdma_bwd::ampere
