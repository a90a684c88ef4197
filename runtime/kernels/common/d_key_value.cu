// Rows of dK and dV that are added up from those of several items, and rows of them, and of dQ, that no item writes.
#include "common/launch_kernel.hpp"
#include "common/launch_order.cuh"
#include "common/load_kernels.hpp"
#include "common/numeric.cuh"
#include "common/side_kernels.cuh"
#include "common/visibility.hpp"

namespace flashdma_bwd {
namespace {

using namespace side;

/// A key of any sequence.
struct KeyRow {
  int batch;
  std::int64_t row;  ///< of the tensor
  bool inside;
};
/// `scratch_row`: of the key scratch.
__device__ __forceinline__ KeyRow key_row(const BackwardParameters& p, std::int64_t scratch_row) {
  const bool packed = p.cu_seqlens_k != nullptr;
  KeyRow key;
  key.inside = scratch_row < (packed ? p.cu_seqlens_k[p.batch] : p.key_rows);
  key.batch = packed ? 0 : static_cast<int>(scratch_row / p.seqlen_k);
  key.row = packed ? scratch_row : scratch_row % p.seqlen_k;
  return key;
}

/// Whether an item writes the key: those of a reordered mask have active keys only.
__device__ __forceinline__ bool is_written(const BackwardParameters& p, const KeyRow& key, int head_item) {
  if (p.key_ends == nullptr) return true;
  const int mask = key.batch * p.compact_batch_stride + head_item * p.heads_per_item / p.mask_heads_per_head;
  return p.key_orders[mask].natural != 0 || p.key_ends[std::int64_t{mask} * p.seqlen_k + key.row] != 0;
}

/// A thread adds eight columns of a row.
template <DataType Type>
__device__ __forceinline__ void reduce_d_key_value(const BackwardParameters& p, bool value) {
  const int chunks = p.head_dim / 8;
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int column = static_cast<int>(index % chunks) * 8;
  const auto head = static_cast<int>(index / chunks % p.heads_kv);
  const std::int64_t scratch_row = index / chunks / p.heads_kv;
  const KeyRow key = key_row(p, scratch_row);
  if (!key.inside) return;
  const int items = p.heads / p.heads_kv / p.heads_per_item;
  const float* source = (value ? p.d_v_partial : p.d_k_partial) +
                        (std::int64_t{head} * items * p.key_rows + scratch_row) * p.head_dim + column;
  float sum[8] = {};
  for (int i = 0; i < items; ++i, source += p.key_rows * p.head_dim) {
    if (!is_written(p, key, head * items + i)) continue;
    const float4 low = __ldcg(reinterpret_cast<const float4*>(source));
    const float4 high = __ldcg(reinterpret_cast<const float4*>(source) + 1);
    sum[0] += low.x, sum[1] += low.y, sum[2] += low.z, sum[3] += low.w;
    sum[4] += high.x, sum[5] += high.y, sum[6] += high.z, sum[7] += high.w;
  }
  const TensorView& tensor = value ? p.d_v : p.d_k;
  auto* out = static_cast<std::uint16_t*>(tensor.data) +
              row_offset(tensor, p.cu_seqlens_k != nullptr, key.batch, key.row, head) + column;
  *reinterpret_cast<uint4*>(out) = {pack<Type>(sum[0], sum[1]), pack<Type>(sum[2], sum[3]), pack<Type>(sum[4], sum[5]),
                                    pack<Type>(sum[6], sum[7])};
}

template <DataType Type>
__global__ void __launch_bounds__(kThreads)
    reduce_d_key_value_kernel(const __grid_constant__ BackwardParameters p, bool first) {
  begin_behind_main(first);
  reduce_d_key_value<Type>(p, blockIdx.y != 0);
  end_behind_main(first);
}

/// Keys of a head that a warp of the clearing kernel looks at, one a lane.
constexpr int kKeysOfWarp = 32;

/// The warp finds the rows that nobody writes, then clears one after the other, of dK and dV together.
__global__ void __launch_bounds__(kThreads) clear_d_key_value_kernel(const __grid_constant__ BackwardParameters p) {
  let_successor_launch();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t warp = std::int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  const auto head = static_cast<int>(warp % p.heads_kv);
  const KeyRow own = key_row(p, warp / p.heads_kv * kKeysOfWarp + lane);
  const int chunks = p.head_dim / 8;
  unsigned rows = __ballot_sync(0xffffffffu, own.inside && (p.key_ends == nullptr || !is_written(p, own, head)));
  for (; rows != 0; rows &= rows - 1) {
    const int at = __ffs(static_cast<int>(rows)) - 1;
    const int batch = __shfl_sync(0xffffffffu, own.batch, at);
    const std::int64_t row = __shfl_sync(0xffffffffu, own.row, at);
    for (int chunk = lane; chunk < 2 * chunks; chunk += 32) {
      const bool value = chunk >= chunks;
      const TensorView& tensor = value ? p.d_v : p.d_k;
      auto* out = static_cast<std::uint16_t*>(tensor.data) +
                  row_offset(tensor, p.cu_seqlens_k != nullptr, batch, row, head) +
                  (value ? chunk - chunks : chunk) * 8;
      *reinterpret_cast<uint4*>(out) = {0, 0, 0, 0};
    }
  }
  wait_for_predecessor();
}

/// A few CTAs walk the tail, which is empty where the caller gives the packed tensors their exact size.
constexpr int kTailBlocks = 64;

__global__ void __launch_bounds__(kThreads) clear_packed_tails_kernel(const __grid_constant__ BackwardParameters p,
                                                                      std::int64_t total_q, std::int64_t total_k) {
  const bool query = blockIdx.y == 0;
  const TensorView& tensor = query ? p.d_q : blockIdx.y == 1 ? p.d_k : p.d_v;
  const std::int64_t first = query ? p.cu_seqlens_q[p.batch] : p.cu_seqlens_k[p.batch];
  const std::int64_t total = query ? total_q : total_k;
  const int heads = query ? p.heads : p.heads_kv;
  const int chunks = p.head_dim / 8;
  const std::int64_t step = std::int64_t{kTailBlocks} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < (total - first) * heads * chunks;
       i += step) {
    const std::int64_t row = first + i / chunks / heads;
    auto* out = static_cast<std::uint16_t*>(tensor.data) +
                row_offset(tensor, true, 0, row, static_cast<int>(i / chunks % heads)) + i % chunks * 8;
    *reinterpret_cast<uint4*>(out) = {0, 0, 0, 0};
  }
}

}  // namespace

