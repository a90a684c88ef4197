// Problems that are the same in two forms have the same gradients, and identities that hold whatever the data.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "reference/number_formats.hpp"
#include "reference/reference_backward.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/forward.hpp"
#include "support/problem.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

/// Two tiles and a bit in both directions, shared KV heads, a mask and a bias.
ProblemSpec rich() {
  ProblemSpec spec;
  spec.data_type = FLASHDMA_BWD_FP16;
  spec.head_dim = 40;
  spec.batch = 2;
  spec.heads = 4;
  spec.heads_kv = 2;
  spec.seqlen_q = 133;
  spec.seqlen_k = 150;
  spec.mask = {.structure = MaskStructure::bernoulli, .shape = {.heads = PairHeads::kv}};
  spec.bias = {.present = true, .shape = {.batch = false, .heads = PairHeads::one}, .gradient_fp32 = true};
  return spec;
}

bool same(const Gradients& a, const Gradients& b) {
  return a.d_q == b.d_q && a.d_k == b.d_k && a.d_v == b.d_v && a.d_bias == b.d_bias;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

bool all_zero(const std::vector<double>& values) {
  for (double value : values)
    if (value != 0) return false;
  return true;
}

double norm(const std::vector<double>& values) {
  return std::sqrt(dot(values, values));
}

}  // namespace

TEST_CASE("the number of threads changes no bit") {
  Problem problem(rich());
  const Gradients one = reference_gradients(problem, 1);
  REQUIRE(norm(one.d_q) > 0);
  for (int threads : {0, 2, 3, 16}) {
    INFO(threads);
    CHECK(same(reference_gradients(problem, threads), one));
  }
}

TEST_CASE("outputs are the exact gradients, rounded") {
  ProblemSpec packed = rich();
  packed.mask = {};
  packed.bias = {};
  packed.lengths_q = {70, 0, 64};
  packed.lengths_k = {65, 12, 130};
  const auto roundings_that_differ = [](const std::vector<double>& values, const std::vector<double>& exact, int type) {
    REQUIRE(values.size() == exact.size());
    std::size_t count = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      float element = 0;
      store_element(&element, type, 0, exact[i]);
      if (static_cast<double>(load_element(&element, type, 0)) != values[i]) ++count;
    }
    return count;
  };
  for (ProblemSpec spec : {rich(), packed}) {
    for (flashdma_bwd_data_type type : {FLASHDMA_BWD_FP16, FLASHDMA_BWD_BF16}) {
      spec.data_type = type;
      Problem problem(spec);
      const Gradients rounded = reference_gradients(problem);
      const Gradients exact = exact_gradients(problem);
      REQUIRE(norm(exact.d_q) > 0);
      CHECK(rounded.d_q != exact.d_q);
      CHECK(roundings_that_differ(rounded.d_q, exact.d_q, type) == 0);
      CHECK(roundings_that_differ(rounded.d_k, exact.d_k, type) == 0);
      CHECK(roundings_that_differ(rounded.d_v, exact.d_v, type) == 0);
      CHECK(roundings_that_differ(rounded.d_bias, exact.d_bias, FLASHDMA_BWD_FP32) == 0);
    }
  }
}

TEST_CASE("layouts and strides change no bit, and nothing else is written") {
  ProblemSpec spec = rich();
  Problem contiguous(spec);
  const Gradients expected = reference_gradients(contiguous);
  CHECK(contiguous.damaged_canaries() == "");
  for (bool heads_outer : {false, true}) {
    spec.inputs = {.heads_outer = heads_outer, .row_padding = 24, .batch_padding = 8, .shift = 8};
    spec.outputs = {.heads_outer = !heads_outer, .row_padding = 8, .batch_padding = 40, .shift = 8};
    spec.lse = {.heads_inner = heads_outer, .row_padding = 5};
    spec.mask.row_padding = 7;
    spec.bias.row_padding = 3;
    spec.bias.gradient_row_padding = 1;
    Problem strided(spec);
    CHECK(same(reference_gradients(strided), expected));
    CHECK(strided.damaged_canaries() == "");
  }
}

