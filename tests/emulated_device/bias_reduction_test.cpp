// The reduction of dBias of every kind of source and output, against sums on the host. Whole numbers, so that each
// order of a sum gives the same.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "common/side_kernels.hpp"
#include "support/catch.hpp"

using namespace flashdma_bwd;

namespace {

struct Reduced {
  const char* name;
  PairShape from;
  PairShape to;
};

std::string text_of(const PairShape& s) {
  return "[" + std::to_string(s.batch) + "," + std::to_string(s.heads) + "," + std::to_string(s.rows) + "," +
         std::to_string(s.columns) + "]";
}

/// Of each element of a contiguous array of the shape `to`.
std::vector<double> sums(const std::vector<float>& source, const PairShape& from, const PairShape& to) {
  std::vector<double> result(static_cast<std::size_t>(to.size()));
  std::size_t at = 0;
  for (std::int64_t b = 0; b < from.batch; ++b)
    for (std::int64_t h = 0; h < from.heads; ++h)
      for (std::int64_t r = 0; r < from.rows; ++r)
        for (std::int64_t c = 0; c < from.columns; ++c) {
          const std::int64_t index =
              ((b * to.batch / from.batch * to.heads + h * to.heads / from.heads) * to.rows + r * to.rows / from.rows) *
                  to.columns +
              c * to.columns / from.columns;
          result[static_cast<std::size_t>(index)] += source[at++];
        }
  return result;
}

constexpr float kPoison = -12345.0f;

/// `padding`: elements between rows of the output, which nothing may write.
void check(const Reduced& problem, bool is_float, std::int64_t padding) {
  const auto& [name, from, to] = problem;
  INFO(name << ": " << text_of(from) << " to " << text_of(to) << (is_float ? " float32" : " bf16") << ", padding "
            << padding);
  std::mt19937 generator(7);
  std::uniform_int_distribution<int> number(-2, 2);
  std::vector<float> source(static_cast<std::size_t>(from.size()));
  for (float& value : source) value = static_cast<float>(number(generator));

  const std::int64_t row = to.columns + padding;
  const auto elements = static_cast<std::size_t>(to.batch * to.heads * to.rows * row);
  std::vector<float> floats(is_float ? elements : 0, kPoison);
  std::vector<std::uint16_t> halves(is_float ? 0 : elements, 0xffff);
  BiasGradientOutput output;
  output.data = is_float ? static_cast<void*>(floats.data()) : halves.data();
  output.is_float = is_float;
  output.shape = to;
  output.stride_column = 1;
  output.stride_row = row;
  output.stride_head = to.rows * row;
  output.stride_batch = to.heads * to.rows * row;
  BackwardParameters parameters;
  parameters.data_type = DataType::bf16;
  REQUIRE(reduce_bias_gradient(source.data(), from, output, parameters, true, nullptr) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);

  const std::vector<double> expected = sums(source, from, to);
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    const auto column = static_cast<std::int64_t>(i) % row;
    if (column >= to.columns) {
      wrong += is_float ? floats[i] != kPoison : halves[i] != 0xffff;
      continue;
    }
    const double sum = expected[static_cast<std::size_t>(static_cast<std::int64_t>(i) / row * to.columns + column)];
    float value = 0;
    if (is_float) {
      value = floats[i];
    } else {
      const std::uint32_t bits = std::uint32_t{halves[i]} << 16;
      std::memcpy(&value, &bits, sizeof value);
    }
    // bf16 has eight bits.
    wrong += is_float ? value != sum : !(std::abs(value - sum) <= std::abs(sum) / 256);
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("dBias of every shape is the sum of its pairs'", "[bias-reduction]") {
  for (const Reduced& problem : {
           Reduced{"as many", {2, 3, 4, 1000}, {2, 3, 4, 1000}},
           Reduced{"as many, odd", {2, 3, 4, 1001}, {2, 3, 4, 1001}},
           Reduced{"a few heads", {2, 4, 1, 1000}, {2, 2, 1, 1000}},
           Reduced{"a few heads and batch entries, rows kept", {2, 4, 30, 200}, {1, 2, 30, 200}},
           Reduced{"many heads and batch entries, rows kept", {4, 6, 20, 70}, {1, 2, 20, 70}},
           Reduced{"pieces of some heads and all batch entries", {2, 4, 3, 1000}, {1, 2, 1, 1000}},
           Reduced{"all but columns", {3, 5, 70, 130}, {1, 1, 1, 130}},
           Reduced{"much output", {4, 64, 1, 16384}, {4, 2, 1, 16384}},
           Reduced{"much output, rows kept", {2, 32, 4, 32768}, {1, 1, 4, 32768}},
           Reduced{"columns", {2, 4, 30, 700}, {2, 4, 30, 1}},
           Reduced{"columns and heads and batch entries, rows kept", {2, 4, 30, 700}, {1, 2, 30, 1}},
           Reduced{"columns and rows", {2, 4, 30, 700}, {2, 4, 1, 1}},
           Reduced{"all", {2, 4, 30, 700}, {1, 1, 1, 1}},
       })
    for (const bool is_float : {true, false})
      for (const std::int64_t padding : {0, 3}) check(problem, is_float, padding);
}

TEST_CASE("dBias without pairs is zero", "[bias-reduction]") {
  check({"no queries", {2, 4, 0, 200}, {1, 1, 1, 200}}, true, 0);
}
