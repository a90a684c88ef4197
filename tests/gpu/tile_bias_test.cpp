// A tile bias that tensor copies move, on the kernels that move it so: every way in which a tile of it, or of its
// gradient, can lie at an end or not be there at all. And biases that they cannot move, which those kernels refuse.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "gpu/check.hpp"
#include "gpu/device_problem.hpp"
#include "gpu/kernels_under_test.hpp"
#include "support/catch.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

/// With rows of the bias and of its gradient at multiples of 8 elements.
ProblemSpec problem(int head_dim, std::int64_t seqlen_q = 150, std::int64_t seqlen_k = 200) {
  ProblemSpec spec;
  spec.head_dim = head_dim;
  spec.batch = 2;
  spec.heads = 2;
  spec.heads_kv = 1;
  spec.seqlen_q = seqlen_q;
  spec.seqlen_k = seqlen_k;
  spec.bias = {.present = true};
  spec.bias.row_padding = spec.bias.gradient_row_padding = (8 - seqlen_k % 8) % 8;
  return spec;
}

/// Checks the problem on every kernel, of which one that is under test moves the bias by copies where there is one for
/// the head dim, type and softcap, but for a gradient whose rows do not end with 16 bytes: a copy would write past
/// their ends.
void check_moved(const ProblemSpec& spec) {
  const bool written_past = spec.bias.gradient && Problem(spec).arguments().seqlen_k % 8 != 0;
  const std::vector<KernelName> kernels = kernels_under_test();
  const auto under_test = [&](const std::string& name) {
    return std::any_of(kernels.begin(), kernels.end(), [&](const KernelName& kernel) { return kernel.text == name; });
  };
  bool compiled = false;
  bool asked_for = false;
  for (const std::string& name : check_problem(spec)) asked_for |= under_test(name) && KernelName(name).copies_bias();
  const int buckets[] = {32, 64, 96, 128, 192, 256};
  int bucket = 0;
  for (const int b : buckets)
    if (bucket == 0 && spec.head_dim <= b) bucket = b;
  const std::string data_type = spec.data_type == FLASHDMA_BWD_FP16 ? "fp16" : "bf16";
  for (const KernelName& kernel : kernels)
    compiled |= kernel.copies_bias() && kernel.head_dim == "d" + std::to_string(bucket) &&
                kernel.data_type == data_type && kernel.softcap == (spec.softcap != 0.0f);
  CHECK(asked_for == (compiled && !written_past));
}

void check_moved_in_both_types(ProblemSpec spec) {
  for (const flashdma_bwd_data_type type : {FLASHDMA_BWD_FP16, FLASHDMA_BWD_BF16}) {
    spec.data_type = type;
    check_moved(spec);
  }
}

constexpr int kHeadDims[] = {24, 32, 64, 72, 96, 128, 136, 192, 256};

}  // namespace

TEST_CASE("a moved tile bias at the ends of queries and keys", "[tile-bias]") {
  int turn = 0;
  for (const int head_dim : kHeadDims)
    for (const std::int64_t seqlen_q : {2, 63, 64, 129, 333})
      for (const std::int64_t seqlen_k : {1, 7, 65, 128, 200, 391}) {
        ProblemSpec spec = problem(head_dim, seqlen_q, seqlen_k);
        spec.batch = 1;
        spec.data_type = ++turn % 2 == 0 ? FLASHDMA_BWD_BF16 : FLASHDMA_BWD_FP16;
        spec.causal = turn % 3 == 0;
        spec.deterministic = turn % 5 == 0;
        spec.softcap = turn % 7 < 3 ? 3.0f : 0.0f;
        spec.random_out = true;  // else dS of rows that see few keys is rounding
        check_moved(spec);
        spec.bias.gradient = false;
        check_moved(spec);
      }
}

