// The rules of flashdma_bwd_arguments through the C ABI: what is refused, with which code, and that the message names
// the argument. The CPU backend carries out what is not refused. Those of masks' encodings and plans have a file of
// their own.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "small_problem.hpp"

namespace flashdma_bwd::testing {

TEST_CASE("the small problem is accepted as it is") {
  check_accepted([](SmallProblem&) {});
  check_accepted([](SmallProblem& p) { p.make_packed(); });
}

TEST_CASE("every pointer that receives or gives something must be there") {
  const auto message_of = [](Code code) {
    CHECK(code == kInvalid);
    return std::string(flashdma_bwd_last_message());
  };
  Arguments arguments;
  std::size_t bytes = 0;
  MaskPlan plan{};
  CHECK(message_of(flashdma_bwd_backward_reference(nullptr, 1)).find("arguments is NULL") == 0);
  CHECK(message_of(flashdma_bwd_workspace_size(nullptr, &bytes)).find("arguments is NULL") == 0);
  CHECK(message_of(flashdma_bwd_workspace_size(&arguments, nullptr)).find("bytes is NULL") == 0);
  CHECK(message_of(flashdma_bwd_backward(nullptr, nullptr, 0, nullptr)).find("arguments is NULL") == 0);
  CHECK(message_of(flashdma_bwd_prepare(nullptr)).find("arguments is NULL") == 0);
  CHECK(message_of(flashdma_bwd_plan_size(nullptr, &bytes)).find("arguments is NULL") == 0);
  CHECK(message_of(flashdma_bwd_plan_size(&arguments, nullptr)).find("bytes is NULL") == 0);
  CHECK(message_of(flashdma_bwd_plan_build(&arguments, nullptr, 0, nullptr, nullptr)).find("plan is NULL") == 0);
  CHECK(message_of(flashdma_bwd_plan_build(nullptr, nullptr, 0, nullptr, &plan)).find("arguments is NULL") == 0);
  Schedule schedule{};
  CHECK(message_of(flashdma_bwd_schedule_size(&arguments, nullptr)).find("bytes is NULL") == 0);
  CHECK(message_of(flashdma_bwd_schedule_build(&arguments, nullptr, 0, nullptr, nullptr)).find("schedule is NULL") ==
        0);
  CHECK(message_of(flashdma_bwd_schedule_build(nullptr, nullptr, 0, nullptr, &schedule)).find("arguments is NULL") ==
        0);
  CHECK(message_of(flashdma_bwd_select(&arguments, nullptr, nullptr)).find("selection is NULL") == 0);
  flashdma_bwd_plan_parts parts{};
  flashdma_bwd_plan_summary summary{};
  CHECK(message_of(flashdma_bwd_plan_view(&plan, nullptr)).find("parts is NULL") == 0);
  CHECK(message_of(flashdma_bwd_plan_view(&plan, &parts)).find("parts.struct_size is 0") == 0);
  parts.struct_size = sizeof parts;
  CHECK(message_of(flashdma_bwd_plan_view(nullptr, &parts)).find("plan is NULL") == 0);
  CHECK(message_of(flashdma_bwd_plan_view(&plan, &parts)).find("plan.struct_size is 0") == 0);
  CHECK(message_of(flashdma_bwd_plan_summarize(&plan, nullptr, nullptr)).find("summary is NULL") == 0);
  CHECK(message_of(flashdma_bwd_plan_summarize(&plan, nullptr, &summary)).find("summary.struct_size is 0") == 0);
  flashdma_bwd_arguments_init(nullptr);  // does nothing
}

TEST_CASE("sizes, types and numbers") {
  const auto refused = [](auto member, auto value, Code code, const std::vector<std::string>& parts) {
    check_refused([&](SmallProblem& p) { p.arguments.*member = value; }, code, parts);
  };
  using A = flashdma_bwd_arguments;
  refused(&A::struct_size, 8u, kInvalid, {"struct_size is 8", "flashdma_bwd_arguments_init"});
  refused(&A::flags, 4u, kUnsupported, {"flags has unknown bits, 4"});
  refused(&A::data_type, FLASHDMA_BWD_FP32, kInvalid, {"data_type is 2"});
  refused(&A::data_type, -1, kInvalid, {"data_type is -1"});
  for (const int head_dim : {0, -8, 4, 12, 100})
    refused(&A::head_dim, head_dim, kInvalid, {"head_dim is " + std::to_string(head_dim), "multiple of 8"});
  refused(&A::head_dim, 264, kUnsupported, {"head_dim is 264", "256"});
  for (const auto& [member, name] : {std::pair{&A::batch, "batch"},
                                     {&A::heads, "heads"},
                                     {&A::heads_kv, "heads_kv"},
                                     {&A::seqlen_q, "seqlen_q"},
                                     {&A::seqlen_k, "seqlen_k"}}) {
    refused(member, -1, kInvalid, {std::string(name) + " is -1", "at least 0"});
    refused(member, std::int64_t{1} << 40, kUnsupported, {std::string(name) + " is 1099511627776"});
  }
  // Positions and a tile behind them are 32-bit numbers on the GPU.
  for (const auto& [member, name] : {std::pair{&A::seqlen_q, "seqlen_q"}, {&A::seqlen_k, "seqlen_k"}})
    refused(member, (std::int64_t{1} << 30) - 127, kUnsupported, {std::string(name) + " is 1073741697", "1073741696"});
  refused(&A::heads, 3, kInvalid, {"heads is 3", "multiple of heads_kv, 2"});
  refused(&A::heads_kv, 0, kInvalid, {"heads is 4", "multiple of heads_kv, 0"});
  refused(&A::heads, 0, kInvalid, {"heads is 0 and heads_kv is 2"});
  for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    refused(&A::scale, value, kInvalid, {"scale is not finite"});
    refused(&A::softcap, value, kInvalid, {"softcap is "});
  }
  for (const float value : {1e-21f, -1e-38f, 1e21f, -3e38f})
    refused(&A::scale, value, kInvalid, {"scale is ", "between 1e-20 and 1e20"});
  refused(&A::scale, 1e-21f, kInvalid, {"scale is 1e-21: "});
  for (const float value : {1e-20f, -1e20f}) check_accepted([&](SmallProblem& p) { p.arguments.scale = value; });
  const auto with_softcap = [](float scale) {
    return [scale](SmallProblem& p) { p.arguments.scale = scale, p.arguments.softcap = 0.125f; };
  };
  check_refused(with_softcap(-2e6f), kInvalid, {"scale is -2e+06 and softcap is 0.125", "at most 1e7"});
  check_accepted(with_softcap(1e6f));
  for (const float value : {-1.0f, 1e-4f, 1e7f})
    refused(&A::softcap, value, kInvalid, {"softcap is ", "0, which means none, or between 0.001 and 1000000"});
  refused(&A::causal, 2, kInvalid, {"causal is 2", "0 or 1"});
  refused(&A::lse_base_two, -1, kInvalid, {"lse_base_two is -1"});
  refused(&A::mask_density, 1001, kInvalid, {"mask_density is 1001"});
  refused(&A::mask_density, -1, kInvalid, {"mask_density is -1"});
  refused(&A::window_left, -2, kInvalid, {"window_left is -2", "-1 for no limit"});
  refused(&A::window_right, -2, kInvalid, {"window_right is -2"});
  for (const auto& [member, name] : {std::pair{&A::query_offset, "query_offset"},
                                     {&A::key_offset, "key_offset"},
                                     {&A::global_seqlen_q, "global_seqlen_q"},
                                     {&A::global_seqlen_k, "global_seqlen_k"}}) {
    refused(member, -1, kInvalid, {std::string(name) + " is -1"});
    refused(member, std::numeric_limits<std::int64_t>::max(), kInvalid,
            {std::string(name) + " is 9223372036854775807"});
  }
  check_accepted([](SmallProblem& p) { p.arguments.scale = -1.0f; });
  check_accepted([](SmallProblem& p) { p.arguments.window_left = p.arguments.window_right = 0; });
}

