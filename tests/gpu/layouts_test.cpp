// Every mask structure with the layout of its plan forced to each in turn, and the plans themselves.
#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "gpu/check.hpp"
#include "gpu/device_problem.hpp"
#include "gpu/masked_problems.hpp"
#include "kernels/reordered_plan_model.hpp"
#include "support/catch.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

ProblemSpec masked(const MaskSpec& mask, flashdma_bwd_mask_layout layout, int head_dim = 64) {
  ProblemSpec spec = testing::masked(mask, head_dim);
  spec.mask.layout = layout;
  return spec;
}

constexpr flashdma_bwd_mask_layout kReordered = FLASHDMA_BWD_MASK_REORDERED;

}  // namespace

TEST_CASE("every mask structure, reordered", "[layouts]") {
  for (const MaskSpec& structure : kMasks)
    for (PairHeads heads : {PairHeads::one, PairHeads::kv, PairHeads::query})
      for (bool causal : {false, true}) {
        ProblemSpec spec = masked(structure, kReordered, heads == PairHeads::kv ? 128 : 64);
        spec.mask.shape.heads = heads;
        spec.causal = causal;
        spec.random_out = has_single_keys(structure);
        check_both_types(spec);
      }
}

TEST_CASE("every mask structure, reordered, with a key bias, its gradient and a softcap", "[layouts]") {
  for (const MaskSpec& structure : kMasks)
    for (int head_dim : {64, 128, 256}) {
      ProblemSpec spec = masked(structure, kReordered, head_dim);
      spec.mask.shape.heads = PairHeads::kv;
      spec.causal = head_dim != 64;
      spec.random_out = has_single_keys(structure);
      spec.bias = {.present = true, .shape = {.heads = PairHeads::kv, .rows = false}};
      check_problem(spec);
      spec.softcap = 5.0f;
      spec.data_type = FLASHDMA_BWD_FP16;
      check_problem(spec);
    }
}

TEST_CASE("every mask structure, reordered, in deterministic mode", "[layouts]") {
  for (const MaskSpec& structure : kMasks)
    for (int head_dim : {96, 192}) {
      ProblemSpec spec = masked(structure, kReordered, head_dim);
      spec.batch = 2;
      spec.mask.shape.batch = head_dim == 96;
      spec.causal = head_dim == 96;
      spec.deterministic = true;
      spec.random_out = has_single_keys(structure);
      check_problem(spec);
    }
}

TEST_CASE("every mask structure for all queries alike, in each layout", "[layouts]") {
  for (const MaskSpec& structure : kMasks)
    for (flashdma_bwd_mask_layout layout : {FLASHDMA_BWD_MASK_NATURAL, FLASHDMA_BWD_MASK_COMPACTED, kReordered}) {
      ProblemSpec spec = masked(structure, layout, layout == FLASHDMA_BWD_MASK_NATURAL ? 64 : 128);
      spec.batch = 2;
      spec.causal = layout == kReordered;
      spec.mask.shape = {.heads = PairHeads::kv, .rows = false};
      spec.random_out = has_single_keys(structure);
      check_problem(spec);
    }
}

TEST_CASE("reordered masks of packed batches", "[layouts]") {
  for (const MaskSpec& structure : kMasks)
    for (bool batch : {false, true}) {
      ProblemSpec spec = masked(structure, kReordered, batch ? 128 : 64);
      spec.lengths_q = {100, 0, 300, 1};
      spec.lengths_k = {64, 10, 450, 333};
      spec.packed_tail = 3;
      spec.mask.shape.batch = batch;
      spec.mask.shape.heads = PairHeads::kv;
      spec.causal = batch;
      spec.deterministic = !batch;
      spec.random_out = has_single_keys(structure);
      spec.bias = {.present = true, .shape = {.heads = PairHeads::kv, .rows = false}};
      check_problem(spec);
      spec.bias = {};
      spec.window_left = 100;
      check_problem(spec);
    }
}

TEST_CASE("reordered masks with a tile bias", "[layouts]") {
  for (bool packed : {false, true})
    for (const MaskSpec& structure : {MaskSpec{.structure = MaskStructure::bernoulli, .probability = 0.05},
                                      MaskSpec{.structure = MaskStructure::causal_top_w, .width = 40}}) {
      ProblemSpec spec = masked(structure, kReordered);
      if (packed) {
        spec.lengths_q = {100, 300};
        spec.lengths_k = {64, 449};
      }
      spec.bias = {.present = true, .shape = {.heads = PairHeads::kv}};
      check_both_types(spec);
    }
}

TEST_CASE("reordered masks, masked keys near the largest finite values", "[layouts]") {
  ProblemSpec spec = masked({.structure = MaskStructure::empty_columns, .shape = {.heads = PairHeads::kv}}, kReordered);
  spec.mask.huge_masked_keys = true;
  check_both_types(spec);
  spec.softcap = 2.0f;
  check_both_types(spec);
}