TEST_CASE("a moved tile bias that is broadcast over sequences or heads", "[tile-bias]") {
  for (const int head_dim : {64, 128, 256})
    for (const bool batch : {false, true})
      for (const PairHeads heads : {PairHeads::one, PairHeads::kv, PairHeads::query}) {
        ProblemSpec spec = problem(head_dim);
        spec.heads = 4;
        spec.heads_kv = 2;
        spec.bias.shape = {.batch = batch, .heads = heads};
        spec.bias.gradient = false;
        check_moved_in_both_types(spec);
      }
}

TEST_CASE("the gradient of a moved tile bias that sequences or heads share", "[tile-bias]") {
  int turn = 0;
  for (const int head_dim : kHeadDims)
    for (const bool batch : {false, true})
      for (const PairHeads heads : {PairHeads::one, PairHeads::kv, PairHeads::query}) {
        ProblemSpec spec = problem(head_dim, 150 + turn, 200);
        spec.heads = 4;
        spec.heads_kv = 2;
        spec.bias.shape = {.batch = batch, .heads = heads};
        check_moved_in_both_types(spec);
        spec.data_type = ++turn % 2 == 0 ? FLASHDMA_BWD_BF16 : FLASHDMA_BWD_FP16;
        spec.deterministic = true;
        check_moved(spec);
        spec.causal = true;
        spec.softcap = turn % 2 == 0 ? 3.0f : 0.0f;
        spec.deterministic = turn % 3 == 0;
        spec.bias.gradient_fp32 = turn % 4 < 2;
        spec.mask = {.structure = MaskStructure::block_sparse, .shape = {.heads = PairHeads::kv}, .probability = 0.4};
        check_moved(spec);
      }
}

TEST_CASE("the float32 gradient of a moved tile bias", "[tile-bias]") {
  for (const int head_dim : {32, 64, 96, 128, 192, 256})
    for (const std::int64_t seqlen_q : {2, 64, 131})
      for (const std::int64_t seqlen_k : {8, 72, 136, 390}) {
        ProblemSpec spec = problem(head_dim, seqlen_q, seqlen_k);
        spec.bias.gradient_fp32 = true;
        spec.random_out = true;
        check_moved_in_both_types(spec);
        spec.causal = true;
        check_moved(spec);
        spec.deterministic = true;
        spec.bias.shape.heads = PairHeads::one;
        check_moved(spec);
      }
}

TEST_CASE("a moved tile bias whose tensor is wider than the keys", "[tile-bias]") {
  for (const int head_dim : {32, 128, 256}) {
    ProblemSpec spec = problem(head_dim, 100, 201);
    spec.bias.row_padding = 7;
    spec.bias.gradient_row_padding = 23;
    check_moved_in_both_types(spec);
    spec.bias.gradient = false;
    check_moved_in_both_types(spec);
  }
}

TEST_CASE("a moved tile bias of minus infinity masks", "[tile-bias]") {
  for (const int head_dim : kHeadDims)
    for (const double probability : {0.001, 0.3, 0.99, 1.1}) {
      ProblemSpec spec = problem(head_dim);
      spec.bias.minus_infinity = probability;
      check_moved_in_both_types(spec);
      spec.causal = true;
      spec.mask = {.structure = MaskStructure::bernoulli, .shape = {.heads = PairHeads::kv}, .huge_masked_keys = true};
      check_moved_in_both_types(spec);
    }
}