TEST_CASE("fields of later versions are unsupported by name") {
  const auto refused = [](auto change, const char* name) {
    check_refused(change, kUnsupported, {std::string(name) + " is not 0"});
  };
  static float number = 0;
  refused([](SmallProblem& p) { p.arguments.d_lse = &number; }, "d_lse");
  refused([](SmallProblem& p) { p.arguments.row_dot = &number; }, "row_dot");
  refused([](SmallProblem& p) { p.arguments.beta_q = 1; }, "beta_q");
  refused([](SmallProblem& p) { p.arguments.beta_k = 1; }, "beta_k");
  refused([](SmallProblem& p) { p.arguments.beta_v = std::numeric_limits<float>::quiet_NaN(); }, "beta_v");
  refused([](SmallProblem& p) { p.arguments.beta_bias = 1; }, "beta_bias");
  refused([](SmallProblem& p) { p.arguments.d_q_accumulator = &number; }, "d_q_accumulator");
  refused([](SmallProblem& p) { p.arguments.d_k_accumulator = &number; }, "d_k_accumulator");
  refused([](SmallProblem& p) { p.arguments.d_v_accumulator = &number; }, "d_v_accumulator");
  refused([](SmallProblem& p) { p.arguments.sm_limit = 1; }, "sm_limit");
  refused([](SmallProblem& p) { p.arguments.bias.encoding = 1; }, "bias.encoding");
  refused([](SmallProblem& p) { p.arguments.d_bias.encoding = 1; }, "d_bias.encoding");
  check_accepted([](SmallProblem& p) { p.arguments.tag = 1; });
}