TEST_CASE("every encoding of a mask changes no bit") {
  int compared = 0;
  for (const MaskSpec& mask : {MaskSpec{.structure = MaskStructure::bernoulli},
                               MaskSpec{.structure = MaskStructure::window_with_sinks, .width = 30},
                               MaskSpec{.structure = MaskStructure::block_sparse, .probability = 0.5, .width = 64}})
    for (const bool rows : {false, true})
      for (const bool columns : {false, true})
        for (const flashdma_bwd_mask_encoding encoding : kMaskEncodings)
          for (const bool garbage : {false, true}) {
            ProblemSpec spec = rich();
            spec.mask = mask;
            spec.mask.shape = {.batch = garbage, .heads = PairHeads::kv, .rows = rows, .columns = columns};
            spec.mask.row_padding = garbage ? 3 : 0;
            spec.mask.encoding = encoding;
            spec.mask.garbage = garbage;
            if (!expresses_mask(spec)) continue;
            Problem problem(spec);
            INFO(problem.spec().text());
            const Gradients expected = reference_gradients(problem);
            problem.poison_outputs();
            std::string message;
            REQUIRE(reference_backward(problem.arguments(), 1, message) == FLASHDMA_BWD_OK);
            CHECK(same(read_gradients(problem), expected));
            ++compared;
          }
  CHECK(compared >= 60);
}

TEST_CASE("a problem without active pairs has zero gradients, all written") {
  ProblemSpec spec = rich();
  SECTION("by its mask") {
    spec.mask.structure = MaskStructure::keep_nothing;
  }
  SECTION("by its bias") {
    spec.bias.minus_infinity = 1.1;
  }
  SECTION("by its window") {
    spec.window_right = 3;
    spec.key_offset = 4000;
  }
  SECTION("by an LSE of plus infinity") {
    spec.mask.structure = MaskStructure::keep_nothing;
    spec.lse.empty_is_plus_infinity = true;
  }
  Problem problem(spec);
  const Gradients gradients = reference_gradients(problem);
  CHECK(all_zero(gradients.d_q));
  CHECK(all_zero(gradients.d_k));
  CHECK(all_zero(gradients.d_v));
  CHECK(all_zero(gradients.d_bias));
}

TEST_CASE("an infinite LSE empties its row whatever the mask keeps") {
  for (float infinity : {INFINITY, -INFINITY}) {
    Problem problem(rich());
    const flashdma_bwd_arguments& a = problem.arguments();
    const_cast<float*>(a.lse)[5] = infinity;  // batch 0, head 0, row 5
    const Gradients gradients = reference_gradients(problem);
    for (int c = 0; c < a.head_dim; ++c)
      CHECK(gradients.d_q[static_cast<std::size_t>(5 * a.heads * a.head_dim + c)] == 0);
    CHECK(std::isfinite(norm(gradients.d_k)));
    CHECK(norm(gradients.d_k) > 0);
  }
}

TEST_CASE("packed sequences are as many problems of fixed length") {
  ProblemSpec spec = rich();
  spec.mask.structure = MaskStructure::none;
  spec.bias.present = false;
  spec.causal = true;
  spec.lengths_q = {70, 0, 129, 5, 64};
  spec.lengths_k = {100, 30, 64, 0, 65};
  Problem packed(spec);
  const Gradients expected = reference_gradients(packed);
  CHECK(packed.damaged_canaries() == "");
  const flashdma_bwd_arguments packed_arguments = packed.arguments();
  packed.poison_outputs();
  std::string message;
  for (int n = 0; n < 5; ++n) {
    flashdma_bwd_arguments a = packed_arguments;
    const std::int32_t first_q = a.cu_seqlens_q[n];
    const std::int32_t first_k = a.cu_seqlens_k[n];
    a.batch = 1;
    a.seqlen_q = a.cu_seqlens_q[n + 1] - first_q;
    a.seqlen_k = a.cu_seqlens_k[n + 1] - first_k;
    a.cu_seqlens_q = a.cu_seqlens_k = nullptr;
    for (flashdma_bwd_tensor* t : {&a.q, &a.out, &a.d_out, &a.d_q})
      t->data = static_cast<std::uint16_t*>(t->data) + first_q * t->stride_row;
    for (flashdma_bwd_tensor* t : {&a.k, &a.v, &a.d_k, &a.d_v})
      t->data = static_cast<std::uint16_t*>(t->data) + first_k * t->stride_row;
    a.lse += first_q * a.lse_stride_row;
    REQUIRE(reference_backward(a, 2, message) == FLASHDMA_BWD_OK);
  }
  CHECK(same(read_gradients(packed), expected));
}

