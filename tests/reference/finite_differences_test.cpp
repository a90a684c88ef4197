// The CPU backward against central differences.
//
// Two functions are differentiated. The loss sum(dO * O) of the double-precision forward shows that the formulas are
// those of attention; it cannot be sharp, since the backward is given an O of 16 bits. The backward's potential (see
// forward.hpp) uses that very O, so there each element has to agree to half a unit in the last place of its type.
#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/forward.hpp"
#include "support/problem.hpp"
#include "support/random.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

constexpr double kStep = 1e-4;

double loss(const Problem& problem, const ForwardInputs& inputs) {
  const flashdma_bwd_arguments& a = problem.arguments();
  const std::vector<double> out = forward(a, inputs, 1).out;
  const std::vector<double> d_out = tensor_values(a, a.d_out, problem.query_rows(), a.heads);
  double sum = 0;
  for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * d_out[i];
  return sum;
}

template <class Function>
double central_difference(ForwardInputs& inputs, std::vector<double>& varied, std::size_t element,
                          const Function& function) {
  const double value = varied[element];
  varied[element] = value + kStep;
  const double above = function(inputs);
  varied[element] = value - kStep;
  const double below = function(inputs);
  varied[element] = value;
  return (above - below) / (2 * kStep);
}

/// Half a unit in the last place of a value rounded to `type`, relative, and the same of its subnormals, absolute.
double relative_rounding(std::int32_t type) {
  return type == FLASHDMA_BWD_FP16 ? 0x1p-11 : type == FLASHDMA_BWD_BF16 ? 0x1p-8 : 0x1p-24;
}
double absolute_rounding(std::int32_t type) {
  return type == FLASHDMA_BWD_FP16 ? 0x1p-25 : 0;
}

/// Checks up to `samples` elements of each gradient.
void check_gradients(const ProblemSpec& spec, std::int64_t samples = 48) {
  Problem problem(spec);
  INFO(problem.spec().text());
  const Gradients gradients = reference_gradients(problem, 1);
  CHECK(problem.damaged_canaries() == "");
  const flashdma_bwd_arguments& a = problem.arguments();
  ForwardInputs inputs = forward_inputs(a);
  const auto potential = [&](const ForwardInputs& at) { return backward_potential(a, at); };
  const auto whole_loss = [&](const ForwardInputs& at) { return loss(problem, at); };
  // Rounding O changes each row's D by at most this in sum, and the dBias of a whole row, which cancels to 0, by all of
  // it.
  double row_dot_rounding = 0;
  const std::vector<double> out = tensor_values(a, a.out, problem.query_rows(), a.heads);
  const std::vector<double> d_out = tensor_values(a, a.d_out, problem.query_rows(), a.heads);
  for (std::size_t i = 0; i < out.size(); ++i)
    row_dot_rounding += std::fabs(out[i] * d_out[i]) * relative_rounding(a.data_type);
  Random random(7);
  const auto check = [&](const char* name, std::vector<double>& varied, const std::vector<double>& gradient,
                         std::int32_t type) {
    REQUIRE(varied.size() == gradient.size());
    std::ostringstream wrong;
    double difference = 0, size = 0;
    const bool all = static_cast<std::int64_t>(varied.size()) <= samples;
    for (std::int64_t n = 0; n < (all ? static_cast<std::int64_t>(varied.size()) : samples); ++n) {
      const std::size_t element =
          static_cast<std::size_t>(all ? n : random.below(static_cast<std::int64_t>(varied.size())));
      const double expected = central_difference(inputs, varied, element, potential);
      const double tolerance = 1.001 * relative_rounding(type) * std::fabs(expected) + absolute_rounding(type) + 2e-7;
      if (!(std::fabs(gradient[element] - expected) <= tolerance))
        wrong << name << '[' << element << "] = " << gradient[element] << " instead of " << expected << "; ";
      if (spec.random_out) continue;
      const double of_loss = central_difference(inputs, varied, element, whole_loss);
      difference += (gradient[element] - of_loss) * (gradient[element] - of_loss);
      size += of_loss * of_loss;
    }
    CHECK(wrong.str() == "");
    INFO(name);
    const double cancelled = &varied == &inputs.bias ? row_dot_rounding : 0;
    if (!spec.random_out)
      CHECK(std::sqrt(difference) <= 8 * relative_rounding(a.data_type) * std::sqrt(size) + cancelled + 1e-5);
  };
  check("dQ", inputs.q, gradients.d_q, a.data_type);
  check("dK", inputs.k, gradients.d_k, a.data_type);
  check("dV", inputs.v, gradients.d_v, a.data_type);
  if (a.d_bias.data != nullptr) check("dBias", inputs.bias, gradients.d_bias, a.d_bias.data_type);
}

ProblemSpec small() {
  ProblemSpec spec;
  spec.data_type = FLASHDMA_BWD_FP16;
  spec.head_dim = 8;
  spec.seqlen_q = 6;
  spec.seqlen_k = 9;
  return spec;
}

}  // namespace

TEST_CASE("gradients of plain attention", "[finite]") {
  check_gradients(small());
  ProblemSpec spec = small();
  spec.data_type = FLASHDMA_BWD_BF16;
  check_gradients(spec);
  spec.scale = 0.9f;
  check_gradients(spec);
}

TEST_CASE("gradients across tile boundaries", "[finite]") {
  ProblemSpec spec = small();
  spec.seqlen_q = 70;
  spec.seqlen_k = 131;
  spec.head_dim = 24;
  spec.bias = {.present = true, .gradient_fp32 = true};
  check_gradients(spec, 12);
  spec.causal = true;
  spec.mask = {.structure = MaskStructure::alternating_tiles};
  check_gradients(spec, 12);
}