TEST_CASE("variable length") {
  const auto refused = [](auto change, Code code, const std::vector<std::string>& parts) {
    check_refused(
        [&](SmallProblem& p) {
          p.make_packed();
          change(p);
        },
        code, parts);
  };
  refused([](SmallProblem& p) { p.arguments.cu_seqlens_q = nullptr; }, kInvalid, {"cu_seqlens_q is NULL", "both"});
  refused([](SmallProblem& p) { p.arguments.cu_seqlens_k = nullptr; }, kInvalid, {"cu_seqlens_k is NULL"});
  refused([](SmallProblem& p) { p.arguments.total_q = 0; }, kInvalid, {"total_q is 0", "seqlen_q"});
  refused([](SmallProblem& p) { p.arguments.total_k = -1; }, kInvalid, {"total_k is -1"});
  refused([](SmallProblem& p) { p.arguments.total_k = std::int64_t{1} << 31; }, kUnsupported,
          {"total_k is 2147483648"});
  refused([](SmallProblem& p) { p.arguments.global_seqlen_q = 100; }, kInvalid, {"global_seqlen_k is 0"});
  refused([](SmallProblem& p) { p.arguments.cu_seqlens_q = p.offsets({1, 3, 5}); }, kInvalid, {"cu_seqlens_q[0] is 1"});
  refused(
      [](SmallProblem& p) {
        p.arguments.cu_seqlens_q = p.offsets({0, 3, 2});
      },
      kInvalid, {"cu_seqlens_q[2] is 2", "descend"});
  refused(
      [](SmallProblem& p) {
        p.arguments.cu_seqlens_k = p.offsets({0, 7, 8});
      },
      kInvalid, {"cu_seqlens_k[2] is 8", "total_k, 7"});
  refused(
      [](SmallProblem& p) {
        p.arguments.seqlen_q = 2;
        p.arguments.mask = {};
        p.arguments.bias = p.arguments.d_bias = {};
      },
      kInvalid, {"cu_seqlens_q[1] is 3", "more than seqlen_q, 2"});
}