TEST_CASE("packed rows past the last sequence get zeros") {
  ProblemSpec spec = rich();
  spec.mask.structure = MaskStructure::none;
  spec.bias.present = false;
  spec.lengths_q = {70, 3};
  spec.lengths_k = {65, 90};
  spec.packed_tail = 5;
  Problem problem(spec);
  const flashdma_bwd_arguments& a = problem.arguments();
  REQUIRE(a.total_q == 78);
  const Gradients gradients = reference_gradients(problem);
  const auto tail = [&](const std::vector<double>& rows, std::int64_t heads) {
    return std::vector<double>(rows.end() - 5 * heads * a.head_dim, rows.end());
  };
  CHECK(all_zero(tail(gradients.d_q, a.heads)));
  CHECK(all_zero(tail(gradients.d_k, a.heads_kv)));
  CHECK(all_zero(tail(gradients.d_v, a.heads_kv)));
  CHECK(norm(gradients.d_v) > 0);
}

TEST_CASE("a shard of the queries has its rows of dQ, a shard of the keys its rows of dK and dV") {
  ProblemSpec spec = rich();
  spec.batch = 1;
  spec.mask.structure = MaskStructure::none;
  spec.bias.present = false;
  spec.window_left = 40;
  spec.window_right = 9;
  SECTION("with a window") {}
  SECTION("with a window, causal") {
    spec.causal = true;
  }
  Problem whole(spec);
  const Gradients expected = reference_gradients(whole);
  const flashdma_bwd_arguments all = whole.arguments();
  whole.poison_outputs();
  std::string message;
  const auto shift = [](flashdma_bwd_tensor& t, std::int64_t rows) {
    t.data = static_cast<std::uint16_t*>(t.data) + rows * t.stride_row;
  };
  for (std::int64_t begin : {0, 50, 100}) {
    flashdma_bwd_arguments a = all;
    a.global_seqlen_q = all.seqlen_q;
    a.global_seqlen_k = all.seqlen_k;
    a.query_offset = begin;
    a.seqlen_q = std::min<std::int64_t>(50, all.seqlen_q - begin);
    for (flashdma_bwd_tensor* t : {&a.q, &a.out, &a.d_out, &a.d_q}) shift(*t, begin);
    a.lse += begin * a.lse_stride_row;
    REQUIRE(reference_backward(a, 2, message) == FLASHDMA_BWD_OK);
  }
  const std::vector<double> d_q = read_gradients(whole).d_q;
  for (std::int64_t begin : {0, 50, 100}) {
    flashdma_bwd_arguments a = all;
    a.global_seqlen_q = all.seqlen_q;
    a.global_seqlen_k = all.seqlen_k;
    a.key_offset = begin;
    a.seqlen_k = 50;
    for (flashdma_bwd_tensor* t : {&a.k, &a.v, &a.d_k, &a.d_v}) shift(*t, begin);
    REQUIRE(reference_backward(a, 2, message) == FLASHDMA_BWD_OK);
  }
  const Gradients sharded = read_gradients(whole);
  // The tiles of a shard begin elsewhere, so sums may differ by roundings of doubles, hence seldom by one of the 16-bit
  // type.
  CHECK(relative_error(d_q, expected.d_q) < 1e-5);
  CHECK(relative_error(sharded.d_k, expected.d_k) < 1e-5);
  CHECK(relative_error(sharded.d_v, expected.d_v) < 1e-5);
}

TEST_CASE("causality, a mask and a bias of minus infinity say the same") {
  ProblemSpec spec = rich();
  spec.bias.shape = {};
  spec.bias.present = false;
  spec.mask = {.structure = MaskStructure::window_with_sinks,
               .width = 100000};  // all keys up to the last that causality leaves
  const Gradients by_mask = [&] {
    Problem problem(spec);
    return reference_gradients(problem);
  }();
  spec.mask.structure = MaskStructure::none;
  spec.causal = true;
  const Gradients by_causality = [&] {
    Problem problem(spec);
    return reference_gradients(problem);
  }();
  CHECK(same(by_mask, by_causality));
  CHECK(norm(by_mask.d_q) > 0);

  spec.bias.present = true;
  Problem problem(spec);
  flashdma_bwd_arguments& a = problem.arguments();
  a.causal = 0;
  auto* bias = static_cast<std::uint16_t*>(a.bias.data);
  for (std::int64_t b = 0; b < a.batch; ++b)
    for (std::int64_t h = 0; h < a.heads; ++h)
      for (std::int64_t i = 0; i < a.seqlen_q; ++i)
        for (std::int64_t j = 0; j < a.seqlen_k; ++j)
          bias[b * a.bias.stride_batch + h * a.bias.stride_head + i * a.bias.stride_row + j] =
              j > i + a.seqlen_k - a.seqlen_q ? 0xfc00 : 0;  // minus infinity, else zero
  // O and LSE are those of the random bias: take the causal problem's.
  Problem causal([&] {
    ProblemSpec without = spec;
    without.bias.present = false;
    return without;
  }());
  a.out = causal.arguments().out;
  a.lse = causal.arguments().lse;
  const Gradients by_bias = reference_gradients(problem);
  CHECK(same({by_bias.d_q, by_bias.d_k, by_bias.d_v, {}}, by_causality));
}

