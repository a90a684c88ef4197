// Random contents for device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace flashdma_bwd::bench {

/// Writes `count` 16-bit values, normally distributed with the given standard deviation; the same seed gives the same
/// values. They repeat after about a million, an odd number, so that no two rows of a tensor are alike, nor two of
/// tensors with neighbouring seeds. Not for several threads at once.
cudaError_t fill_normal(void* data, std::size_t count, bool bf16, float deviation, std::uint64_t seed);

}  // namespace flashdma_bwd::bench