TEST_CASE("shapes and types of mask, bias and dBias") {
  using P = PairTensor;
  const auto refused = [](PairTensor Arguments::*tensor, std::int64_t P::*member,
                          const std::vector<std::string>& parts) {
    check_refused([&](SmallProblem& p) { p.arguments.*tensor.*member = 3; }, kInvalid, parts);
  };
  using Field = PairTensor flashdma_bwd_arguments::*;
  for (const auto& [tensor, name] :
       {std::pair{Field{&Arguments::mask}, std::string("mask")}, {Field{&Arguments::bias}, std::string("bias")}}) {
    const auto member = static_cast<PairTensor Arguments::*>(tensor);
    refused(member, &P::batch, {name + ".batch is 3", "batch, 2"});
    refused(member, &P::heads, {name + ".heads is 3", "heads_kv, 2", "heads, 4"});
    refused(member, &P::rows, {name + ".rows is 3", "seqlen_q, 5"});
    refused(member, &P::columns, {name + ".columns is 3", "seqlen_k, 7"});
  }
  const auto d_bias = static_cast<PairTensor Arguments::*>(Field{&Arguments::d_bias});
  refused(d_bias, &P::batch, {"d_bias.batch is 3", "bias.batch, 2"});
  refused(d_bias, &P::heads, {"d_bias.heads is 3", "bias.heads, 4"});
  refused(d_bias, &P::rows, {"d_bias.rows is 3", "bias.rows, 5"});
  refused(d_bias, &P::columns, {"d_bias.columns is 3", "bias.columns, 7"});
  check_refused([](SmallProblem& p) { p.arguments.bias = {}; }, kInvalid, {"d_bias.data", "bias.data is NULL"});
  check_refused([](SmallProblem& p) { p.arguments.bias.data_type = FLASHDMA_BWD_FP16; }, kInvalid,
                {"bias.data_type is 0"});
  check_refused([](SmallProblem& p) { p.arguments.bias.data_type = FLASHDMA_BWD_FP32; }, kInvalid,
                {"bias.data_type is FLASHDMA_BWD_FP32", "rows 5"});
  check_refused([](SmallProblem& p) { p.arguments.d_bias.data_type = FLASHDMA_BWD_FP16; }, kInvalid,
                {"d_bias.data_type is 0"});
  check_refused(
      [](SmallProblem& p) {
        p.arguments.bias = p.pairs(FLASHDMA_BWD_FP32, kBatch, 1, 1, kKeys);
        p.arguments.d_bias = p.pairs(FLASHDMA_BWD_BF16, kBatch, 1, 1, kKeys);
      },
      kInvalid, {"d_bias.data_type is 1", "bias.data_type, 2"});
  for (const std::int64_t heads : {std::int64_t{1}, kHeadsKv, kHeads})
    check_accepted([&](SmallProblem& p) {
      p.arguments.mask = p.pairs(0, 1, heads, 1, kKeys);
      p.arguments.bias = p.pairs(FLASHDMA_BWD_FP32, kBatch, heads, 1, kKeys);
      p.arguments.d_bias = p.pairs(FLASHDMA_BWD_FP32, kBatch, heads, 1, kKeys);
    });
  check_accepted(
      [](SmallProblem& p) { p.arguments.d_bias = p.pairs(FLASHDMA_BWD_FP32, kBatch, kHeads, kQueries, kKeys); });
  check_accepted([](SmallProblem& p) { p.arguments.d_bias = {}; });
}

TEST_CASE("addresses and strides of the tensors") {
  struct Named {
    const char* name;
    Tensor flashdma_bwd_arguments::*tensor;
    bool output;
  };
  using A = flashdma_bwd_arguments;
  for (const Named& t : {Named{"q", &A::q, false},
                         {"k", &A::k, false},
                         {"v", &A::v, false},
                         {"out", &A::out, false},
                         {"d_out", &A::d_out, false},
                         {"d_q", &A::d_q, true},
                         {"d_k", &A::d_k, true},
                         {"d_v", &A::d_v, true}}) {
    const std::string name = t.name;
    const auto refused = [&](auto change, Code code, const std::vector<std::string>& parts) {
      check_refused([&](SmallProblem& p) { change(p.arguments.*t.tensor); }, code, parts);
    };
    refused([](Tensor& x) { x.data = nullptr; }, kInvalid, {name + ".data is NULL"});
    refused([](Tensor& x) { x.data = static_cast<char*>(x.data) + 8; }, kInvalid,
            {name + ".data must be 16-byte aligned", "8 bytes past"});
    refused([](Tensor& x) { x.stride_row += 4; }, kInvalid, {name + ".stride_row is ", "multiple of 8"});
    refused([](Tensor& x) { x.stride_head = 12; }, kInvalid, {name + ".stride_head is 12"});
    refused([](Tensor& x) { x.stride_batch += 1; }, kInvalid, {name + ".stride_batch is "});
    refused([](Tensor& x) { x.stride_row = -8; }, kInvalid, {name + ".stride_row is -8", "at least 0"});
    refused([](Tensor& x) { x.stride_batch = std::int64_t{1} << 62; }, kInvalid,
            {name + " cannot be addressed", name + ".stride_batch"});
    if (t.output) {
      refused([](Tensor& x) { x.stride_head = 0; }, kInvalid, {name + " overlaps itself", name + ".stride_head 0"});
      refused([](Tensor& x) { x.stride_row = 8; }, kInvalid, {name + " overlaps itself"});
      refused([](Tensor& x) { x.stride_batch = x.stride_row; }, kInvalid, {name + " overlaps itself"});
    } else {
      check_accepted([&](SmallProblem& p) { (p.arguments.*t.tensor).stride_row = 0; });
      // The last row of a head at 2^31 - 1 elements less its own is the furthest; one stride more is too far.
      refused([](Tensor& x) { x.stride_row = std::int64_t{1} << 30; }, kUnsupported,
              {name + " is too long to address", name + ".stride_row 1073741824", "2147483647"});
    }
  }
  // The stride of a dimension of size 1, and that of the batch with variable length, do not matter.
  check_accepted([](SmallProblem& p) {
    p.make_packed();
    p.arguments.q.stride_batch = p.arguments.d_q.stride_batch = 3;
  });
}

