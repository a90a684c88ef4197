// dQ as the product of a tile bias's gradient and K, by a kernel behind the main one: dQ = scale dBias K.
//
// Where each element of dBias has one pair, and no softcap lies between, it is dS, rounded as dQ's products take it. So
// the main kernel, which stores dBias anyway, need not compute dQ: reading dBias once more takes 2 bytes a pair, adding
// to dQ 4 d / 128, which the L2 cache has to add up (NOTES.md). Nobody waits for another's turn either.
//
// A CTA has 128 queries of a head. Two consumer warpgroups multiply 64 of them each, a warp loads.
#pragma once

#include "common/launch_kernel.hpp"
#include "common/launch_order.cuh"
#include "common/numeric.cuh"
#include "common/registers.cuh"
#include "common/side_kernels.cuh"
#include "common/visibility.hpp"
#include "hopper/consumer_warp.cuh"
#include "hopper/geometry.cuh"
#include "hopper/panel_tile.hpp"
#include "hopper/ptx.cuh"
#include "hopper/tensor_maps.hpp"
#include "hopper/wgmma.cuh"

namespace flashdma_bwd::hopper {

/// Tiles, threads and the layout of shared memory.
template <int kHeadDim>
struct QueryGradientGeometry {
  static constexpr int kD = kHeadDim;
  static constexpr int kM = 128;    ///< queries of a CTA
  static constexpr int kKeys = 64;  ///< of a step
  static constexpr int kConsumerWarps = 8;
  static constexpr int kThreads = (kConsumerWarps + 1) * 32;
  /// So that one's loads run under the end of another, where two have room.
  static constexpr int kCtasPerMultiprocessor = kD <= 128 ? 2 : 1;
  static constexpr int kStages = kD <= 128 ? 3 : kD <= 192 ? 5 : 4;

  using PairTile = PanelTile<kM, kKeys>;
  using KeyTile = PanelTile<kKeys, kD>;
  static constexpr int kStageBytes = PairTile::kBytes + KeyTile::kBytes;
  static constexpr int kState = kStages * kStageBytes;
  struct State {
    std::uint64_t full[kStages], empty[kStages];
  };
  static constexpr int kSharedBytes = kState + 128;
  static_assert(sizeof(State) <= kSharedBytes - kState);
  static_assert(PairTile::kPanels == 1 && KeyTile::kBytes % 1024 == 0);
  /// dQ leaves by way of what the warp has read of dBias, 64 columns in each stage.
  static_assert(kD <= kStages * kKeys);
};

template <DataType kType, int kHeadDim>
class QueryGradient {
  using G = QueryGradientGeometry<kHeadDim>;
  using State = typename G::State;
  using PairTile = typename G::PairTile;
  using KeyTile = typename G::KeyTile;

 public:
  __device__ __forceinline__ QueryGradient(const BackwardParameters& parameters, const QueryGradientMaps& tensor_maps,
                                           unsigned char* shared)
      : p(parameters),
        maps(tensor_maps),
        shared_(ptx::shared_address(shared)),
        state(*reinterpret_cast<State*>(shared + G::kState)) {}

  __device__ __forceinline__ void run() {
    if (!find_tile()) return;
    if (threadIdx.x == 0) {
      for (int i = 0; i < G::kStages; ++i) {
        ptx::mbarrier_init(ptx::shared_address(&state.full[i]), 1);
        ptx::mbarrier_init(ptx::shared_address(&state.empty[i]), G::kConsumerWarps);
      }
      ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x >= G::kConsumerWarps * 32) {
      if (threadIdx.x % 32 == 0) load();
    } else {
      multiply();
    }
  }

 private:
  using Ring = RingPosition<G::kStages>;

