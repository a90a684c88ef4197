// The rules of the encodings and layouts of masks, and of their plans, through the C ABI.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "small_problem.hpp"

namespace flashdma_bwd::testing {

constexpr std::int64_t kNoLimit = std::int64_t{1} << 30;

/// A plan of the small shape and of a mask of bytes, as flashdma_bwd_plan_build would describe it.
MaskPlan plan_of(std::int32_t layout, void* memory) {
  MaskPlan plan{};
  plan.struct_size = sizeof plan;
  plan.layout = layout;
  plan.batch = kBatch;
  plan.heads = kHeads;
  plan.seqlen_q = kQueries;
  plan.seqlen_k = kKeys;
  plan.memory = memory;
  plan.bytes = std::size_t{1} << 30;
  plan.lowest_offset = -kNoLimit;
  plan.highest_offset = kNoLimit;
  plan.rows = layout == FLASHDMA_BWD_LAYOUT_COMPACTED ? 1 : kQueries;
  return plan;
}

TEST_CASE("masks of every encoding") {
  using P = PairTensor;
  /// A mask of contiguous elements of an encoding, with the block sizes of one of blocks.
  const auto mask_of = [](SmallProblem& p, std::int32_t encoding, std::int64_t rows, std::int64_t columns) {
    Arguments& a = p.arguments;
    a.mask = p.pairs(0, kBatch, kHeads, rows, columns);
    a.mask.encoding = encoding;
    if (encoding == FLASHDMA_BWD_ENCODING_INTERVALS) {
      a.mask.stride_row = 1;
      a.mask.stride_column = 2;
    }
    if (encoding == FLASHDMA_BWD_ENCODING_KEY_LIST)  // of no keys: padding
      std::fill_n(static_cast<std::int32_t*>(a.mask.data), 3 * kBatch * kHeads * kKeys, -1);
    if (encoding == FLASHDMA_BWD_ENCODING_BLOCKS) {
      a.mask_block_q = 64;
      a.mask_block_k = 128;
    }
  };
  struct Good {
    std::int32_t encoding;
    std::int64_t rows, columns;
  };
  for (const Good& good : {Good{FLASHDMA_BWD_ENCODING_BYTES, kQueries, kKeys},
                           {FLASHDMA_BWD_ENCODING_BITS, kQueries, kKeys},
                           {FLASHDMA_BWD_ENCODING_BITS, 1, kKeys},
                           {FLASHDMA_BWD_ENCODING_BITS, kQueries, 1},
                           {FLASHDMA_BWD_ENCODING_KEY_LIST, 1, 0},
                           {FLASHDMA_BWD_ENCODING_KEY_LIST, 1, 1},
                           {FLASHDMA_BWD_ENCODING_KEY_LIST, 1, 3 * kKeys},
                           {FLASHDMA_BWD_ENCODING_INTERVALS, 2, kKeys},
                           {FLASHDMA_BWD_ENCODING_INTERVALS, 2, 1},
                           {FLASHDMA_BWD_ENCODING_BLOCKS, 1, 1}}) {
    INFO("encoding " << good.encoding << ", rows " << good.rows << ", columns " << good.columns);
    check_accepted([&](SmallProblem& p) { mask_of(p, good.encoding, good.rows, good.columns); });
    for (const std::int64_t heads : {std::int64_t{1}, kHeadsKv})
      check_accepted([&](SmallProblem& p) {
        mask_of(p, good.encoding, good.rows, good.columns);
        p.arguments.mask.batch = 1;
        p.arguments.mask.heads = heads;
      });
    const auto refused = [&](std::int64_t P::*member, std::int64_t value, const std::vector<std::string>& parts) {
      check_refused(
          [&](SmallProblem& p) {
            mask_of(p, good.encoding, good.rows, good.columns);
            static_cast<P&>(p.arguments.mask).*member = value;
          },
          kInvalid, parts);
    };
    refused(&P::batch, 3, {"mask.batch is 3", "batch, 2"});
    refused(&P::heads, 3, {"mask.heads is 3", "heads_kv, 2"});
    if (good.columns > 0) {
      refused(&P::stride_batch, -1, {"mask.stride_batch is -1", "at least 0"});
      refused(&P::stride_head, std::numeric_limits<std::int64_t>::max(), {"mask cannot be addressed"});
    }
  }
  const auto refused = [&](std::int32_t encoding, std::int64_t rows, std::int64_t columns,
                           const std::vector<std::string>& parts) {
    check_refused([&](SmallProblem& p) { mask_of(p, encoding, rows, columns); }, kInvalid, parts);
  };
  refused(-1, kQueries, kKeys, {"mask.encoding is -1", "flashdma_bwd_mask_encoding"});
  refused(5, kQueries, kKeys, {"mask.encoding is 5"});
  refused(FLASHDMA_BWD_ENCODING_BITS, 2, kKeys, {"mask.rows is 2", "seqlen_q, 5"});
  refused(FLASHDMA_BWD_ENCODING_BITS, kQueries, 8, {"mask.columns is 8", "seqlen_k, 7"});
  refused(FLASHDMA_BWD_ENCODING_KEY_LIST, kQueries, kKeys, {"mask.rows is 5", "must be 1", "all queries"});
  refused(FLASHDMA_BWD_ENCODING_KEY_LIST, 1, -1, {"mask.columns is -1", "length of the lists"});
  refused(FLASHDMA_BWD_ENCODING_KEY_LIST, 1, std::int64_t{1} << 31, {"mask.columns is 2147483648", "2^30"});
  refused(FLASHDMA_BWD_ENCODING_INTERVALS, 1, kKeys, {"mask.rows is 1", "must be 2", "ends"});
  refused(FLASHDMA_BWD_ENCODING_INTERVALS, 2, 3, {"mask.columns is 3", "seqlen_k, 7"});
  refused(FLASHDMA_BWD_ENCODING_BLOCKS, 2, 1, {"mask.rows is 2", "ceil(seqlen_q / mask_block_q), 1"});
  refused(FLASHDMA_BWD_ENCODING_BLOCKS, 1, 2, {"mask.columns is 2", "ceil(seqlen_k / mask_block_k), 1"});
  // The block sizes, and a mask that has none.
  for (const std::uint16_t size : {std::uint16_t{0}, std::uint16_t{32}, std::uint16_t{96}, std::uint16_t{65535}}) {
    const auto with = [&](std::uint16_t flashdma_bwd_arguments::*member, const char* name) {
      check_refused(
          [&](SmallProblem& p) {
            mask_of(p, FLASHDMA_BWD_ENCODING_BLOCKS, 1, 1);
            p.arguments.*member = size;
          },
          kInvalid, {std::string(name) + " is " + std::to_string(size), "multiples of 64"});
    };
    with(&flashdma_bwd_arguments::mask_block_q, "mask_block_q");
    with(&flashdma_bwd_arguments::mask_block_k, "mask_block_k");
  }
  check_refused([](SmallProblem& p) { p.arguments.mask_block_k = 64; }, kInvalid,
                {"mask_block_k is 64", "FLASHDMA_BWD_ENCODING_BLOCKS", "mask.encoding is 0"});
  // An address that is NULL is no mask, which has no encoding: an allocator may have none for an empty list, and one
  // that keeps nothing must not become one that keeps all.
  for (const std::int32_t encoding : {FLASHDMA_BWD_ENCODING_BITS, FLASHDMA_BWD_ENCODING_KEY_LIST,
                                      FLASHDMA_BWD_ENCODING_INTERVALS, FLASHDMA_BWD_ENCODING_BLOCKS})
    check_refused(
        [&](SmallProblem& p) {
          mask_of(p, encoding, 1, 0);
          p.arguments.mask.data = nullptr;
        },
        kInvalid,
        {"mask.data is NULL and mask.encoding is " + std::to_string(encoding) + ", FLASHDMA_BWD_ENCODING_",
         "clear encoding for no mask", "an empty list needs any non-NULL address"});
  check_refused([](SmallProblem& p) { p.arguments.mask.data = nullptr, p.arguments.mask.encoding = 7; }, kInvalid,
                {"mask.encoding is 7: clear encoding"});
  check_accepted([&](SmallProblem& p) {  // the other fields of none do not matter
    mask_of(p, FLASHDMA_BWD_ENCODING_BYTES, 3, 3);
    p.arguments.mask.data = nullptr;
  });
  check_refused([](SmallProblem& p) { p.arguments.mask.data = nullptr, p.arguments.mask_block_k = 64; }, kInvalid,
                {"mask.data is NULL and mask_block_q is 0, mask_block_k 64", "clear both for no mask"});
  // int32 elements, and layouts.
  for (const std::int32_t encoding : {FLASHDMA_BWD_ENCODING_KEY_LIST, FLASHDMA_BWD_ENCODING_INTERVALS})
    check_refused(
        [&](SmallProblem& p) {
          mask_of(p, encoding, encoding == FLASHDMA_BWD_ENCODING_KEY_LIST ? 1 : 2, kKeys);
          p.arguments.mask.data = static_cast<char*>(p.arguments.mask.data) + 2;
        },
        kInvalid, {"mask.data must be 4-byte aligned"});
  check_refused(
      [&](SmallProblem& p) {
        mask_of(p, FLASHDMA_BWD_ENCODING_KEY_LIST, 1, kKeys);
        p.arguments.mask.stride_column = 2;
      },
      kInvalid, {"mask.stride_column is 2"});
  check_refused(
      [&](SmallProblem& p) {
        mask_of(p, FLASHDMA_BWD_ENCODING_INTERVALS, 2, kKeys);
        p.arguments.mask_layout = FLASHDMA_BWD_MASK_COMPACTED;
      },
      kInvalid, {"FLASHDMA_BWD_MASK_COMPACTED", "mask.rows is 2"});
  check_accepted([&](SmallProblem& p) {  // begins and ends in arrays of their own
    mask_of(p, FLASHDMA_BWD_ENCODING_INTERVALS, 2, kKeys);
    p.arguments.mask.stride_row = kKeys;
    p.arguments.mask.stride_column = 1;
  });
  for (const std::int64_t columns : {std::int64_t{1}, kKeys})
    check_refused(
        [&](SmallProblem& p) {
          mask_of(p, FLASHDMA_BWD_ENCODING_INTERVALS, 2, columns);
          p.arguments.mask.stride_row = 0;
        },
        kInvalid, {"mask.stride_row is 0", "memory of their own", "stride_row is 1 and stride_column is 2"});
  const auto same_strides = [&](SmallProblem& p, std::int64_t columns) {
    mask_of(p, FLASHDMA_BWD_ENCODING_INTERVALS, 2, columns);
    p.arguments.mask.stride_row = p.arguments.mask.stride_column = 1;
  };
  check_refused([&](SmallProblem& p) { same_strides(p, kKeys); }, kInvalid,
                {"mask.stride_row is 1", "mask.stride_column is 1"});
  check_accepted([&](SmallProblem& p) { same_strides(p, 1); });  // one column has no stride
  // Building a plan refuses it before it needs a GPU.
  SmallProblem problem;
  same_strides(problem, kKeys);
  MaskPlan plan{};
  alignas(256) static char memory[256];
  const Status status = plan_build(problem.arguments, memory, std::size_t{1} << 30, nullptr, plan);
  CHECK(status.code() == kInvalid);
  CHECK(status.message().find("mask.stride_row is 1") == 0);
}

TEST_CASE("the CPU backend refuses lists and intervals that have no sense, with their place") {
  /// A mask of lists of 4 keys, or of intervals, whose numbers `change` sees.
  const auto with = [](std::int32_t encoding, auto change) {
    return [encoding, change](SmallProblem& p) {
      const bool lists = encoding == FLASHDMA_BWD_ENCODING_KEY_LIST;
      Arguments& a = p.arguments;
      a.mask = p.pairs(0, kBatch, kHeads, lists ? 1 : 2, lists ? 4 : kKeys);
      a.mask.encoding = encoding;
      auto* numbers = static_cast<std::int32_t*>(a.mask.data);
      if (lists) {
        for (std::int64_t i = 0; i < kBatch * kHeads * 4; ++i) numbers[i] = static_cast<std::int32_t>(i % 4);
      } else {
        a.mask.stride_row = 1;
        a.mask.stride_column = 2;
        for (std::int64_t i = 0; i < kBatch * kHeads * kKeys; ++i) numbers[2 * i] = 1, numbers[2 * i + 1] = kQueries;
      }
      change(numbers);
    };
  };
  const auto list = [&](auto change) { return with(FLASHDMA_BWD_ENCODING_KEY_LIST, change); };
  constexpr int kLast = (kBatch * kHeads - 1) * 4;  // where the last list begins
  check_accepted(list([](std::int32_t*) {}));
  check_accepted(list([](std::int32_t* keys) { keys[0] = keys[2] = -1; }));
  check_refused(list([](std::int32_t* keys) { keys[kLast + 3] = 7; }), kInvalid,
                {"mask[1][3][3] is 7", "seqlen_k, 7", "nor -1"});
  check_refused(list([](std::int32_t* keys) { keys[4] = -7; }), kInvalid, {"mask[0][1][0] is -7"});
  check_refused(list([](std::int32_t* keys) { keys[kLast + 3] = 1; }), kInvalid,
                {"mask[1][3][3] is 1", "mask[1][3][1] is the same key"});
  const auto intervals = [&](auto change) { return with(FLASHDMA_BWD_ENCODING_INTERVALS, change); };
  check_accepted(intervals([](std::int32_t*) {}));
  check_accepted(intervals([](std::int32_t* numbers) { numbers[0] = numbers[1] = 0; }));
  check_refused(intervals([](std::int32_t* numbers) { numbers[2] = 4, numbers[3] = 3; }), kInvalid,
                {"mask[0][0][1] is [4, 3)", "ends before it begins"});
  check_refused(intervals([](std::int32_t* numbers) { numbers[2 * kKeys] = -1; }), kInvalid,
                {"mask[0][1][0] is [-1, 5)", "seqlen_q, 5"});
  check_refused(intervals([](std::int32_t* numbers) { numbers[1] = 6; }), kInvalid, {"mask[0][0][0] is [1, 6)"});
}

TEST_CASE("the layout and the size of a plan of every encoding, and what explain says") {
  struct Expected {
    std::int32_t encoding;
    std::int64_t rows, columns;
    const char* layout;
    const char* text;
  };
  for (const Expected& e : {Expected{FLASHDMA_BWD_ENCODING_BYTES, kQueries, kKeys, "mask natural", "bytes, one a pair"},
                            {FLASHDMA_BWD_ENCODING_BITS, kQueries, kKeys, "mask natural", "bits, one a pair"},
                            {FLASHDMA_BWD_ENCODING_BITS, 1, kKeys, "mask compacted", "bits, one a pair"},
                            {FLASHDMA_BWD_ENCODING_KEY_LIST, 1, 4, "mask compacted", "lists of keys"},
                            {FLASHDMA_BWD_ENCODING_INTERVALS, 2, kKeys, "mask natural", "an interval of queries"},
                            {FLASHDMA_BWD_ENCODING_BLOCKS, 1, 1, "mask compacted", "64 queries x 128 keys"}}) {
    SmallProblem problem;
    Arguments& a = problem.arguments;
    a.bias.data = a.d_bias.data = nullptr;  // a tile bias would keep the natural layout
    std::size_t of_bytes = 0, bytes = 0;
    a.mask = problem.pairs(0, kBatch, kHeads, e.rows == kQueries || e.rows == 2 ? kQueries : 1, kKeys);
    CHECK(plan_size(a, of_bytes).ok());
    a.mask = problem.pairs(0, kBatch, kHeads, e.rows, e.columns);
    a.mask.encoding = e.encoding;
    if (e.encoding == FLASHDMA_BWD_ENCODING_BLOCKS) {
      a.mask_block_q = 64;
      a.mask_block_k = 128;
    }
    CHECK(plan_size(a, bytes).ok());
    CHECK((e.encoding == FLASHDMA_BWD_ENCODING_KEY_LIST ? bytes > of_bytes : bytes == of_bytes));
    const std::string text = explain(a, &kH100);
    INFO(text);
    CHECK(text.find(e.layout) != std::string::npos);
    CHECK(text.find(std::string("mask: ")) != std::string::npos);
    CHECK(text.find(e.text) != std::string::npos);
  }
}

TEST_CASE("a plan must be of the call's mask") {
  alignas(256) static char memory[256];
  const auto with_plan = [](auto change, const std::vector<std::string>& parts) {
    Arguments a = small_shape();
    MaskPlan plan = plan_of(FLASHDMA_BWD_LAYOUT_NATURAL, memory);
    change(a, plan);
    a.plan = &plan;
    Selection selection{};
    const Status status = select(a, selection, &kH100);
    INFO(parts.front() << ": " << status.message());
    CHECK(status.code() == kInvalid);
    for (const std::string& part : parts) CHECK(status.message().find(part) != std::string::npos);
  };
  with_plan([](Arguments&, MaskPlan& plan) { plan.struct_size = 0; }, {"plan.struct_size is 0"});
  with_plan([](Arguments&, MaskPlan& plan) { plan.layout = 3; }, {"plan.layout is 3"});
  with_plan([](Arguments&, MaskPlan& plan) { plan.layout = FLASHDMA_BWD_LAYOUT_REORDERED, plan.bytes = 4096; },
            {"plan.bytes is 4096"});
  with_plan([](Arguments&, MaskPlan& plan) { plan.batch = 3; }, {"plan.batch is 3"});
  with_plan([](Arguments&, MaskPlan& plan) { plan.heads = 3; }, {"plan.heads is 3"});
  with_plan([](Arguments&, MaskPlan& plan) { plan.seqlen_q = 6; }, {"plan.seqlen_q is 6", "the call's is 5"});
  with_plan([](Arguments&, MaskPlan& plan) { plan.seqlen_k = 6; }, {"plan.seqlen_k is 6", "the call's is 7"});
  with_plan([](Arguments&, MaskPlan& plan) { plan.memory = nullptr; }, {"plan.memory"});
  with_plan([](Arguments&, MaskPlan& plan) { plan.memory = memory + 16; }, {"plan.memory", "256-byte aligned"});
  with_plan([](Arguments&, MaskPlan& plan) { plan.bytes = 1; }, {"plan.bytes is 1"});
  with_plan([](Arguments& a,
               MaskPlan&) { a.mask = {memory, 0, 0, kBatch, kHeads, 1, kKeys, kHeads * kKeys, kKeys, kKeys, 1}; },
            {"plan is of another mask", "rows 5", "rows 1"});
  with_plan([](Arguments&, MaskPlan& plan) { plan.encoding = 5; }, {"plan.encoding is 5"});
  with_plan([](Arguments& a,
               MaskPlan&) { a.mask = {memory, 0, FLASHDMA_BWD_ENCODING_BITS, 1, 1, kQueries, kKeys, 0, 0, 1, 1}; },
            {"plan is of another mask: it was built of FLASHDMA_BWD_ENCODING_BYTES with batch 2, heads 4 and rows 5",
             "mask is FLASHDMA_BWD_ENCODING_BITS with batch 1, heads 1 and rows 5"});
  // A layout that is asked for is the plan's, or refused: with the mask and without.
  for (const bool mask : {false, true})
    for (const auto& [asked, word] : {std::pair{FLASHDMA_BWD_MASK_REORDERED, "are reordered"},
                                      std::pair{FLASHDMA_BWD_MASK_COMPACTED, "are compacted"}})
      with_plan(
          [&, asked = asked](Arguments& a, MaskPlan&) {
            a.mask_layout = asked;
            if (mask)
              a.mask = {memory,           0,     0, kBatch, kHeads, kQueries, kKeys, kHeads * kQueries * kKeys,
                        kQueries * kKeys, kKeys, 1};
          },
          {"mask_layout is " + std::to_string(asked), word, "those of the plan are natural", "FLASHDMA_BWD_MASK_AUTO"});
  // A plan leaves out what the limits of its arguments hide; 7 keys and 5 queries, so that causality ends at key -
  // query = 2.
  with_plan([](Arguments&, MaskPlan& plan) { plan.highest_offset = 2; },
            {"plan was built for narrower limits", "unlimited ... 2,", "leave unlimited ... unlimited;"});
  with_plan([](Arguments& a, MaskPlan& plan) { a.window_left = 3, plan.lowest_offset = 0; },
            {"plan was built for narrower limits", "leave -1 ..."});
  with_plan([](Arguments& a, MaskPlan& plan) { a.causal = 1, plan.highest_offset = 1; },
            {"plan was built for narrower limits", "... 2; build"});
  const std::int32_t* const offsets = reinterpret_cast<const std::int32_t*>(memory);
  with_plan(
      [offsets](Arguments& a, MaskPlan& plan) {
        a.cu_seqlens_q = a.cu_seqlens_k = offsets;
        a.total_q = a.total_k = 10;
        a.causal = 1;
        plan.highest_offset = 2;
      },
      {"plan was built for narrower limits"});
}

TEST_CASE("plans serve calls whose limits lie inside theirs") {
  alignas(256) static char memory[256];
  Arguments a = small_shape();
  a.causal = 1;
  for (const std::int32_t layout :
       {FLASHDMA_BWD_LAYOUT_NATURAL, FLASHDMA_BWD_LAYOUT_COMPACTED, FLASHDMA_BWD_LAYOUT_REORDERED})
    for (const std::int64_t highest : {std::int64_t{2}, std::int64_t{3}, kNoLimit}) {
      MaskPlan plan = plan_of(layout, memory);
      plan.highest_offset = highest;
      a.plan = &plan;
      check_selected(a);
    }
}

TEST_CASE("a plan serves calls with its mask, whatever layout was asked for when it was built") {
  alignas(256) static char memory[4096];
  Arguments a = small_shape();
  a.mask = {memory, 0, 0, kBatch, kHeads, 1, kKeys, kHeads * kKeys, kKeys, kKeys, 1};
  a.mask_layout = FLASHDMA_BWD_MASK_NATURAL;
  MaskPlan plan = plan_of(FLASHDMA_BWD_LAYOUT_NATURAL, memory);
  plan.rows = 1;
  a.plan = &plan;
  check_selected(a);
  a.mask_layout = FLASHDMA_BWD_MASK_AUTO;  // which would compact the mask
  check_selected(a);
  a.mask.rows = kQueries;
  a.mask.stride_row = 0;  // a row for each query, which is one
  check_selected(a);
  a.mask.data = nullptr;
  a.mask.encoding = FLASHDMA_BWD_ENCODING_BITS;  // of a mask that is out of reach
  check_selected(a);
}

TEST_CASE("a mask that has a plan is read by nobody, so that its memory and strides do not matter") {
  SmallProblem problem;
  Arguments& a = problem.arguments;
  a.mask.stride_column = 7;
  CHECK(check_memory(a));
  MaskPlan plan{};
  a.plan = &plan;
  CHECK_FALSE(check_memory(a));
}

TEST_CASE("a schedule must be of the call's plan, and of a kernel of this build") {
  alignas(256) static char memory[256];
  const auto with_schedule = [](auto change, Code code, const std::string& part) {
    Arguments a = small_shape();
    MaskPlan plan = plan_of(FLASHDMA_BWD_LAYOUT_NATURAL, memory);
    plan.building = 7;
    a.plan = &plan;
    Schedule schedule{sizeof schedule, 0, plan.building, 0, memory, sizeof memory};
    a.schedule = &schedule;
    change(a, schedule);
    Selection selection{};
    const Status status = select(a, selection, &kH100);
    INFO(part << ": " << status.message());
    CHECK(status.code() == code);
    CHECK(status.message().find(part) != std::string::npos);
    CHECK(explain(a, &kH100).find("the arguments are refused: " + status.message()) != std::string::npos);
  };
  with_schedule([](Arguments&, Schedule& schedule) { schedule.struct_size = 8; }, kInvalid,
                "schedule.struct_size is 8");
  with_schedule([](Arguments&, Schedule& schedule) { schedule.building = 8; }, kInvalid,
                "it was built of number 8, and plan.building is 7");
  with_schedule([](Arguments&, Schedule& schedule) { schedule.memory = memory + 16; }, kInvalid, "256-byte aligned");
  with_schedule([](Arguments&, Schedule& schedule) { schedule.memory = nullptr; }, kInvalid, "schedule.memory");
  with_schedule([](Arguments&, Schedule& schedule) { schedule.kernel = -1; }, kInvalid, "schedule.kernel is -1");
  with_schedule([](Arguments&, Schedule& schedule) { schedule.kernel = 1 << 20; }, kInvalid,
                "schedule.kernel is 1048576");
  // A build without kernels has no number 0 either.
  if (flashdma_bwd_kernel_count() > 0)
    with_schedule([](Arguments& a, Schedule&) { a.kernel = "fastest"; }, kInvalid, "kernel is `fastest`");
  with_schedule([](Arguments& a, Schedule&) { a.plan = nullptr; }, kInvalid, "plan is NULL");
  with_schedule([](Arguments& a, Schedule&) { a.flags |= FLASHDMA_BWD_FLAG_DETERMINISTIC; }, FLASHDMA_BWD_UNSUPPORTED,
                "a deterministic call has no schedule");
  with_schedule(
      [](Arguments& a, Schedule&) {
        a.cu_seqlens_q = a.cu_seqlens_k = reinterpret_cast<const std::int32_t*>(memory);
        a.total_q = kBatch * kQueries;
        a.total_k = kBatch * kKeys;
      },
      FLASHDMA_BWD_UNSUPPORTED, "a call of variable length has no schedule");
}

TEST_CASE("a plan of no bytes needs no memory") {
  Arguments a = small_shape();
  MaskPlan plan = plan_of(FLASHDMA_BWD_LAYOUT_NATURAL, nullptr);
  a.batch = plan.batch = 0;
  plan.bytes = 0;
  a.plan = &plan;
  std::size_t bytes = 77;
  Status status = workspace_size(a, bytes);
  INFO(status.message());
  CHECK(status.ok());
  CHECK(bytes == 0);
  a = small_shape();
  a.seqlen_k = plan.seqlen_k = 0;
  a.batch = plan.batch = kBatch;
  a.plan = &plan;
  check_selected(a);
  PlanParts parts{};
  CHECK(plan_view(plan, parts).ok());
  CHECK(parts.words == nullptr);
}

TEST_CASE("explain and select say which layout a mask has, explain by which rule") {
  static unsigned char byte = 1;
  Arguments a;
  a.data_type = FLASHDMA_BWD_BF16;
  a.batch = 1;
  a.heads = a.heads_kv = 2;
  a.head_dim = 64;
  a.seqlen_q = a.seqlen_k = 2048;
  const auto check_selected = [&](std::int32_t layout) {
    Selection selection{};
    const Status status = select(a, selection, &kH100);
    INFO(status.message());
    // A build without kernels selects none.
    if (status.code() != FLASHDMA_BWD_UNSUPPORTED_ARCHITECTURE) {
      CHECK(status.ok());
      CHECK(selection.layout == layout);
    }
  };
  const auto check = [&](std::int32_t layout, const std::string& line) {
    const std::string text = explain(a, &kH100);
    INFO(text);
    CHECK(text.find(line) != std::string::npos);
    CHECK((text.find("\ntiles: counted on the GPU ") != std::string::npos) ==
          (layout == FLASHDMA_BWD_LAYOUT_REORDERED));
    check_selected(layout);
  };
  CHECK(explain(a, &kH100).find("layout: ") == std::string::npos);
  check_selected(-1);
  a.mask = {&byte, 0, 0, 1, 1, 2048, 2048, 0, 0, 2048, 1};
  check(FLASHDMA_BWD_LAYOUT_REORDERED, "\nlayout: reordered (each mask decides on the device, ");
  a.bias = {&byte, FLASHDMA_BWD_BF16, 0, 1, 1, 2048, 2048, 0, 0, 2048, 1};
  check(FLASHDMA_BWD_LAYOUT_NATURAL, "\nlayout: natural (tile bias: ");
  a.mask.rows = 1;
  check(FLASHDMA_BWD_LAYOUT_NATURAL, "\nlayout: natural (tile bias: ");
  a.mask_layout = FLASHDMA_BWD_MASK_COMPACTED;
  check(FLASHDMA_BWD_LAYOUT_COMPACTED, "\nlayout: compacted (asked for)\n");
  a.mask.rows = 2048;
  a.mask_layout = FLASHDMA_BWD_MASK_REORDERED;
  check(FLASHDMA_BWD_LAYOUT_REORDERED, "\nlayout: reordered (asked for)\n");
  a.bias = {};
  a.mask_layout = FLASHDMA_BWD_MASK_AUTO;
  a.seqlen_k = a.mask.columns = 2047;
  check(FLASHDMA_BWD_LAYOUT_NATURAL, "\nlayout: natural (fewer than 2048 keys)\n");
  a.mask.rows = 1;
  check(FLASHDMA_BWD_LAYOUT_COMPACTED, "\nlayout: compacted (one row: ");
  alignas(256) static char memory[256];
  MaskPlan plan = plan_of(FLASHDMA_BWD_LAYOUT_REORDERED, memory);
  plan.batch = 1;
  plan.heads = 1;
  plan.seqlen_q = 2048;
  plan.seqlen_k = 2047;
  plan.rows = 1;
  a.plan = &plan;
  check(FLASHDMA_BWD_LAYOUT_REORDERED, "\nlayout: reordered, the plan's\n");
}

TEST_CASE("a mask's layout can be asked for") {
  Arguments a;
  a.data_type = FLASHDMA_BWD_BF16;
  a.batch = 1;
  a.heads = a.heads_kv = 2;
  a.head_dim = 64;
  a.seqlen_q = a.seqlen_k = 4096;
  static unsigned char byte = 1;
  a.mask = {&byte, 0, 0, 1, 1, 4096, 4096, 0, 0, 4096, 1};
  const auto explained = [&](const char* layout) {
    const std::string text = explain(a, &kH100);
    INFO(text);
    CHECK(text.find(std::string("mask ") + layout) != std::string::npos);
  };
  explained("reordered");
  a.mask_layout = FLASHDMA_BWD_MASK_NATURAL;
  explained("natural");
  a.mask_layout = FLASHDMA_BWD_MASK_AUTO;
  a.bias = {&byte, FLASHDMA_BWD_BF16, 0, 1, 1, 4096, 4096, 0, 0, 4096, 1};
  explained("natural");
  a.mask_layout = FLASHDMA_BWD_MASK_REORDERED;
  explained("reordered");
  a.bias = {};
  a.mask_layout = FLASHDMA_BWD_MASK_AUTO;
  a.seqlen_k = a.mask.columns = 1024;
  explained("natural");
  a.mask.rows = 1;
  explained("compacted");
  a.mask_layout = FLASHDMA_BWD_MASK_REORDERED;
  explained("reordered");
  a.mask.rows = 4096;
  a.mask_layout = FLASHDMA_BWD_MASK_COMPACTED;
  Selection selection{};
  Status status = select(a, selection, &kH100);
  CHECK(status.code() == kInvalid);
  CHECK(status.message().find("mask.rows is 4096") != std::string::npos);
  a.mask_layout = 4;
  status = select(a, selection, &kH100);
  CHECK(status.code() == kInvalid);
  CHECK(status.message().find("mask_layout is 4") != std::string::npos);
}

}  // namespace flashdma_bwd::testing
