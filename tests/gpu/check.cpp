// Runs kernels and records what they gave.
#include "gpu/check.hpp"

#include <limits>

#include "gpu/device_problem.hpp"
#include "gpu/kernels_under_test.hpp"
#include "gpu/results.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"

namespace flashdma_bwd::testing {
namespace {

/// Runs the arguments as they are. `kernel` names what runs; `own` says that it is of the architecture that this GPU
/// selects.
void check_run(Problem& problem, DeviceProblem& device, const Gradients& expected, const KernelName& kernel, bool own,
               const std::string& problem_text) {
  INFO(kernel.text);
  INFO(problem_text);
  std::string defect;
  const Status status = device.run(defect);
  if (!status && !own && not_runnable_here(status)) {
    results().add_not_runnable(kernel.text, status.message());
    return;
  }
  INFO(status.message());
  const double bar = error_bar(problem.spec().data_type);
  // No gradients are infinitely far off: the kernel is recorded as failed.
  constexpr double kNone = std::numeric_limits<double>::infinity();
  if (!status) results().add({kernel.text, problem_text, {kNone, kNone, kNone, kNone}, bar, false});
  REQUIRE(status.code() == FLASHDMA_BWD_OK);
  const Gradients got = read_gradients(problem);
  const GradientErrors errors = gradient_errors(problem, got, expected);
  if (defect.empty()) defect = nonzero_defect(problem, got, expected);
  const bool pass = errors.largest() <= bar && defect.empty();
  results().add({kernel.text, problem_text, errors, bar, pass});
  INFO(errors.text());
  CHECK(defect == "");
  CHECK(errors.largest() <= bar);
}

/// Of a process.
std::size_t problems_checked = 0;

bool may_be_scheduled(const Arguments& arguments) {
  return arguments.cu_seqlens_q == nullptr && (arguments.flags & FLASHDMA_BWD_FLAG_DETERMINISTIC) == 0;
}

}  // namespace

std::vector<std::string> check_problem(const ProblemSpec& spec, Kernels kernels, Inputs inputs, Plans plans) {
  Problem problem(spec);
  return check_prepared_problem(problem, kernels, inputs, plans);
}

std::vector<std::string> check_prepared_problem(Problem& problem, Kernels kernels, Inputs inputs, Plans plans) {
  const std::string text = problem.spec().text();
  INFO(text);
  const Gradients expected = exact_gradients(problem);
  DeviceProblem device(problem, inputs);
  Arguments& arguments = device.arguments();
  const std::vector<KernelName> names = kernels_for(arguments);
  const std::size_t count = kernels == Kernels::every ? names.size() : 1;
  std::vector<std::string> asked_for;
  const bool prebuilt = arguments.mask.data != nullptr && plans == Plans::of_the_call_and_prebuilt;
  for (std::size_t i = 0; i < count; ++i) {
    asked_for.push_back(names[i].text);
    const bool own = names[i].architecture == names.front().architecture;
    // The table's choice is run without naming it, as users do.
    arguments.kernel = i == 0 ? nullptr : names[i].text.c_str();
    check_run(problem, device, expected, names[i], own, text);
    if (!prebuilt) continue;
    const Status plan = device.use_prebuilt_plan();
    INFO(plan.message());
    REQUIRE(plan.code() == FLASHDMA_BWD_OK);
    // Every other one with a schedule, too.
    const bool scheduled = may_be_scheduled(arguments) && (i + problems_checked) % 2 == 0;
    if (scheduled) {
      const Status schedule = device.use_schedule();
      INFO(schedule.message());
      if (!schedule && (own || !not_runnable_here(schedule))) FAIL("no schedule");
    }
    check_run(problem, device, expected, names[i], own, text + (scheduled ? " prebuilt_schedule" : " prebuilt_plan"));
    device.use_mask();
  }
  ++problems_checked;
  return asked_for;
}

void check_gradients(Problem& problem, DeviceProblem& device, const Gradients& expected) {
  std::string defect;
  const Status status = device.run(defect);
  INFO(status.message());
  REQUIRE(status.ok());
  CHECK(defect == "");
  const GradientErrors errors = gradient_errors(problem, read_gradients(problem), expected);
  INFO(errors.text());
  CHECK(errors.largest() <= error_bar(problem.spec().data_type));
}

void check_both_types(ProblemSpec spec, Kernels kernels) {
  for (flashdma_bwd_data_type type : {FLASHDMA_BWD_FP16, FLASHDMA_BWD_BF16}) {
    spec.data_type = type;
    check_problem(spec, kernels);
  }
}

}  // namespace flashdma_bwd::testing