cudaError_t reduce_d_key_value(const BackwardParameters& p, bool first, cudaStream_t stream) {
  const unsigned blocks = blocks_for(p.key_rows * p.heads_kv * (p.head_dim / 8));
  if (blocks == 0) return cudaSuccess;
  const Grid grid = Grid(dim3(blocks, 2)).launched_early(p.early_launches);
  if (p.data_type == DataType::bf16)
    return launch_kernel(reduce_d_key_value_kernel<DataType::bf16>, grid, kThreads, 0, stream, p, first);
  return launch_kernel(reduce_d_key_value_kernel<DataType::fp16>, grid, kThreads, 0, stream, p, first);
}

cudaError_t clear_d_key_value(const BackwardParameters& p, cudaStream_t stream) {
  const unsigned blocks = blocks_for((p.key_rows + kKeysOfWarp - 1) / kKeysOfWarp * 32 * p.heads_kv);
  if (blocks == 0) return cudaSuccess;
  return launch_kernel(clear_d_key_value_kernel, Grid(blocks).launched_early(p.early_launches), kThreads, 0, stream, p);
}

cudaError_t clear_packed_tails(const BackwardParameters& p, std::int64_t total_q, std::int64_t total_k,
                               cudaStream_t stream) {
  return launch_kernel(clear_packed_tails_kernel, dim3(kTailBlocks, 3), kThreads, 0, stream, p, total_q, total_k);
}

cudaError_t side::load_d_key_value() {
  return load_kernels(reduce_d_key_value_kernel<DataType::bf16>, reduce_d_key_value_kernel<DataType::fp16>,
                      clear_d_key_value_kernel, clear_packed_tails_kernel);
}

}  // namespace flashdma_bwd