TEST_CASE("addresses and strides of the logsumexp") {
  check_refused([](SmallProblem& p) { p.arguments.lse = nullptr; }, kInvalid, {"lse is NULL"});
  check_refused(
      [](SmallProblem& p) {
        p.arguments.lse = reinterpret_cast<const float*>(reinterpret_cast<std::uintptr_t>(p.arguments.lse) + 2);
      },
      kInvalid, {"lse must be 4-byte aligned"});
  check_refused([](SmallProblem& p) { p.arguments.lse_stride_row = -1; }, kInvalid, {"lse_stride_row is -1"});
  check_refused([](SmallProblem& p) { p.arguments.lse_stride_head = std::int64_t{1} << 61; }, kInvalid,
                {"lse cannot be addressed"});
}

TEST_CASE("addresses of packed sequences' offsets") {
  const auto refused = [](const std::int32_t* flashdma_bwd_arguments::*offsets, const char* what) {
    check_refused(
        [offsets](SmallProblem& p) {
          p.make_packed();
          const auto address = reinterpret_cast<std::uintptr_t>(p.arguments.*offsets);
          p.arguments.*offsets = reinterpret_cast<const std::int32_t*>(address + 2);
        },
        kInvalid, {what});
  };
  refused(&flashdma_bwd_arguments::cu_seqlens_q, "cu_seqlens_q must be 4-byte aligned");
  refused(&flashdma_bwd_arguments::cu_seqlens_k, "cu_seqlens_k must be 4-byte aligned");
}

TEST_CASE("addresses and strides of mask, bias and dBias") {
  using A = flashdma_bwd_arguments;
  for (const auto& [name, tensor] : {std::pair{std::string("mask"), &A::mask},
                                     {std::string("bias"), &A::bias},
                                     {std::string("d_bias"), &A::d_bias}}) {
    const auto refused = [&, member = tensor](auto change, const std::vector<std::string>& parts) {
      check_refused([&](SmallProblem& p) { change(p.arguments.*member); }, kInvalid, parts);
    };
    refused([](PairTensor& x) { x.stride_column = 2; }, {name + ".stride_column is 2", "must be 1"});
    refused([](PairTensor& x) { x.stride_row = -1; }, {name + ".stride_row is -1"});
    refused([](PairTensor& x) { x.stride_head = std::int64_t{1} << 62; }, {name + " cannot be addressed"});
  }
  check_refused([](SmallProblem& p) { p.arguments.bias.data = static_cast<char*>(p.arguments.bias.data) + 1; },
                kInvalid, {"bias.data must be 2-byte aligned"});
  check_refused([](SmallProblem& p) { p.arguments.d_bias.stride_row = 0; }, kInvalid,
                {"d_bias overlaps itself", "d_bias.stride_row 0"});
  check_accepted([](SmallProblem& p) { p.arguments.mask.stride_row = p.arguments.bias.stride_batch = 0; });
  check_accepted([](SmallProblem& p) { p.arguments.mask.data = static_cast<char*>(p.arguments.mask.data) + 1; });
}