TEST_CASE("every broadcast of a reordered mask", "[layouts]") {
  for (bool batch : {false, true})
    for (PairHeads heads : {PairHeads::one, PairHeads::kv, PairHeads::query})
      for (bool rows : {false, true})
        for (bool columns : {false, true}) {
          ProblemSpec spec =
              masked({.structure = MaskStructure::bernoulli, .shape = {batch, heads, rows, columns}}, kReordered);
          spec.batch = 3;
          spec.seqlen_q = 150;
          spec.mask.row_padding = 5;
          check_both_types(spec);
        }
}

TEST_CASE("long sequences are reordered where it saves tiles", "[layouts]") {
  for (const MaskSpec& structure : {MaskSpec{.structure = MaskStructure::causal_top_w, .width = 16},
                                    MaskSpec{.structure = MaskStructure::causal_top_w, .width = 256},
                                    MaskSpec{.structure = MaskStructure::bernoulli, .probability = 0.5},
                                    MaskSpec{.structure = MaskStructure::window_with_sinks, .width = 128}}) {
    ProblemSpec spec = masked(structure, FLASHDMA_BWD_MASK_AUTO, 128);
    spec.heads = 2;
    spec.heads_kv = 1;
    spec.seqlen_q = spec.seqlen_k = 2300;
    spec.mask.shape.heads = PairHeads::kv;
    spec.causal = true;
    check_problem(spec);
    // Packed: the same keys, but those past each sequence's end.
    spec.lengths_q = spec.lengths_k = {2300, 700};
    check_problem(spec);
  }
}

// Such a plan does not mask what the call's own limits hide.
TEST_CASE("plans of wider limits than the call's", "[layouts]") {
  for (int head_dim : {32, 64, 128, 192})
    for (flashdma_bwd_mask_layout layout : {FLASHDMA_BWD_MASK_NATURAL, kReordered})
      for (bool window : {false, true}) {
        ProblemSpec spec = masked({.structure = MaskStructure::bernoulli, .probability = 0.3}, layout, head_dim);
        spec.seqlen_q = 300;
        spec.seqlen_k = 333;
        spec.causal = true;
        spec.bias = {.present = true, .shape = {.rows = false}, .minus_infinity = 0.1};
        if (window) spec.window_left = 50;
        testing::Problem problem(spec);
        const Gradients expected = exact_gradients(problem);
        DeviceProblem device(problem);
        device.arguments().causal = 0;
        device.arguments().window_left = window ? 90 : -1;
        const Status plan = device.use_prebuilt_plan();
        INFO(plan.message());
        REQUIRE(plan.ok());
        device.arguments().causal = 1;
        device.arguments().window_left = spec.window_left;
        INFO(spec.text());
        check_gradients(problem, device, expected);
      }
}

namespace {

/// Builds a plan on the GPU and brings its memory back.
std::vector<std::uint64_t> built_on_device(const HostMask& mask, Arguments arguments) {
  DeviceStream stream;
  DeviceMemory bytes(mask.bytes.size());
  require_cuda(cudaMemcpy(bytes.data(), mask.bytes.data(), mask.bytes.size(), cudaMemcpyHostToDevice), "upload");
  arguments.mask.data = bytes.data();
  std::size_t plan_bytes = 0;
  REQUIRE(plan_size(arguments, plan_bytes).ok());
  DeviceMemory memory(plan_bytes);
  require_cuda(cudaMemset(memory.data(), static_cast<int>(kPoison), plan_bytes), "poisoning of the plan");
  // The stream does not wait for the default stream, nor does the host for its copies.
  require_cuda(cudaDeviceSynchronize(), "upload and poisoning");
  MaskPlan plan{};
  const Status status = plan_build(arguments, memory.data(), plan_bytes, stream.get(), plan);
  INFO(status.message());
  REQUIRE(status.ok());
  REQUIRE(plan.layout == (arguments.mask_layout == FLASHDMA_BWD_MASK_NATURAL ? FLASHDMA_BWD_LAYOUT_NATURAL
                                                                             : FLASHDMA_BWD_LAYOUT_REORDERED));
  require_cuda(cudaStreamSynchronize(stream.get()), "building of a plan");
  std::vector<std::uint64_t> host(plan_bytes / 8);
  require_cuda(cudaMemcpy(host.data(), memory.data(), plan_bytes, cudaMemcpyDeviceToHost), "download");
  return host;
}

}  // namespace

