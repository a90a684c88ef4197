// What all parts of the Ampere kernel work on: the call's parameters, the item, and where things lie in shared memory.
#pragma once

#include "ampere/geometry.cuh"
#include "ampere/tile_loads.cuh"
#include "ampere/warp_gemm.cuh"

namespace flashdma_bwd::ampere {

template <KernelConfig kConfig>
struct Cta {
  using G = Geometry<kConfig>;

  const BackwardParameters& p;
  unsigned char* shared;
  std::uint32_t shared_base;  ///< its address in the shared window

  __device__ __forceinline__ Cta(const BackwardParameters& parameters, unsigned char* shared_memory)
      : p(parameters), shared(shared_memory), shared_base(ptx::shared_address(shared_memory)) {}

  // --- Threads and warps ---

  static __device__ __forceinline__ int thread() { return ptx::fresh_thread_index(); }
  /// The warp's share of a matrix of which `WarpsAlongRows` warps lie along the rows.
  template <int WarpsAlongRows, int Rows, int Columns>
  static __device__ __forceinline__ WarpShare share_of() {
    const int index = thread();
    const int warp = index / 32;
    return {index % 32, warp % WarpsAlongRows * Rows, warp / WarpsAlongRows * Columns};
  }
  static __device__ __forceinline__ WarpShare score_share() {
    return share_of<G::kScoreWarpsM, G::kScoreRows, G::kScoreColumns>();
  }
  static __device__ __forceinline__ WarpShare dkv_share() {
    return share_of<G::kDkvWarpsN, G::kDkvRows, G::kDkvColumns>();
  }
  static __device__ __forceinline__ WarpShare dq_share() { return share_of<G::kDqWarpsM, G::kDqRows, G::kDqColumns>(); }

  // --- Shared memory ---

  __device__ __forceinline__ Item& item() const { return *reinterpret_cast<Item*>(shared + G::kState); }
  /// The keys of the tile's rows; kPastEnd past the end.
  __device__ __forceinline__ int* positions() const { return reinterpret_cast<int*>(shared + G::kPositions); }
  /// The keys of two neighbouring columns of the tile; kPastEnd past the end.
  __device__ __forceinline__ int2 key_pair(int column) const {
    return *reinterpret_cast<const int2*>(positions() + column);
  }
  /// A key-vector bias of the tile's keys with the head at work, in units of log2.
  __device__ __forceinline__ float* key_bias() const { return reinterpret_cast<float*>(shared + G::kBias); }
  /// Of a step: LSE of its block_m queries, then D.
  __device__ __forceinline__ const float* statistics(int step) const {
    return reinterpret_cast<const float*>(shared + G::kStatistics) + step % 2 * (2 * G::kM);
  }

  // --- The keys in K, V, dK and dV ---

  __device__ __forceinline__ int kv_head() const {
    return item().head_item * p.heads_per_item / (p.heads / p.heads_kv);
  }
  __device__ __forceinline__ HeadView key_head(const TensorView& tensor) const {
    return head_view(tensor, item().batch, kv_head(), item().sequence.row_k, p.cu_seqlens_k != nullptr);
  }
  /// The key of a row of the tile, negative past the end.
  __device__ __forceinline__ auto key_of_row() const {
    return [positions = positions()](int row) { return positions[row] == kPastEnd ? -1 : positions[row]; };
  }
};

}  // namespace flashdma_bwd::ampere
