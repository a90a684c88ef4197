// Lists of active keys as a row of bits for each mask, which sorts them and drops what stands twice.
#include "common/launch_kernel.hpp"
#include "common/load_kernels.hpp"
#include "plan/mask_atoms.cuh"

namespace flashdma_bwd {
namespace {

constexpr int kMarkThreads = 1024;

/// One CTA clears the bits of one mask and sets those of its keys.
__global__ void __launch_bounds__(kMarkThreads) mark_keys_kernel(MaskView mask, std::uint32_t* bits) {
  const int mask_index = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const std::int32_t* list = mask_head<std::int32_t>(mask, mask_index);
  const int words = mask_atoms(mask.keys) * 2;
  std::uint32_t* row = bits + std::int64_t{mask_index} * words;
  for (int word = thread; word < words; word += kMarkThreads) row[word] = 0;
  __syncthreads();
  for (int i = thread; i < mask.columns; i += kMarkThreads) {
    const std::int32_t key = __ldg(list + i * mask.stride_column);
    if (key >= 0 && key < mask.keys) atomicOr(row + key / 32, 1u << (key % 32));
  }
}

}  // namespace

cudaError_t mark_keys(MaskView& mask, std::uint64_t* bits, cudaStream_t stream) {
  const std::int64_t bytes = std::int64_t{mask_atoms(mask.keys)} * 8;
  const auto masks = static_cast<unsigned>(mask.batch * mask.heads);
  const cudaError_t error =
      masks == 0 ? cudaSuccess
                 : launch_kernel(mark_keys_kernel, masks, kMarkThreads, 0, stream, static_cast<const MaskView&>(mask),
                                 reinterpret_cast<std::uint32_t*>(bits));
  mask.data = bits;
  mask.encoding = MaskEncoding::bits;
  mask.columns = mask.keys;
  mask.stride_head = bytes;
  mask.stride_batch = mask.heads * bytes;
  mask.stride_row = mask.stride_column = 0;
  return error;
}

cudaError_t load_key_list_kernels() {
  return load_kernels(mark_keys_kernel);
}

}  // namespace flashdma_bwd