TEST_CASE("plans that the GPU reorders are those of the model", "[layouts]") {
  std::mt19937 generator(23);
  struct Shape {
    int batch, heads, queries, keys, row_padding;
    bool intervals;
  };
  for (const Shape& shape :
       {Shape{1, 2, 400, 336, 0, true}, Shape{2, 1, 70, 200, 8, false}, Shape{1, 2, 1024, 2048, 0, false},
        Shape{1, 1, 900, 9000, 0, true}, Shape{1, 1, 700, 40000, 0, true}, Shape{1, 1, 1, 1, 0, true}}) {
    const HostMask mask =
        shape.intervals
            ? interval_mask(generator, shape.batch, shape.heads, shape.queries, shape.keys)
            : random_mask(generator, shape.batch, shape.heads, shape.queries, shape.keys, shape.row_padding);
    Arguments a;
    a.data_type = FLASHDMA_BWD_BF16;
    a.batch = shape.batch;
    a.heads = a.heads_kv = shape.heads;
    a.head_dim = 64;
    a.seqlen_q = shape.queries;
    a.seqlen_k = shape.keys;
    const MaskView view = mask.view();
    a.mask.batch = shape.batch;
    a.mask.heads = shape.heads;
    a.mask.rows = shape.queries;
    a.mask.columns = shape.keys;
    a.mask.stride_batch = view.stride_batch;
    a.mask.stride_head = view.stride_head;
    a.mask.stride_row = view.stride_row;
    a.mask.stride_column = 1;
    a.mask_layout = kReordered;
    for (bool causal : {false, true}) {
      a.causal = causal;
      Limits limits;
      if (causal) limits.high = shape.keys - shape.queries;
      std::vector<std::uint64_t> memory = built_on_device(mask, a);
      const ReorderedPlan plan = reordered_plan(reinterpret_cast<std::byte*>(memory.data()),
                                                std::int64_t{shape.batch} * shape.heads, shape.queries, shape.keys);
      INFO(shape.queries << " x " << shape.keys << (causal ? " causal" : ""));
      for (int b = 0; b < shape.batch; ++b)
        for (int h = 0; h < shape.heads; ++h) CHECK(plan_defect(mask, limits, plan, b, h, false) == "");
      // What the C header promises of the memory's beginning.
      flashdma_bwd_key_order order;
      static_assert(sizeof(order) == sizeof(KeyOrder));
      std::memcpy(&order, memory.data(), sizeof(order));
      CHECK(order.keys == plan.orders[0].keys);
      CHECK(order.natural == 0);
      CHECK(order.natural_tiles == plan.orders[0].natural_tiles);
      CHECK(order.ordered_tiles == plan.orders[0].ordered_tiles);
    }
  }
}

// Of masks of so many pairs the first and last queries are asked whether the keys keep their own order.
TEST_CASE("long masks that keep pairs all over are packed as in the natural layout", "[layouts]") {
  HostMask mask{1, 1, 16384, 12800, 0, {}};
  REQUIRE(std::int64_t{mask.queries} * mask.keys >= PlanDevice().least_probed_pairs);
  mask.bytes.resize(mask.index(1, 0, 0, 0));
  std::mt19937_64 generator(43);
  for (std::size_t i = 0; i < mask.bytes.size(); i += 8) {
    const std::uint64_t bytes = generator() & 0x0101010101010101u;  // half of the pairs
    std::memcpy(&mask.bytes[i], &bytes, sizeof bytes);
  }
  Arguments a;
  a.batch = a.heads = a.heads_kv = 1;
  a.head_dim = 64;
  a.seqlen_q = mask.queries;
  a.seqlen_k = mask.keys;
  a.mask.batch = a.mask.heads = 1;
  a.mask.rows = mask.queries;
  a.mask.columns = mask.keys;
  a.mask.stride_row = mask.keys;
  a.mask.stride_column = 1;
  // What the first queries do not show has to be read.
  for (const bool proved : {true, false}) {
    if (!proved) std::fill(mask.bytes.begin(), mask.bytes.begin() + mask.keys * std::ptrdiff_t{kMaskAtom}, 0);
    a.mask_layout = FLASHDMA_BWD_MASK_AUTO;
    std::vector<std::uint64_t> memory = built_on_device(mask, a);
    const ReorderedPlan plan = reordered_plan(reinterpret_cast<std::byte*>(memory.data()), 1, mask.queries, mask.keys);
    CHECK(plan.orders[0].natural == 1);
    CHECK(plan.orders[0].keys == mask.keys);
    CHECK(plan.orders[0].natural_tiles == 100 * (proved ? 256 : 255));
    for (int key = 0; key < mask.keys; ++key) REQUIRE(plan.keys[key] == key);
    const auto* row = reinterpret_cast<const std::byte*>(plan.key_rows);
    CHECK(std::all_of(row, row + 4096, [](std::byte byte) { return byte == kPoison; }) == proved);

    a.mask_layout = FLASHDMA_BWD_MASK_NATURAL;
    const std::vector<std::uint64_t> natural = built_on_device(mask, a);
    const NaturalPlanLayout layout = natural_plan_layout(1, mask.queries, mask.keys);
    const std::size_t atoms = layout.classes / 8 / kMaskAtom;
    CHECK(std::memcmp(natural.data() + layout.classes / 8, plan.classes, atoms) == 0);
    std::size_t other = 0;
    for (std::size_t atom = 0; atom < atoms; ++atom)
      if (plan.classes[atom] != static_cast<std::uint8_t>(MaskClass::empty))
        other += std::memcmp(natural.data() + atom * kMaskAtom, plan.words + atom * kMaskAtom, kMaskAtom * 8) != 0;
    CHECK(other == 0);
  }
}
