// Random contents for device memory. See fill.hpp.
#include "fill.hpp"

#include <algorithm>
#include <vector>

#include "normal_sequence.hpp"

namespace flashdma_bwd::bench {

cudaError_t fill_normal(void* data, std::size_t count, bool bf16, float deviation, std::uint64_t seed) {
  const NormalSequence values(seed, deviation);
  const std::vector<std::uint16_t>& period = values.rounded(bf16);
  auto* to = static_cast<std::uint16_t*>(data);
  for (std::size_t done = 0, from = values.offset(); done < count; from = 0) {
    const std::size_t part = std::min(period.size() - from, count - done);
    if (const cudaError_t error = cudaMemcpy(to + done, period.data() + from, 2 * part, cudaMemcpyHostToDevice);
        error != cudaSuccess)
      return error;
    done += part;
  }
  return cudaSuccess;
}

}  // namespace flashdma_bwd::bench
