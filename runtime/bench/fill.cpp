// Random contents for device memory. See fill.hpp.
#include "fill.hpp"

#include <algorithm>
#include <vector>

#include "normal_sequence.hpp"
#include "reference/number_formats.hpp"

namespace flashdma_bwd::bench {

cudaError_t fill_normal(void* data, std::size_t count, bool bf16, float deviation, std::uint64_t seed) {
  const NormalSequence values(seed, deviation);
  std::vector<std::uint16_t> pattern(std::min(count, NormalSequence::kPeriod));
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const auto value = static_cast<double>(values[i]);
    pattern[i] = bf16 ? bf16_from_double(value) : fp16_from_double(value);
  }
  auto* to = static_cast<std::uint16_t*>(data);
  for (std::size_t done = 0; done < count; done += pattern.size()) {
    const std::size_t part = std::min(pattern.size(), count - done);
    if (const cudaError_t error = cudaMemcpy(to + done, pattern.data(), 2 * part, cudaMemcpyHostToDevice);
        error != cudaSuccess)
      return error;
  }
  return cudaSuccess;
}

}  // namespace flashdma_bwd::bench
