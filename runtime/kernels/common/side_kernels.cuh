// What the kernels around the main one have in common. Each reads its input once, with 16 bytes a thread as a rule, and
// is bound by memory bandwidth.
#pragma once

#include "common/parameters.hpp"
#include "common/side_kernels.hpp"

namespace flashdma_bwd::side {

inline constexpr int kThreads = 256;

__device__ __forceinline__ std::int64_t row_offset(const TensorView& tensor, bool packed, int batch, std::int64_t row,
                                                   int head) {
  return (packed ? 0 : batch * tensor.stride_batch) + row * tensor.stride_row + head * tensor.stride_head;
}

/// A block of one (batch, head); the grid holds `blocks` for each.
struct HeadBlock {
  int batch;
  int head;
  int index;
};
__device__ __forceinline__ HeadBlock head_block(const BackwardParameters& p, int block, int blocks) {
  const int batch_head = block / blocks;
  return {batch_head / p.heads, batch_head % p.heads, block % blocks};
}

inline unsigned blocks_for(std::int64_t elements) {
  return static_cast<unsigned>((elements + kThreads - 1) / kThreads);
}

// Each loads a file's kernels into the current context.
cudaError_t load_preprocess();
cudaError_t load_convert_gradients();
cudaError_t load_d_key_value();
cudaError_t load_reduce_bias_gradient();
cudaError_t load_clear_bias_gradient();

}  // namespace flashdma_bwd::side