  /// Head by head, so that its K stays in the L2 cache, and the queries that see most keys under causality first.
  /// False: the sequence has no such queries.
  __device__ __forceinline__ bool find_tile() {
    const int tiles = (p.seqlen_q + G::kM - 1) / G::kM;
    const side::HeadBlock block = side::head_block(p, static_cast<int>(blockIdx.x), tiles);
    batch_ = block.batch;
    head_ = block.head;
    first_query_ = (tiles - 1 - block.index) * G::kM;
    sequence_ = sequence_of(p, batch_);
    if (first_query_ >= sequence_.length_q) return false;
    const Limits limits = limits_of(p, sequence_);
    const int last_query = min(first_query_ + G::kM, sequence_.length_q) - 1;
    first_key_ = max(first_query_ + limits.low, 0) / G::kKeys * G::kKeys;
    const int end = min(last_query + limits.high + 1, sequence_.length_k);
    steps_ = end > first_key_ ? (end - first_key_ + G::kKeys - 1) / G::kKeys : 0;
    return true;
  }

  __device__ __forceinline__ std::uint32_t stage(int index) const { return shared_ + index * G::kStageBytes; }

  __device__ __forceinline__ void load() const {
    const int head_kv = p.by.heads_per_kv.quotient(head_);
    const int key_row = p.seqlen_k - sequence_.length_k;
    const int end_row = static_cast<int>(sequence_.row_k) + sequence_.length_k;
    const int key_batch = p.cu_seqlens_k != nullptr ? 0 : batch_;
    for (int i = 0; i < steps_; ++i) {
      const Ring ring(i);
      const int key = first_key_ + i * G::kKeys;
      const std::uint32_t full = ptx::shared_address(&state.full[ring.stage]);
      ptx::mbarrier_wait_parity(ptx::shared_address(&state.empty[ring.stage]), ring.parity ^ 1);
      ptx::mbarrier_arrive_expect_tx(full, G::kStageBytes);
      ptx::cp_async_bulk_tensor_5d(
          stage(ring.stage), maps.d_bias,
          {key, p.seqlen_q - sequence_.length_q + first_query_, sequence_.length_q, head_, batch_}, full,
          ptx::kEvictFirst);
#pragma unroll
      for (int panel = 0; panel < KeyTile::kPanels; ++panel)
        ptx::cp_async_bulk_tensor_5d(
            stage(ring.stage) + PairTile::kBytes + panel * KeyTile::kPanelBytes, maps.k,
            {start_inside(panel * KeyTile::kPanelColumns, p.head_dim, 0), key_row + key, end_row, head_kv, key_batch},
            full, ptx::kEvictLast);
    }
  }

  __device__ __forceinline__ void multiply() const {
    const int consumer = ptx::uniform(static_cast<int>(threadIdx.x) / kWarpgroupThreads);
    float d_q[kHeadDim / 2];
#pragma unroll
    for (float& value : d_q) value = 0.0f;
    for (int i = 0; i < steps_; ++i) {
      const Ring ring(i);
      wait(state.full[ring.stage], ring.parity);
      const std::uint32_t d_scores =
          PairTile::descriptor(stage(ring.stage)) + consumer * (64 * PairTile::kRowBytes >> 4);
      const std::uint32_t keys = KeyTile::descriptor(stage(ring.stage) + PairTile::kBytes);
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < G::kKeys / 16; ++k)
        ptx::Wgmma<kHeadDim, kType == DataType::bf16>::template ss<false, true, true>(
            d_q, PairTile::descriptor_of(d_scores + PairTile::column_step(k)),
            KeyTile::descriptor_of(keys + KeyTile::row_step(k)));
      ptx::wgmma_commit_group();
      // The products of the step before have finished.
      ptx::wgmma_wait_group<1>();
      if (i > 0) arrive(state.empty[Ring(i - 1).stage]);
    }
    ptx::wgmma_wait_group<0>();
    write(consumer, d_q);
  }