TEST_CASE("what masked keys hold does not matter") {
  ProblemSpec spec = rich();
  spec.mask.structure = MaskStructure::empty_columns;
  for (flashdma_bwd_data_type type : {FLASHDMA_BWD_FP16, FLASHDMA_BWD_BF16}) {
    spec.data_type = type;
    spec.mask.huge_masked_keys = false;
    Problem plain(spec);
    spec.mask.huge_masked_keys = true;
    Problem huge(spec);
    const bool differ = forward_inputs(plain.arguments()).k != forward_inputs(huge.arguments()).k;
    REQUIRE(differ);
    CHECK(same(reference_gradients(plain), reference_gradients(huge)));
  }
}

TEST_CASE("rows of dS sum to zero, columns of P to dV's sum, and Q dQ is K dK") {
  ProblemSpec spec = rich();
  spec.mask.structure = MaskStructure::empty_rows;
  spec.bias.shape = {};
  Problem problem(spec);
  const flashdma_bwd_arguments& a = problem.arguments();
  const Gradients gradients = reference_gradients(problem);
  const ForwardInputs inputs = forward_inputs(a);

  // The sum over the keys of dS is dO (exact O - O rounded to fp16), at most |dO| |O| 2^-11 and what subnormals lose.
  const std::vector<double> out = tensor_values(a, a.out, a.seqlen_q, a.heads);
  const std::vector<double> d_out = tensor_values(a, a.d_out, a.seqlen_q, a.heads);
  double worst = 0, largest = 0;
  for (std::int64_t b = 0; b < a.batch; ++b)
    for (std::int64_t h = 0; h < a.heads; ++h)
      for (std::int64_t i = 0; i < a.seqlen_q; ++i) {
        double row_sum = 0, bound = 0;
        for (std::int64_t j = 0; j < a.seqlen_k; ++j) {
          const double d_s =
              gradients.d_bias[static_cast<std::size_t>(((b * a.heads + h) * a.seqlen_q + i) * a.seqlen_k + j)];
          row_sum += d_s;
          largest = std::max(largest, std::fabs(d_s));
        }
        for (int c = 0; c < a.head_dim; ++c) {
          const std::size_t at = static_cast<std::size_t>(((b * a.seqlen_q + i) * a.heads + h) * a.head_dim + c);
          bound += std::fabs(d_out[at]) * (std::fabs(out[at]) * 0x1p-11 + 0x1p-25);
        }
        worst = std::max(worst, std::fabs(row_sum) - 1.01 * bound);
      }
  CHECK(worst <= 1e-5);  // P sums to 1 within the float32 of LSE
  CHECK(largest > 0.01);

  // The sum over the keys of dV is the sum of dO over the rows that are not empty.
  for (std::int64_t b = 0; b < a.batch; ++b)
    for (std::int64_t head_kv = 0; head_kv < a.heads_kv; ++head_kv)
      for (int c = 0; c < a.head_dim; ++c) {
        double of_keys = 0, of_queries = 0, magnitude = 0;
        for (std::int64_t j = 0; j < a.seqlen_k; ++j) {
          const double d_v =
              gradients.d_v[static_cast<std::size_t>(((b * a.seqlen_k + j) * a.heads_kv + head_kv) * a.head_dim + c)];
          of_keys += d_v;
          magnitude += std::fabs(d_v);
        }
        for (std::int64_t h = head_kv * 2; h < head_kv * 2 + 2; ++h)
          for (std::int64_t i = 0; i < a.seqlen_q; ++i)
            if (!std::isinf(a.lse[b * a.lse_stride_batch + h * a.lse_stride_head + i * a.lse_stride_row]))
              of_queries += d_out[static_cast<std::size_t>(((b * a.seqlen_q + i) * a.heads + h) * a.head_dim + c)];
        CHECK(std::fabs(of_keys - of_queries) <= 0x1p-11 * magnitude + 1e-4);
      }

  const double along_q = dot(inputs.q, gradients.d_q);
  const double along_k = dot(inputs.k, gradients.d_k);
  CHECK(std::fabs(along_q - along_k) <=
        0x1p-11 * (norm(inputs.q) * norm(gradients.d_q) + norm(inputs.k) * norm(gradients.d_k)));
}

