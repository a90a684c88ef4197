// Schedules: what they save, which calls may have them, and that the others are refused. That gradients with one are
// those of a call without is also checked wherever a plan is prebuilt, see check.cpp.
#include <string>
#include <utility>
#include <vector>

#include "gpu/check.hpp"
#include "gpu/device_problem.hpp"
#include "gpu/masked_problems.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

/// Of so many keys that items are cut into pieces.
ProblemSpec scheduled_problem(flashdma_bwd_mask_layout layout) {
  ProblemSpec spec = masked({.structure = MaskStructure::causal_top_w, .width = 100}, 128);
  spec.mask.shape.heads = PairHeads::kv;
  spec.mask.layout = layout;
  spec.mask.shape.rows = layout != FLASHDMA_BWD_MASK_COMPACTED;
  if (!spec.mask.shape.rows) spec.mask.structure = MaskStructure::empty_columns;
  spec.heads = 2;
  spec.heads_kv = 1;
  spec.seqlen_q = spec.seqlen_k = 1100;
  spec.causal = true;
  spec.bias = {.present = true, .shape = {.heads = PairHeads::kv, .rows = false}};
  return spec;
}

constexpr flashdma_bwd_mask_layout kLayouts[] = {FLASHDMA_BWD_MASK_NATURAL, FLASHDMA_BWD_MASK_COMPACTED,
                                                 FLASHDMA_BWD_MASK_REORDERED};

/// Counts the kernels of the backwards while it is there.
class LaunchCount {
 public:
  LaunchCount() {
    Hooks hooks;
    hooks.after = [](const CallReport* report, void* user) { *static_cast<int*>(user) = report->launches; };
    hooks.user = &launches_;
    REQUIRE(set_hooks(hooks).ok());
  }
  LaunchCount(const LaunchCount&) = delete;
  LaunchCount& operator=(const LaunchCount&) = delete;
  ~LaunchCount() { static_cast<void>(clear_hooks()); }
  /// Of the last backward.
  int launches() const { return launches_; }

 private:
  int launches_ = 0;
};

/// A problem with a plan and a schedule.
struct Scheduled {
  explicit Scheduled(const ProblemSpec& spec) : problem(spec), device(problem) {
    const Status planned = device.use_prebuilt_plan();
    INFO(planned.message());
    REQUIRE(planned.ok());
    const Status status = device.use_schedule();
    INFO(status.message());
    REQUIRE(status.ok());
  }
  Problem problem;
  DeviceProblem device;
};

