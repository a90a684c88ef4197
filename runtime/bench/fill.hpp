// Random contents for device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace flashdma_bwd::bench {

/// Writes `count` 16-bit values of a seed's NormalSequence.
cudaError_t fill_normal(void* data, std::size_t count, bool bf16, float deviation, std::uint64_t seed);

}  // namespace flashdma_bwd::bench
