// What the GPU tests use to compare thousands of runs with the first one.
#include "support/run_differences.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "support/catch.hpp"

namespace flashdma_bwd::testing {
namespace {

ProblemSpec small_problem(flashdma_bwd_data_type type) {
  ProblemSpec spec;
  spec.data_type = type;
  spec.seqlen_q = 24;
  spec.seqlen_k = 40;
  spec.bias = {.present = true};
  spec.outputs.row_padding = 8;
  return spec;
}

/// A run's outputs, at first those of the first one.
struct Run {
  explicit Run(Problem& problem) {
    for (const Buffer* buffer : problem.outputs()) bytes.push_back(buffer->bytes);
  }
  void add_to(RunDifferences& differences) const {
    std::vector<const std::byte*> outputs;
    for (const std::vector<std::byte>& output : bytes) outputs.push_back(output.data());
    differences.add(outputs);
  }
  /// What lies so many bytes behind an output's first element.
  std::byte* element(Problem& problem, std::size_t output, std::size_t byte) {
    const Buffer& buffer = *problem.outputs()[output];
    return &bytes[output][static_cast<std::size_t>(buffer.data - buffer.bytes.data()) + byte];
  }
  /// Adds to the bits of the word there.
  void change(Problem& problem, std::size_t output, std::size_t byte, int steps) {
    std::byte* at = element(problem, output, byte);
    std::uint16_t word;
    std::memcpy(&word, at, sizeof word);
    word = static_cast<std::uint16_t>(word + steps);
    std::memcpy(at, &word, sizeof word);
  }
  std::vector<std::vector<std::byte>> bytes;
};

}  // namespace

TEST_CASE("runs beside the first: bytes, norm and the largest difference") {
  for (const flashdma_bwd_data_type type : {FLASHDMA_BWD_BF16, FLASHDMA_BWD_FP16})
    for (std::size_t output : {0, 1, 2, 3}) {
      Problem problem(small_problem(type));
      reference_gradients(problem);
      const Run first(problem);
      RunDifferences differences(problem);
      first.add_to(differences);
      CHECK(differences.different_runs() == 0);
      CHECK(differences.norm_error() == 0.0);

      // A step is what another order of additions may make of an element. It is a run's that counts, not the last's.
      Run step = first;
      step.change(problem, output, 6, 1);
      step.add_to(differences);
      first.add_to(differences);
      CHECK(differences.different_runs() == 1);
      CHECK(differences.norm_error() > 0);
      CHECK(differences.norm_error() < error_bar(type) / 4);
      CHECK(differences.element_error() > 0);
      CHECK(differences.element_error() <= 1);

      // The sign of one element: the norm may not notice.
      Run sign = first;
      sign.change(problem, output, 6, 0x8000);
      sign.add_to(differences);
      CHECK(differences.different_runs() == 2);
      CHECK(differences.element_error() > 1.5);
      CHECK_FALSE(differences.damaged());

      Run no_number = first;
      std::memset(no_number.element(problem, output, 6), 0xff, 2);
      no_number.add_to(differences);
      CHECK(std::isinf(differences.norm_error()));
      CHECK(std::isinf(differences.element_error()));
    }
}

TEST_CASE("runs beside the first: a byte between rows") {
  Problem problem(small_problem(FLASHDMA_BWD_BF16));
  reference_gradients(problem);
  RunDifferences differences(problem);
  Run run(problem);
  run.change(problem, 0, 64 * 2, 1);  // of the padding after the first row
  run.add_to(differences);
  CHECK(differences.damaged());
  CHECK(differences.different_runs() == 1);
  CHECK(differences.element_error() == 0.0);
}

TEST_CASE("runs beside the first: outputs of 16 bits only") {
  ProblemSpec spec = small_problem(FLASHDMA_BWD_BF16);
  spec.bias = {.present = true, .gradient_fp32 = true};
  Problem problem(spec);
  CHECK_THROWS_AS(RunDifferences(problem), std::logic_error);
}

}  // namespace flashdma_bwd::testing