/// A call that differs from the one of the schedule is refused, and says so.
template <class Change>
void refused(Code code, const std::string& part, Change&& change) {
  INFO(part);
  Scheduled with(scheduled_problem(FLASHDMA_BWD_MASK_NATURAL));
  // Room for any of them.
  REQUIRE(with.device.prepare_buffers().ok());
  MaskPlan plan = *with.device.arguments().plan;
  Schedule schedule = *with.device.arguments().schedule;
  Arguments& a = with.device.arguments();
  a.plan = &plan;
  a.schedule = &schedule;
  change(a, plan, schedule);
  const Status status = with.device.enqueue();
  INFO(status.message());
  CHECK(status.code() == code);
  CHECK(status.message().find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("a call with a schedule has the gradients of one without, and a kernel less where tiles are listed",
          "[schedule]") {
  for (const flashdma_bwd_mask_layout layout : kLayouts) {
    const ProblemSpec spec = scheduled_problem(layout);
    Problem problem(spec);
    INFO(spec.text());
    const Gradients expected = exact_gradients(problem);
    DeviceProblem device(problem);
    const LaunchCount count;
    REQUIRE(device.use_prebuilt_plan().ok());
    check_gradients(problem, device, expected);
    const int without = count.launches();
    REQUIRE(device.use_schedule().ok());
    // Of any number of calls.
    for (int call = 0; call < 2; ++call) {
      check_gradients(problem, device, expected);
      CHECK(count.launches() == without - (layout == FLASHDMA_BWD_MASK_COMPACTED ? 0 : 1));
    }
  }
}

TEST_CASE("a schedule's kernel decides, and explain says so", "[schedule]") {
  Scheduled with(scheduled_problem(FLASHDMA_BWD_MASK_NATURAL));
  Arguments& a = with.device.arguments();
  const std::string chosen = flashdma_bwd_kernel_name(static_cast<std::size_t>(a.schedule->kernel));
  CHECK(explain(a).find("arguments.schedule decides, no table is asked\nkernel: " + chosen) != std::string::npos);
  Selection selection{};
  REQUIRE(select(a, selection).ok());
  CHECK(selection.kernel == chosen);
  CHECK(std::string(selection.row_file) == "arguments.schedule");
  // Named besides, it is still that kernel.
  a.kernel = chosen.c_str();
  std::string defect;
  CHECK(with.device.run(defect).ok());
  CHECK(defect == "");
}

TEST_CASE("calls that are not like the schedule's are refused", "[schedule]") {
  const auto invalid = [](const std::string& part, auto change) {
    refused(FLASHDMA_BWD_INVALID_ARGUMENT, part, change);
  };
  const std::string differs = "schedule was built for a call that differs";
  invalid(differs, [](Arguments& a, MaskPlan&, Schedule&) { a.window_left = 700; });
  invalid(differs, [](Arguments& a, MaskPlan&, Schedule&) { a.heads = 1; });
  invalid(differs, [](Arguments& a, MaskPlan&, Schedule&) { a.head_dim = 120; });
  invalid(differs, [](Arguments&, MaskPlan&, Schedule& schedule) { ++schedule.call; });
  invalid("another building", [](Arguments&, MaskPlan& plan, Schedule&) { ++plan.building; });
  invalid("schedule.bytes is 256", [](Arguments&, MaskPlan&, Schedule& schedule) { schedule.bytes = 256; });
  invalid("256-byte aligned", [](Arguments&, MaskPlan&, Schedule& schedule) { schedule.memory = nullptr; });
  invalid("256-byte aligned", [](Arguments&, MaskPlan&, Schedule& schedule) {
    schedule.memory = static_cast<std::byte*>(schedule.memory) + 16;
  });
  invalid("schedule.kernel is -1", [](Arguments&, MaskPlan&, Schedule& schedule) { schedule.kernel = -1; });
  invalid("schedule.struct_size is 0", [](Arguments&, MaskPlan&, Schedule& schedule) { schedule.struct_size = 0; });
  invalid("plan is NULL", [](Arguments& a, MaskPlan&, Schedule&) { a.plan = nullptr; });
  invalid("the schedule is of", [](Arguments& a, MaskPlan&, Schedule&) { a.kernel = "bwd_sm90_d64"; });
  refused(FLASHDMA_BWD_UNSUPPORTED, "a deterministic call has no schedule",
          [](Arguments& a, MaskPlan&, Schedule&) { a.flags |= FLASHDMA_BWD_FLAG_DETERMINISTIC; });
  refused(FLASHDMA_BWD_OVERRIDE_ERROR, "the call's softcap is yes",
          [](Arguments& a, MaskPlan&, Schedule&) { a.softcap = 5.0f; });
}

TEST_CASE("schedules that cannot be built are refused", "[schedule]") {
  Scheduled with(scheduled_problem(FLASHDMA_BWD_MASK_REORDERED));
  const MaskPlan plan = *with.device.arguments().plan;
  Arguments a = with.device.arguments();
  a.schedule = nullptr;
  std::size_t bytes = 0;
  REQUIRE(schedule_size(a, bytes).ok());
  CHECK(bytes > 0);
  CHECK(bytes % 256 == 0);
  DeviceMemory memory(bytes);
  Schedule schedule{};
  const auto code = [&](const Status& status, const std::string& part) {
    INFO(status.message());
    CHECK(status.message().find(part) != std::string::npos);
    return status.code();
  };
  CHECK(code(schedule_build(a, memory.data(), bytes - 1, with.device.stream(), schedule),
             "memory has " + std::to_string(bytes - 1) + " bytes") == FLASHDMA_BWD_WORKSPACE_TOO_SMALL);
  CHECK(code(schedule_build(a, nullptr, bytes, with.device.stream(), schedule), "memory is NULL") ==
        FLASHDMA_BWD_INVALID_ARGUMENT);
  CHECK(schedule.struct_size == 0);
  a.plan = nullptr;
  CHECK(code(schedule_size(a, bytes), "a schedule is made of a plan") == FLASHDMA_BWD_INVALID_ARGUMENT);
  a.plan = &plan;
  a.flags |= FLASHDMA_BWD_FLAG_DETERMINISTIC;
  CHECK(code(schedule_size(a, bytes), "a deterministic call has no schedule") == FLASHDMA_BWD_UNSUPPORTED);
}

TEST_CASE("a plan that is built anew needs a new schedule", "[schedule]") {
  Scheduled with(scheduled_problem(FLASHDMA_BWD_MASK_NATURAL));
  const Gradients expected = exact_gradients(with.problem);
  const Schedule old = *with.device.arguments().schedule;
  with.device.use_mask();
  REQUIRE(with.device.use_prebuilt_plan().ok());
  with.device.arguments().schedule = &old;
  std::string defect;
  const Status status = with.device.run(defect);
  CHECK(status.code() == FLASHDMA_BWD_INVALID_ARGUMENT);
  CHECK(status.message().find("another building") != std::string::npos);
  REQUIRE(with.device.use_schedule().ok());
  check_gradients(with.problem, with.device, expected);
}