TEST_CASE("a plan without its mask is refused, with it the mask is used") {
  Problem problem(rich());
  const Gradients expected = reference_gradients(problem);
  flashdma_bwd_mask_plan plan{};
  problem.arguments().plan = &plan;
  CHECK(same(reference_gradients(problem), expected));
  problem.arguments().mask.data = nullptr;
  std::string message;
  CHECK(reference_backward(problem.arguments(), 1, message) == FLASHDMA_BWD_UNSUPPORTED);
  CHECK(message.find("plan") != std::string::npos);
}

TEST_CASE("relative error never passes what is not finite and treats zero as zero") {
  const std::vector<double> zero(3, 0.0), one(3, 1.0), nan{1, std::nan(""), 1}, huge{1, 1, INFINITY};
  CHECK(relative_error(one, one) == 0);
  CHECK(relative_error(zero, zero) == 0);
  CHECK(relative_error(zero, one) == 1);
  CHECK(std::isinf(relative_error(one, zero)));
  CHECK(std::isinf(relative_error(nan, one)));
  CHECK(std::isinf(relative_error(one, nan)));
  CHECK(std::isinf(relative_error(nan, nan)));
  CHECK(std::isinf(relative_error(huge, huge)));
  CHECK(std::isinf(relative_error({1, 1}, one)));
  CHECK(std::fabs(relative_error({0, 0, 1}, zero, 10.0) - 0.1) < 1e-12);
}

TEST_CASE("gradients of what sees nothing and is not seen must be exactly 0") {
  for (const bool packed : {false, true})
    for (const MaskStructure structure : {MaskStructure::empty_rows, MaskStructure::empty_columns}) {
      ProblemSpec spec{.name = "zeros", .head_dim = 16, .batch = 2, .heads = 4, .heads_kv = 2};
      spec.seqlen_q = spec.seqlen_k = 100;
      if (packed) {
        spec.lengths_q = {70, 100};
        spec.lengths_k = {100, 60};
        spec.packed_tail = 3;
      }
      spec.mask = {.structure = structure, .shape = {.heads = PairHeads::kv}};
      spec.bias = {.present = true, .shape = {.heads = PairHeads::kv, .rows = structure == MaskStructure::empty_rows}};
      Problem problem(spec);
      const flashdma_bwd_arguments& a = problem.arguments();
      const Gradients expected = exact_gradients(problem);
      CHECK(nonzero_defect(problem, expected, expected) == "");
      // Each element alone that is exactly 0 where nothing takes part, and one that is not.
      const auto defects = [&](std::vector<double> Gradients::*of, const std::string& name) {
        Gradients got = expected;
        int found = 0;
        for (double& value : got.*of) {
          const double was = value;
          value += 1e-30;
          const std::string defect = nonzero_defect(problem, got, expected);
          if (was != 0) REQUIRE(defect == "");
          if (!defect.empty()) REQUIRE(defect.find(name + '[') == 0);
          found += defect.empty() ? 0 : 1;
          value = -0.0;  // of either sign
          REQUIRE((was != 0 || nonzero_defect(problem, got, expected) == ""));
          value = was;
        }
        return found;
      };
      const int d = a.head_dim;
      if (structure == MaskStructure::empty_rows) {
        CHECK(defects(&Gradients::d_q, "dQ") >= 64 * d);
      } else {
        CHECK(defects(&Gradients::d_k, "dK") >= 64 * d);
        CHECK(defects(&Gradients::d_v, "dV") >= 64 * d);
        CHECK(defects(&Gradients::d_bias, "dBias") >= 64);
      }
    }
}

TEST_CASE("gradients that cancel exactly may be what rounding makes of them") {
  ProblemSpec spec{.name = "cancelled", .head_dim = 16};
  spec.mask.structure = MaskStructure::one_key_per_row;
  Problem problem(spec);
  const Gradients expected = exact_gradients(problem);
  Gradients got = expected;
  got.d_q.front() += 1e-9;
  CHECK(nonzero_defect(problem, got, expected) == "");
}

TEST_CASE("canaries and poison notice what was not or wrongly written") {
  Problem problem(rich());
  CHECK(problem.damaged_canaries() == "");
  CHECK(std::isnan(read_gradients(problem).d_q[0]));
  for (Buffer* buffer : problem.outputs()) {
    INFO(buffer->name);
    buffer->data[-1] = std::byte{0};
    CHECK(problem.damaged_canaries().find(buffer->name) == 0);
    buffer->data[-1] = kCanary;
    buffer->data[0] = std::byte{0};
    CHECK(problem.damaged_canaries() == "");
  }
}