TEST_CASE("dBias is zero where causality, windows and masks leave no step", "[tile-bias]") {
  for (const int head_dim : {32, 64, 128, 192, 256})
    for (const bool deterministic : {false, true}) {
      ProblemSpec spec = problem(head_dim, 500, 400);
      spec.batch = 1;
      spec.deterministic = deterministic;
      spec.causal = true;
      check_moved(spec);
      spec.seqlen_q = 250;
      check_moved(spec);
      spec.causal = false;
      spec.window_left = 40;
      spec.window_right = 10;
      check_moved(spec);
      spec.window_left = spec.window_right = -1;
      for (const MaskStructure structure :
           {MaskStructure::keep_nothing, MaskStructure::single_pair, MaskStructure::alternating_tiles,
            MaskStructure::empty_rows, MaskStructure::empty_columns, MaskStructure::one_tile, MaskStructure::documents,
            MaskStructure::block_sparse}) {
        spec.mask = {.structure = structure, .shape = {.heads = PairHeads::kv}, .probability = 0.2};
        const bool single = structure == MaskStructure::single_pair;
        spec.random_out = single;
        spec.heads = single ? 32 : 2;  // see masked_problems.hpp
        spec.heads_kv = single ? 16 : 1;
        check_moved(spec);
        spec.mask.shape = {.batch = false, .heads = PairHeads::query};
        check_moved(spec);
      }
    }
}

TEST_CASE("a moved tile bias in packed sequences", "[tile-bias]") {
  struct Lengths {
    std::vector<std::int32_t> q, k;
  };
  const Lengths all_lengths[] = {{{100}, {130}},
                                 {{64, 128, 1}, {128, 64, 1}},
                                 {{70, 0, 129, 5, 64}, {100, 30, 64, 0, 65}},
                                 {{0, 0, 333}, {0, 10, 200}},
                                 {{300, 64}, {70, 400}}};
  for (const Lengths& lengths : all_lengths)
    for (const int head_dim : {32, 64, 128, 192, 256})
      for (const bool causal : {false, true}) {
        ProblemSpec spec = problem(head_dim);
        spec.lengths_q = lengths.q;
        spec.lengths_k = lengths.k;
        std::int64_t longest = 0;
        for (const std::int32_t length : lengths.k) longest = std::max<std::int64_t>(longest, length);
        spec.causal = causal;
        spec.random_out = true;
        for (const std::int64_t margin : {0, 77}) {
          spec.length_margin = margin;
          spec.bias.row_padding = spec.bias.gradient_row_padding = (8 - (longest + margin) % 8) % 8;
          check_moved_in_both_types(spec);
          spec.mask = {.structure = MaskStructure::block_sparse, .probability = 0.4};
          spec.deterministic = margin != 0;
          check_moved(spec);
          spec.bias.shape = {.batch = false, .heads = PairHeads::one};
          check_moved(spec);
          spec.bias.shape = {};
          spec.mask = {};
          spec.deterministic = false;
        }
      }
}

TEST_CASE("a moved tile bias where the heads of a KV head share an item", "[tile-bias]") {
  ProblemSpec spec = problem(64, 64, 1104);  // enough key tiles to keep a large GPU busy with one item for each KV head
  spec.heads = 32;
  spec.heads_kv = 8;
  spec.batch = 8;
  check_moved(spec);
  spec.causal = true;
  spec.seqlen_q = 70;
  spec.head_dim = 128;
  check_moved(spec);
  spec.head_dim = 256;
  check_moved(spec);
}

TEST_CASE("dQ of a tile bias's gradient where each head has keys of its own", "[tile-bias]") {
  struct Case {
    int head_dim;
    std::int64_t seqlen_q, seqlen_k;
    bool causal;
    std::int64_t window_left, window_right;
  };
  // Tiles of queries without a key, with keys from the middle on, and with the last few keys alone.
  const Case cases[] = {{128, 300, 200, true, -1, -1}, {128, 129, 328, false, 70, 5},  {104, 64, 64, false, -1, -1},
                        {192, 300, 136, true, -1, -1}, {192, 257, 456, false, 0, 0},   {136, 63, 65, true, -1, -1},
                        {256, 150, 328, true, 40, -1}, {256, 300, 64, false, 200, 10}, {224, 128, 200, false, -1, -1}};
  for (const Case& c : cases) {
    ProblemSpec spec = problem(c.head_dim, c.seqlen_q, c.seqlen_k);
    spec.heads_kv = spec.heads;
    spec.causal = c.causal;
    spec.window_left = c.window_left;
    spec.window_right = c.window_right;
    spec.random_out = true;
    check_moved_in_both_types(spec);
    spec.deterministic = true;
    check_moved(spec);
  }
}