TEST_CASE("a stride of 0 broadcasts as the size 1 does") {
  // What a query or key sees must not depend on how its broadcast was written.
  const auto explained = [](const std::function<void(SmallProblem&)>& change) {
    SmallProblem problem;
    problem.arguments.bias.data = problem.arguments.d_bias.data = nullptr;
    change(problem);
    return explain(problem.arguments, &kH100);
  };
  const std::string one_row = explained([](SmallProblem& p) { p.arguments.mask.rows = 1; });
  CHECK(one_row.find("mask compacted") != std::string::npos);
  CHECK(explained([](SmallProblem& p) { p.arguments.mask.stride_row = 0; }) == one_row);
  check_accepted([](SmallProblem& p) { p.arguments.mask.stride_column = 0; });
  check_accepted([](SmallProblem& p) { p.arguments.mask.stride_column = p.arguments.mask.stride_row = 0; });
  // Heads that are expanded have one plan.
  const auto one = [](SmallProblem& p) { p.arguments.mask.batch = p.arguments.mask.heads = 1; };
  const auto expanded = [](SmallProblem& p) { p.arguments.mask.stride_batch = p.arguments.mask.stride_head = 0; };
  CHECK(explained(expanded) == explained(one));
  const auto without_mask_and_gradient = [](SmallProblem& p) {
    p.arguments.bias.data = &p, p.arguments.mask.data = nullptr;
  };
  CHECK(explained([&](SmallProblem& p) {
          without_mask_and_gradient(p), p.arguments.bias.stride_batch = p.arguments.bias.stride_head = 0;
        }) == explained([&](SmallProblem& p) {
          without_mask_and_gradient(p), p.arguments.bias.batch = p.arguments.bias.heads = 1;
        }));

  // The gradient of a bias has the sizes that the bias is given with.
  const auto without_gradient = [](SmallProblem& p) { p.arguments.d_bias.data = nullptr; };
  check_accepted([&](SmallProblem& p) { without_gradient(p), p.arguments.bias.stride_column = 0; });
  check_accepted([&](SmallProblem& p) {
    without_gradient(p), p.arguments.bias.stride_row = 0, p.arguments.bias.data_type = FLASHDMA_BWD_FP32;
  });
  check_refused([](SmallProblem& p) { p.arguments.bias.stride_column = 0; }, kInvalid,
                {"bias.stride_column is 0", "bias.columns 1"});
  // A size that is neither is an error whatever the stride.
  check_refused([](SmallProblem& p) { p.arguments.mask.stride_row = 0, p.arguments.mask.rows = 3; }, kInvalid,
                {"mask.rows is 3"});
  check_refused([](SmallProblem& p) { p.arguments.mask.stride_head = 0, p.arguments.mask.heads = 3; }, kInvalid,
                {"mask.heads is 3"});
}

TEST_CASE("grids that do not fit 31 bits are refused with the arithmetic") {
  Arguments a;
  a.data_type = FLASHDMA_BWD_BF16;
  a.batch = 1 << 20;
  a.heads = a.heads_kv = 1 << 10;
  a.head_dim = 64;
  a.seqlen_q = a.seqlen_k = 1 << 10;
  Selection selection{};
  const Status status = select(a, selection, &kH100);
  INFO(status.message());
  CHECK(status.code() == kUnsupported);
  CHECK(status.message().find("batch 1048576 x heads 1024") == 0);
}

TEST_CASE("a deterministic gradient whose pairs cannot be counted is refused") {
  SmallProblem problem;
  Arguments& a = problem.arguments;
  a.mask.data = nullptr;
  a.flags = FLASHDMA_BWD_FLAG_DETERMINISTIC;
  for (PairTensor* t : {&a.bias, &a.d_bias}) t->batch = t->heads = t->rows = t->columns = 1;
  const auto message = [&] {
    Selection selection{};
    return select(a, selection, &kH100).message();
  };
  a.batch = 1;
  a.seqlen_q = a.seqlen_k = 1 << 18;
  CHECK(message().find("the deterministic gradient") == std::string::npos);
  a.seqlen_q = a.seqlen_k = 1 << 29;  // 2^60 floats
  CHECK(message().find("the deterministic gradient of a bias with rows 1 and columns 1 keeps a float32") == 0);
  a.flags = 0;
  CHECK(message().find("the deterministic gradient") == std::string::npos);
}

TEST_CASE("rows that kernels cannot number are refused") {
  Arguments a;
  a.data_type = FLASHDMA_BWD_BF16;
  a.heads = a.heads_kv = 1;
  a.head_dim = 64;
  Selection selection{};
  // Each sequence is padded to 128 rows.
  a.seqlen_q = a.seqlen_k = (1 << 20) - 1;
  a.batch = 2047;
  CHECK(select(a, selection, &kH100).code() != kUnsupported);  // builds without kernels have another
  a.batch = 2048;
  const Status status = select(a, selection, &kH100);
  INFO(status.message());
  CHECK(status.code() == kUnsupported);
  CHECK(status.message().find("batch 2048 has 2147483648 rows of Q") == 0);
}

TEST_CASE("problems beyond 2^31 pairs are accepted") {
  Arguments a;
  a.data_type = FLASHDMA_BWD_BF16;
  a.batch = 8;
  a.heads = a.heads_kv = 64;
  a.head_dim = 128;
  a.seqlen_q = a.seqlen_k = 131072;
  check_selected(a);
}