TEST_CASE("gradients with shared KV heads", "[finite]") {
  ProblemSpec spec = small();
  spec.batch = 2;
  spec.heads = 6;
  for (std::int64_t heads_kv : {1, 2, 3}) {
    spec.heads_kv = heads_kv;
    check_gradients(spec, 24);
  }
}

TEST_CASE("gradients of packed sequences, one of them empty on each side", "[finite]") {
  ProblemSpec spec = small();
  spec.lengths_q = {5, 0, 3, 7};
  spec.lengths_k = {4, 6, 0, 9};
  check_gradients(spec);
  spec.causal = true;
  spec.mask = {.structure = MaskStructure::bernoulli, .probability = 0.7};
  spec.bias = {.present = true, .gradient_fp32 = true};
  check_gradients(spec, 100);
  spec.bias.shape = {.batch = false, .heads = PairHeads::one, .rows = false};
  check_gradients(spec);
}

TEST_CASE("gradients under every mask structure", "[finite]") {
  for (int structure = 1; structure <= static_cast<int>(MaskStructure::block_sparse); ++structure) {
    ProblemSpec spec = small();
    spec.mask = {.structure = static_cast<MaskStructure>(structure), .probability = 0.5, .width = 3};
    spec.random_out = spec.mask.structure == MaskStructure::one_key_per_row;
    check_gradients(spec, 24);
  }
}

TEST_CASE("gradients with a mask of every broadcast", "[finite]") {
  for (bool batch : {false, true})
    for (PairHeads heads : {PairHeads::one, PairHeads::kv, PairHeads::query})
      for (bool rows : {false, true})
        for (bool columns : {false, true}) {
          ProblemSpec spec = small();
          spec.batch = 2;
          spec.heads = 4;
          spec.mask = {.structure = MaskStructure::bernoulli, .shape = {batch, heads, rows, columns}, .row_padding = 3};
          check_gradients(spec, 10);
        }
}

TEST_CASE("gradients with a bias of every broadcast", "[finite]") {
  for (bool batch : {false, true})
    for (PairHeads heads : {PairHeads::one, PairHeads::kv, PairHeads::query})
      for (bool rows : {false, true})
        for (bool columns : {false, true})
          for (bool random_out : {false, true}) {
            ProblemSpec spec = small();
            spec.batch = 2;
            spec.heads = 4;
            spec.random_out = random_out;
            spec.bias = {.present = true,
                         .shape = {batch, heads, rows, columns},
                         .gradient_fp32 = true,
                         .row_padding = 5,
                         .gradient_row_padding = 2};
            check_gradients(spec, 16);
          }
}

TEST_CASE("gradients with a float32 key-vector bias and with a bias that masks", "[finite]") {
  ProblemSpec spec = small();
  spec.bias = {.present = true, .shape = {.rows = false}, .fp32 = true, .minus_infinity = 0.3};
  check_gradients(spec);
  spec.bias = {.present = true, .minus_infinity = 0.5};
  check_gradients(spec);
}

TEST_CASE("gradients with softcap", "[finite]") {
  ProblemSpec spec = small();
  spec.softcap = 0.8f;
  check_gradients(spec);
  spec.bias = {.present = true, .minus_infinity = 0.2, .gradient_fp32 = true};
  check_gradients(spec);
}

TEST_CASE("gradients under causality and windows", "[finite]") {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  struct Limits {
    std::int64_t seqlen_q, seqlen_k;
    bool causal;
    std::int64_t left, right;
  };
  for (const Limits& limits : {Limits{6, 9, true, -1, -1}, Limits{9, 6, true, -1, -1}, Limits{8, 8, false, 2, 1},
                               Limits{8, 11, false, -1, 2}, Limits{11, 8, false, 3, -1}, Limits{8, 8, true, 2, 5},
                               Limits{8, 8, false, 0, 0}, Limits{9, 6, false, kMost, kMost}}) {
    ProblemSpec spec = small();
    spec.seqlen_q = limits.seqlen_q;
    spec.seqlen_k = limits.seqlen_k;
    spec.causal = limits.causal;
    spec.window_left = limits.left;
    spec.window_right = limits.right;
    // A row that sees one key has a gradient of 0 in dQ, which the loss would compare with rounding noise.
    spec.random_out = limits.left == 0;
    check_gradients(spec, 32);
  }
}

TEST_CASE("gradients of a shard of longer sequences", "[finite]") {
  ProblemSpec spec = small();
  spec.causal = true;
  spec.query_offset = 10;
  spec.key_offset = 8;
  spec.global_seqlen_q = 20;
  spec.global_seqlen_k = 22;
  check_gradients(spec);
  spec.causal = false;
  spec.window_left = 3;
  spec.window_right = 2;
  check_gradients(spec);
}

TEST_CASE("gradients of strided tensors", "[finite]") {
  ProblemSpec spec = small();
  spec.batch = 2;
  spec.inputs = {.heads_outer = true, .row_padding = 8, .batch_padding = 16, .shift = 8};
  spec.outputs = {.heads_outer = false, .row_padding = 16, .batch_padding = 8};
  spec.lse = {.heads_inner = true, .row_padding = 3, .base_two = true, .empty_is_plus_infinity = true};
  spec.mask = {.structure = MaskStructure::empty_rows, .probability = 0.6};
  check_gradients(spec);
  spec.lse.heads_inner = false;
  spec.broadcast_d_out_rows = true;
  check_gradients(spec);
}
