// Random contents for device memory. See fill.hpp.
#include "fill.hpp"

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "reference/number_formats.hpp"

namespace flashdma_bwd::bench {
namespace {

constexpr std::size_t kPeriod = (1u << 20) + 7;
constexpr std::size_t kSequences = 16;

std::vector<float> normal_values(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(kPeriod);
  for (float& value : values) value = normal(random);
  return values;
}

/// Neighbouring seeds have sequences of their own: from places in the same one, some row of Q would be a row of K.
const std::vector<float>& sequence_of(std::uint64_t seed) {
  static std::array<std::vector<float>, kSequences> sequences;
  std::vector<float>& values = sequences[seed % kSequences];
  if (values.empty()) values = normal_values(seed % kSequences + 1);
  return values;
}

}  // namespace

cudaError_t fill_normal(void* data, std::size_t count, bool bf16, float deviation, std::uint64_t seed) {
  const std::vector<float>& values = sequence_of(seed);
  const std::size_t offset = seed * 104729 % kPeriod;
  std::vector<std::uint16_t> pattern(std::min(count, kPeriod));
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const auto value = static_cast<double>(deviation * values[(i + offset) % kPeriod]);
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