  /// 16 rows of a warp, by way of its rows of dBias, which no copy writes and no product reads any more.
  __device__ __forceinline__ void write(int consumer, const float (&d_q)[kHeadDim / 2]) const {
    const int first_row = consumer * 64 + warp() * 16;
    const auto address = [&](int row, int chunk) {
      return stage(chunk / 8) + PairTile::chunk_offset(first_row + row, chunk % 8);
    };
    const int lane = hopper::lane();
    const Coordinate at = ldmatrix_coordinate(MatrixOrder::rows_first, lane);
#pragma unroll
    for (int c = 0; c < kHeadDim / 16; ++c) {
      std::uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        packed[i] = pack<kType>(d_q[c * 8 + i * 2] * p.scale, d_q[c * 8 + i * 2 + 1] * p.scale);
      ptx::stmatrix_x4(address(at.row, c * 2 + at.column), packed);
    }
    __syncwarp();
    constexpr int kChunks = kHeadDim / 8;
    static_assert(16 * kChunks % 32 == 0);
    const int query = first_query_ + first_row;
    auto* const rows = static_cast<std::uint16_t*>(p.d_q.data) +
                       side::row_offset(p.d_q, p.cu_seqlens_q != nullptr, batch_, sequence_.row_q + query, head_);
#pragma unroll
    for (int i = 0; i < 16 * kChunks / 32; ++i) {
      const int row = (lane + i * 32) / kChunks;
      const int chunk = (lane + i * 32) % kChunks;
      if (query + row < sequence_.length_q && chunk * 8 < p.head_dim)
        *reinterpret_cast<uint4*>(rows + row * p.d_q.stride_row + chunk * 8) = ptx::ld_shared_v4(address(row, chunk));
    }
  }

  const BackwardParameters& p;
  const QueryGradientMaps& maps;
  std::uint32_t shared_;
  State& state;
  SequenceRows sequence_;
  int batch_;
  int head_;
  int first_query_;
  int first_key_;  ///< of the first step
  int steps_;
};

namespace dynamic {
// A template has C++ linkage; the name is that of the other kernels' shared memory.
extern "C" {
extern __shared__ __align__(1024) unsigned char shared[];
}
}  // namespace dynamic

template <DataType kType, int kHeadDim>
__global__ void __launch_bounds__(QueryGradientGeometry<kHeadDim>::kThreads,
                                  QueryGradientGeometry<kHeadDim>::kCtasPerMultiprocessor)
    query_gradient_kernel(const __grid_constant__ BackwardParameters parameters,
                          const __grid_constant__ QueryGradientMaps maps) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  wait_for_predecessor_of_all();
  QueryGradient<kType, kHeadDim>(parameters, maps, dynamic::shared).run();
#endif
}

// A kernel template has a host stub in each translation unit. What refers to it is internal too (static), or the linker
// would take one unit's: the attribute would be set of another kernel than the one that is launched.
template <DataType kType, int kHeadDim>
static cudaError_t prepare_query_gradient() {
  return cudaFuncSetAttribute(query_gradient_kernel<kType, kHeadDim>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              QueryGradientGeometry<kHeadDim>::kSharedBytes);
}

/// dQ of a call without `d_q_scratch`, when the main kernel has stored dBias.
template <DataType kType, int kHeadDim>
static cudaError_t launch_query_gradient(const BackwardParameters& parameters, cudaStream_t stream) {
  using G = QueryGradientGeometry<kHeadDim>;
  const int ctas = (parameters.seqlen_q + G::kM - 1) / G::kM * parameters.batch * parameters.heads;
  if (ctas == 0) return cudaSuccess;
  QueryGradientMaps maps{};
  if (const cudaError_t error =
          encode_query_gradient_maps(maps, parameters, {G::kM, G::kKeys}, {G::kKeys, G::KeyTile::kPanelColumns});
      error != cudaSuccess)
    return error;
  return launch_kernel(query_gradient_kernel<kType, kHeadDim>,
                       Grid(static_cast<unsigned>(ctas)).launched_early(parameters.early_launches), G::kThreads,
                       G::kSharedBytes, stream, parameters, maps);
}

}  // namespace flashdma_bwd::hopper