TEST_CASE("dQ is zero where a tile bias has no keys", "[tile-bias]") {
  for (const int head_dim : {128, 192, 256}) {
    ProblemSpec spec = problem(head_dim, 150, 0);
    spec.bias.row_padding = spec.bias.gradient_row_padding = 8;
    Problem host(spec);
    // So that copies could move it.
    host.arguments().bias.stride_column = host.arguments().d_bias.stride_column = 1;
    check_prepared_problem(host);
  }
}

TEST_CASE("a tile bias whose heads or sequences have the stride 0", "[tile-bias]") {
  for (const bool heads : {false, true}) {
    ProblemSpec spec = problem(128);
    spec.random_out = true;  // O and the LSE are those of the bias without the stride
    Problem host(spec);
    (heads ? host.arguments().bias.stride_head : host.arguments().bias.stride_batch) = 0;
    check_prepared_problem(host);
  }
}

TEST_CASE("the size of a workspace does not depend on where a tile bias lies", "[tile-bias]") {
  for (const int head_dim : {64, 128}) {
    Problem host(problem(head_dim, 1000, 1000));
    DeviceProblem device(host);
    Arguments& arguments = device.arguments();
    CHECK(copies_move_bias(arguments));
    std::size_t moved = 0;
    std::size_t not_moved = 0;
    REQUIRE(workspace_size(arguments, moved).ok());
    arguments.d_bias.data = static_cast<char*>(arguments.d_bias.data) + 2;  // never written
    CHECK_FALSE(copies_move_bias(arguments));
    REQUIRE(workspace_size(arguments, not_moved).ok());
    CHECK(moved == not_moved);
  }
}

TEST_CASE("kernels that move a tile bias refuse those that copies cannot move", "[tile-bias]") {
  std::size_t refused = 0;
  bool has_hopper = false;  // no other family's kernels move a bias
  for (const KernelName& kernel : kernels_under_test()) {
    has_hopper = has_hopper || kernel.is_hopper();
    if (!kernel.copies_bias()) continue;
    ++refused;
    ProblemSpec spec = problem(std::stoi(kernel.head_dim.substr(1)));
    spec.data_type = kernel.data_type == "fp16" ? FLASHDMA_BWD_FP16 : FLASHDMA_BWD_BF16;
    spec.softcap = kernel.softcap ? 3.0f : 0.0f;
    const auto check_refused = [&](const ProblemSpec& other) {
      Problem host(other);
      INFO(host.spec().text());
      DeviceProblem device(host);
      CHECK_FALSE(copies_move_bias(device.arguments()));
      device.arguments().kernel = kernel.text.c_str();
      Selection selection{};
      const Status status = select(device.arguments(), selection);
      INFO(status.message());
      CHECK(status.code() == FLASHDMA_BWD_OVERRIDE_ERROR);
      CHECK(status.message().find("tensor copies") != std::string::npos);
      device.arguments().kernel = nullptr;
      REQUIRE(select(device.arguments(), selection).code() == FLASHDMA_BWD_OK);
      CHECK_FALSE(KernelName(selection.kernel).copies_bias());
    };
    ProblemSpec other = spec;
    other.seqlen_k = 201;
    check_refused(other);
    other = spec;
    other.bias.gradient_row_padding = 4;
    check_refused(other);
    other = spec;
    other.bias.gradient = false;
    other.bias.shape.columns = false;
    check_refused(other);
    other = spec;
    other.mask = {
        .structure = MaskStructure::bernoulli, .shape = {.rows = false}, .layout = FLASHDMA_BWD_MASK_COMPACTED};
    check_refused(other);
  }
  CHECK((refused > 0 || !has_hopper || std::getenv("FLASHDMA_BWD_TEST_KERNELS") != nullptr));
}
