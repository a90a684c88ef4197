// Comparison of bytes, and of the words that differ.
#include "support/run_differences.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "reference/number_formats.hpp"

namespace flashdma_bwd::testing {
namespace {

constexpr std::size_t kWordBytes = 2;
constexpr std::size_t kChunkBytes = 256;

}  // namespace

RunDifferences::RunDifferences(Problem& problem) : problem_(problem), first_(read_gradients(problem)) {
  const flashdma_bwd_arguments& a = problem.arguments();
  if (a.d_bias.data != nullptr && a.d_bias.data_type != a.data_type)
    throw std::logic_error("RunDifferences: dBias is not of the problem's type");
  for (Buffer* buffer : problem.outputs()) {
    Output output{buffer, buffer->bytes};
    for (std::size_t at = 0; at + kWordBytes <= buffer->bytes.size(); at += kWordBytes)
      if (buffer->owned[at] != 0) output.largest = std::max(output.largest, std::fabs(value(&output.first[at])));
    outputs_.push_back(std::move(output));
  }
}

double RunDifferences::value(const std::byte* word) const {
  std::uint16_t bits;
  std::memcpy(&bits, word, sizeof bits);
  return static_cast<double>(problem_.spec().data_type == FLASHDMA_BWD_FP16 ? fp16_to_float(bits)
                                                                            : bf16_to_float(bits));
}

double RunDifferences::squares_of(Output& output, const std::byte* other) {
  const double step = problem_.spec().data_type == FLASHDMA_BWD_FP16 ? 0x1p-10 : 0x1p-7;
  const std::vector<std::byte>& first = output.first;
  double squares = 0;
  for (std::size_t begin = 0; begin < first.size(); begin += kChunkBytes) {
    const std::size_t bytes = std::min(kChunkBytes, first.size() - begin);
    if (std::memcmp(&first[begin], other + begin, bytes) == 0) continue;
    for (std::size_t at = begin; at < begin + bytes; at += kWordBytes) {
      if (std::memcmp(&first[at], other + at, kWordBytes) == 0) continue;
      if (output.buffer->owned[at] == 0) {
        damaged_ = true;
        continue;
      }
      const double before = value(&first[at]), after = value(other + at);
      const double difference = std::fabs(after - before);
      const double room = step * std::max(std::fabs(before), std::fabs(after)) + 0x1p-14 * output.largest;
      // What is no number is infinitely far away.
      const bool number = std::isfinite(difference) && room > 0;
      element_error_ = std::max(element_error_, number ? difference / room : std::numeric_limits<double>::infinity());
      squares += number ? difference * difference : std::numeric_limits<double>::infinity();
    }
  }
  return squares;
}

void RunDifferences::add(const std::vector<const std::byte*>& outputs) {
  bool differs = false, farthest = false;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    Output& output = outputs_[i];
    if (std::memcmp(output.first.data(), outputs[i], output.first.size()) == 0) continue;
    differs = true;
    const double squares = squares_of(output, outputs[i]);
    farthest = farthest || squares > output.squares;
    output.squares = std::max(output.squares, squares);
  }
  if (differs) ++different_runs_;
  // A run that is nowhere farther from the first than those before has no larger error.
  if (!farthest) return;
  for (std::size_t i = 0; i < outputs_.size(); ++i)
    std::copy_n(outputs[i], outputs_[i].first.size(), outputs_[i].buffer->bytes.begin());
  norm_error_ = std::max(norm_error_, gradient_errors(problem_, read_gradients(problem_), first_).largest());
}

}  // namespace flashdma_bwd::testing
