// One problem on the GPU at hand. See measure.hpp.
#include "measure.hpp"

#include <flashdma_bwd/flashdma_bwd.hpp>

namespace flashdma_bwd::bench {
namespace {

// Times the building of the mask's plan, that of its schedule, and the backward with both.
void measure_plan(DeviceProblem& problem, const TimingOptions& options, Result& result) {
  const auto take = [&](const Timing& timing, std::optional<double>& ms) {
    if (timing.message.empty()) ms = timing.median_ms;
    if (result.failure.empty()) result.failure = timing.message;
  };
  // Of the plan that is built last.
  const bool planned = problem.make_plan();
  if (planned) take(time_plan(problem, options), result.plan_ms);
  if (!planned || !problem.make_schedule()) {
    result.failure = problem.message();
    return;
  }
  if (problem.is_scheduled()) take(time_schedule(problem, options), result.schedule_ms);
  take(time_backward(problem, options), result.planned_ms);
}

}  // namespace

Result measure(const std::string& set, const Problem& problem, const MeasureOptions& options) {
  Result result;
  result.set = set;
  result.problem = problem;
  DeviceProblem device_problem(problem, options.device);
  result.failure = device_problem.message();
  if (!result.failure.empty()) return result;
  result.active_fraction = device_problem.active_fraction();
  Selection selection{};
  Arguments of_table = device_problem.arguments();
  of_table.schedule = nullptr;  // which is of the kernel that the table chose
  if (const Status status = select(of_table, selection); !status) {
    result.failure = status.message();
    return result;
  }
  result.kernel = selection.kernel;
  result.layout = layout_word(selection.layout);
  result.row = std::string(selection.row_file) + ":" + std::to_string(selection.row_line);
  const Timing timing = time_backward(device_problem, options.timing);
  result.failure = timing.message;
  result.ms = timing.median_ms;
  result.fastest_ms = timing.fastest_ms;
  result.samples = options.timing.samples;
  if (options.plan && problem.mask != MaskShape::none && result.failure.empty())
    measure_plan(device_problem, options.timing, result);
  if (const PlanFound& plan = device_problem.plan_found(); !plan.layout.empty()) result.plan = plan;
  return result;
}

}  // namespace flashdma_bwd::bench
