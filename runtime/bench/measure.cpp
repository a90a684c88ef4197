// One problem on the GPU at hand. See measure.hpp.
#include "measure.hpp"

#include <flashdma_bwd/flashdma_bwd.hpp>

namespace flashdma_bwd::bench {
namespace {

// Times the building of the mask's plan and the backward with it.
void measure_plan(DeviceProblem& problem, const TimingOptions& options, Result& result) {
  if (!problem.make_plan()) {
    result.failure = problem.message();
    return;
  }
  for (std::optional<double>* ms : {&result.plan_ms, &result.planned_ms}) {
    const Timing timing = ms == &result.plan_ms ? time_plan(problem, options) : time_backward(problem, options);
    if (timing.message.empty()) *ms = timing.median_ms;
    if (result.failure.empty()) result.failure = timing.message;
  }
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
  if (const Status status = select(device_problem.arguments(), selection); !status) {
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
