// The gradients from float32 scratch to 16 bits: dQ, and dK and dV of items whose pieces are summed later. The kernel
// after the main one.
#include "common/add_pieces.cuh"
#include "common/fragments.hpp"
#include "common/launch_kernel.hpp"
#include "common/launch_order.cuh"
#include "common/load_kernels.hpp"
#include "common/numeric.cuh"
#include "common/side_kernels.cuh"
#include "common/transpose_quad.cuh"
#include "common/visibility.hpp"

namespace flashdma_bwd {
namespace {

using namespace side;

FLASHDMA_HOST_DEVICE int convert_blocks(const BackwardParameters& p, int bucket) {
  constexpr int kWarps = kThreads / 32;
  return ((p.seqlen_q + 15) / 16 * (bucket / 32) + kWarps - 1) / kWarps;
}

/// A warp converts four neighbouring atoms: 16 rows of 32 columns.
template <DataType Type>
__device__ __forceinline__ void convert_d_query(const BackwardParameters& p, int bucket, int grid_block) {
  const HeadBlock block = head_block(p, grid_block, convert_blocks(p, bucket));
  const int batch = block.batch;
  const int head = block.head;
  const SequenceRows sequence = sequence_of(p, batch);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int groups = bucket / 32;
  const int index = block.index * (kThreads / 32) + static_cast<int>(threadIdx.x) / 32;
  const int first_row = index / groups * 16;
  const int group = index % groups;
  if (first_row >= sequence.length_q) return;

  const float* atoms =
      p.d_q_scratch +
      ((head * p.scratch_rows + sequence.scratch_row + first_row) / 16 * (bucket / 8) + group * 4) * kAtomFloats;
  std::uint32_t words[2][4];
#pragma unroll
  for (int atom = 0; atom < 4; ++atom) {
    float v[4];
    if (p.d_q_vectorised) {
      const float4 four =
          __ldcg(reinterpret_cast<const float4*>(atoms + atom * kAtomFloats + atom_offset(true, lane, 0)));
      v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e) v[e] = __ldcg(atoms + atom * kAtomFloats + atom_offset(false, lane, e));
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      words[half][atom] = pack<Type>(v[half * 2] * p.scale, v[half * 2 + 1] * p.scale);
  }
  const int column = group * 32 + lane % 4 * 8;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    transpose_quad(words[half], lane);
    const int row = first_row + half * 8 + lane / 4;
    if (row >= sequence.length_q || column >= p.head_dim) continue;
    auto* out = static_cast<std::uint16_t*>(p.d_q.data) +
                row_offset(p.d_q, p.cu_seqlens_q != nullptr, batch, sequence.row_q + row, head) + column;
    *reinterpret_cast<uint4*>(out) = {words[half][0], words[half][1], words[half][2], words[half][3]};
  }
}

/// kPieces: the first blocks add up pieces, which takes one of them longer than the others take to convert dQ.
template <DataType Type, bool kPieces>
__global__ void __launch_bounds__(kThreads)
    convert_gradients_kernel(const __grid_constant__ BackwardParameters p, int bucket, bool first) {
  begin_behind_main(first);
  auto block = static_cast<int>(blockIdx.x);
  if constexpr (kPieces) {
    const auto blocks_of_pieces = static_cast<int>(add_pieces_blocks(p));
    if (block < blocks_of_pieces) add_pieces<Type, kThreads>(p, block);
    block -= blocks_of_pieces;
  }
  if (block >= 0) convert_d_query<Type>(p, bucket, block);
  end_behind_main(first);
}

template <DataType Type>
cudaError_t launch_convert_gradients(const BackwardParameters& p, int bucket, bool first, cudaStream_t stream) {
  const unsigned pieces = add_pieces_blocks(p);
  const unsigned blocks_of_d_query = p.d_q_scratch == nullptr ? 0
                                                              : static_cast<unsigned>(convert_blocks(p, bucket)) *
                                                                    static_cast<unsigned>(p.batch * p.heads);
  const unsigned blocks = pieces + blocks_of_d_query;
  if (blocks == 0) return cudaSuccess;
  const auto kernel = pieces > 0 ? convert_gradients_kernel<Type, true> : convert_gradients_kernel<Type, false>;
  return launch_kernel(kernel, Grid(blocks).launched_early(p.early_launches), kThreads, 0, stream, p, bucket, first);
}

}  // namespace

cudaError_t convert_gradients(const BackwardParameters& p, int bucket, bool first, cudaStream_t stream) {
  return p.data_type == DataType::bf16 ? launch_convert_gradients<DataType::bf16>(p, bucket, first, stream)
                                       : launch_convert_gradients<DataType::fp16>(p, bucket, first, stream);
}

cudaError_t side::load_convert_gradients() {
  constexpr DataType bf16 = DataType::bf16;
  constexpr DataType fp16 = DataType::fp16;
  return load_kernels(convert_gradients_kernel<bf16, false>, convert_gradients_kernel<bf16, true>,
                      convert_gradients_kernel<fp16, false>, convert_gradients_kernel<fp16, true>);
}

}  // namespace flashdma_bwd