TEST_CASE("which tile biases tensor copies can move") {
  using A = flashdma_bwd_arguments;
  struct Case {
    const char* name;
    void (*change)(A&);
    bool moved;
  };
  const Case cases[] = {
      {"every dimension present", [](A&) {}, true},
      {"without the gradient", [](A& a) { a.d_bias = {}; }, true},
      {"one head, without the gradient", [](A& a) { a.d_bias = {}, a.bias.heads = 1; }, true},
      {"one sequence, whose stride does not matter",
       [](A& a) { a.d_bias = {}, a.bias.batch = 1, a.bias.stride_batch = 3; }, true},
      {"heads with the stride 0", [](A& a) { a.bias.stride_head = 0; }, true},
      {"rows of the bias at a distance", [](A& a) { a.bias.stride_row = 136; }, true},
      {"a mask for each query", [](A& a) { a.mask.data = a.q.data, a.mask.rows = a.seqlen_q; }, true},
      {"a softcap", [](A& a) { a.softcap = 2; }, true},
      {"one head, with the gradient", [](A& a) { a.bias.heads = a.d_bias.heads = 1; }, true},
      {"one sequence, with the gradient", [](A& a) { a.bias.batch = a.d_bias.batch = 1; }, true},
      {"one head, and the gradient's address",
       [](A& a) {
         a.bias.heads = a.d_bias.heads = 1;
         a.d_bias.data = static_cast<char*>(a.d_bias.data) + 2;
       },
       true},
      {"one head, and rows of the gradient that do not end with 16 bytes",
       [](A& a) {
         a.bias.heads = a.d_bias.heads = 1;
         a.seqlen_k = a.bias.columns = a.d_bias.columns = 124;
       },
       false},
      {"one column", [](A& a) { a.bias.columns = a.d_bias.columns = 1; }, false},
      {"a gradient of float32", [](A& a) { a.d_bias.data_type = FLASHDMA_BWD_FP32; }, true},
      {"the address of a gradient of float32",
       [](A& a) {
         a.d_bias.data_type = FLASHDMA_BWD_FP32;
         a.d_bias.data = static_cast<char*>(a.d_bias.data) + 4;
       },
       false},
      {"an address", [](A& a) { a.bias.data = static_cast<char*>(a.bias.data) + 8; }, false},
      {"the gradient's address", [](A& a) { a.d_bias.data = static_cast<char*>(a.d_bias.data) + 2; }, false},
      {"the stride of rows", [](A& a) { a.bias.stride_row = 132; }, false},
      {"rows with the stride 0", [](A& a) { a.bias.stride_row = 0; }, false},
      {"the gradient's stride of rows", [](A& a) { a.d_bias.stride_row = 132; }, false},
      {"the stride of heads", [](A& a) { a.bias.stride_head = 128 * 100 + 4; }, false},
      {"the gradient's stride of sequences", [](A& a) { a.d_bias.stride_batch = 4 * 128 * 100 + 1; }, false},
      {"a stride that no map holds", [](A& a) { a.bias.stride_batch = std::int64_t{1} << 39; }, false},
      {"one mask for all queries", [](A& a) { a.mask.data = a.q.data, a.mask.rows = 1; }, true},
      {"a mask that is to be compacted",
       [](A& a) { a.mask.data = a.q.data, a.mask.rows = 1, a.mask_layout = FLASHDMA_BWD_MASK_COMPACTED; }, false},
  };
  for (const Case& c : cases) {
    INFO(c.name);
    Arguments a;
    a.data_type = FLASHDMA_BWD_BF16;
    a.batch = 2;
    a.heads = a.heads_kv = 4;
    a.head_dim = 128;
    a.seqlen_q = 100;
    a.seqlen_k = 128;
    a.q.data = reinterpret_cast<void*>(std::uintptr_t{1} << 20);
    a.bias = a.d_bias = {a.q.data, FLASHDMA_BWD_BF16, 0, 2, 4, 100, 128, 4 * 128 * 100, 128 * 100, 128, 1};
    a.mask = a.bias;
    a.mask.data = nullptr;
    c.change(a);
    const std::string text = explain(a, &kH100);
    INFO(text);
    CHECK((text.find("bias tile that tensor copies move") != std::string::npos) == c.moved);
    CHECK((text.find("bias tile that tensor copies cannot move") != std::string::npos) == !c.moved);
  }
}

TEST_CASE("problems without queries and keys succeed at once, with NULL everywhere") {
  using A = flashdma_bwd_arguments;
  Arguments ordinary;
  ordinary.head_dim = 64;
  ordinary.batch = ordinary.heads = ordinary.heads_kv = ordinary.seqlen_q = ordinary.seqlen_k = 4;
  for (const auto& zeros : {std::vector{&A::batch}, {&A::heads, &A::heads_kv}, {&A::seqlen_q, &A::seqlen_k}}) {
    Arguments a = ordinary;
    for (const auto member : zeros) a.*member = 0;
    std::size_t bytes = 1;
    CHECK(workspace_size(a, bytes).ok());
    CHECK(bytes == 0);
    CHECK(backward(a, nullptr, 0, nullptr).ok());
    CHECK(backward_reference(a).ok());
    CHECK(prepare(a).ok());
    CHECK(explain(a).find("there are neither queries nor keys") == 0);
  }
}

TEST_CASE("a bias's gradient that is broadcast over what there is none of is zero") {
  using A = flashdma_bwd_arguments;
  Arguments ordinary;
  ordinary.head_dim = 64;
  ordinary.batch = ordinary.heads = ordinary.heads_kv = ordinary.seqlen_q = ordinary.seqlen_k = 4;
  for (const auto& zeros :
       {std::vector{&A::batch}, {&A::heads, &A::heads_kv}, {&A::seqlen_q, &A::seqlen_k}, {&A::batch, &A::seqlen_k}}) {
    Arguments a = ordinary;
    for (const auto member : zeros) a.*member = 0;
    std::array<float, 4> bias{};
    std::array<float, 4> gradient{1, 1, 1, 1};
    a.bias.data = bias.data();
    a.bias.batch = a.bias.heads = a.bias.rows = a.bias.stride_column = 1;
    a.bias.columns = a.seqlen_k == 0 ? 1 : a.seqlen_k;
    a.bias.data_type = a.seqlen_k == 0 ? a.data_type : FLASHDMA_BWD_FP32;
    a.d_bias = a.bias;
    a.d_bias.data = gradient.data();
    a.d_bias.data_type = FLASHDMA_BWD_FP32;
    const Status status = backward_reference(a, 1);
    INFO(status.message());
    CHECK(status.ok());
    for (std::int64_t i = 0; i < a.bias.columns; ++i) CHECK(gradient[static_cast<std::size_t>(i)] == 0.0f);
  }
}

TEST_CASE("the CPU backend takes a mask and a plan where there are no heads") {
  std::array<std::int32_t, 1> list{-1};
  Arguments a;
  a.head_dim = 64;
  a.batch = a.seqlen_q = a.seqlen_k = 4;
  a.mask.data = list.data();
  a.mask.encoding = FLASHDMA_BWD_ENCODING_KEY_LIST;
  a.mask.batch = a.mask.heads = a.mask.rows = a.mask.columns = 1;
  a.mask.stride_column = 1;
  const Status status = backward_reference(a, 1);
  INFO(status.message());
  CHECK(status.ok());
}

TEST_CASE("packed rows of no sequence are refused") {
  const std::int32_t offsets[] = {0};
  Arguments a;
  a.head_dim = 64;
  a.heads = a.heads_kv = a.seqlen_q = a.seqlen_k = 4;
  a.cu_seqlens_q = a.cu_seqlens_k = offsets;
  std::size_t bytes = 0;
  CHECK(workspace_size(a, bytes).ok());
  a.total_q = 5;
  CHECK(workspace_size(a, bytes).message().find("total_q is 5") == 0);
}

TEST_CASE("where one side has no rows, the other side's gradients are zero") {
  for (const bool no_queries : {false, true}) {
    SmallProblem problem;
    Arguments& a = problem.arguments;
    (no_queries ? a.seqlen_q : a.seqlen_k) = 0;
    a.mask = {};
    a.bias = a.d_bias = {};
    auto* gradient = static_cast<std::uint16_t*>(no_queries ? a.d_k.data : a.d_q.data);
    const std::int64_t size = no_queries ? kBatch * kHeadsKv * kKeys * kHeadDim : kBatch * kHeads * kQueries * kHeadDim;
    std::fill_n(gradient, size, std::uint16_t{0xffff});
    const Status status = backward_reference(a, 1);
    INFO(status.message());
    REQUIRE(status.ok());
    CHECK(std::all_of(gradient, gradient + size, [](std::uint16_t value) { return (value & 0x7fff) == 0; }));
  }
}

}  // namespace flashdma_bwd::testing
