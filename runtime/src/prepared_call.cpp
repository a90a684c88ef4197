// From arguments to a kernel. See prepared_call.hpp.
#include "prepared_call.hpp"

#include <string>
#include <string_view>

#include "argument_rules.hpp"
#include "arguments.hpp"
#include "device_traits.hpp"
#include "dispatch_table.hpp"
#include "environment.hpp"
#include "selection/problem_text.hpp"
#include "tune_cache/cache_choice.hpp"
#include "tune_cache/tuning.hpp"

namespace flashdma_bwd {
namespace {

int piece_steps_of(const Request& request) {
  return request.table_only ? 0 : environment().piece_steps;
}

}  // namespace

Check take_request(const flashdma_bwd_arguments& arguments, Request& request) {
  request.problem = problem_of(arguments);
  request.table_only = (arguments.flags & FLASHDMA_BWD_FLAG_TABLE_ONLY) != 0;
  if (arguments.kernel != nullptr) {
    request.kernel = arguments.kernel;
    if (request.kernel.empty())
      return Failure{FLASHDMA_BWD_OVERRIDE_ERROR,
                     "kernel is an empty text: give a canonical name, as flashdma_bwd_kernel_name lists them, or NULL "
                     "for the table's choice"};
  }
  if (arguments.schedule == nullptr) return {};
  const auto number = static_cast<std::size_t>(arguments.schedule->kernel);
  if (number >= dispatch_table().kernels.size())
    return invalid("schedule.kernel is " + std::to_string(arguments.schedule->kernel) +
                   ": this build has no such kernel; build the schedule with this library");
  const std::string_view name = dispatch_table().kernels[number].name;
  if (!request.kernel.empty() && request.kernel != name)
    return invalid("kernel is `" + std::string(request.kernel) + "` and the schedule is of `" + std::string(name) +
                   "`: build a schedule of that kernel, or leave one of both NULL");
  request.scheduled = request.kernel.empty();
  request.kernel = name;
  return {};
}

Check check_schedule_fits(const flashdma_bwd_arguments& a, const Request& request, const KernelConfig& config) {
  if (a.schedule == nullptr) return {};
  const ScheduleShape shape = schedule_shape(a, config, request.device, piece_steps_of(request));
  if (a.schedule->call != shape.hash)
    return invalid("schedule was built for a call that differs from this one (`" + problem_text(request.problem) +
                   "`) in batch, heads, head dim, lengths, causality, window, offsets or plan, on another GPU or with "
                   "other FLASHDMA_BWD_PIECE_STEPS: build it with the arguments of the call, or leave schedule NULL");
  if (a.schedule->bytes < shape.bytes)
    return invalid("schedule.bytes is " + std::to_string(a.schedule->bytes) + ": the schedule of such a call has " +
                   std::to_string(shape.bytes) + " bytes; build it with flashdma_bwd_schedule_build");
  return {};
}

Check prepare_request(const flashdma_bwd_arguments* arguments, PreparedCall& call) {
  if (Check failure = take_problem(arguments, call.arguments)) return failure;
  call.idle = has_no_rows(call.arguments);
  if (call.idle) return {};
  call.arguments = without_idle_parts(call.arguments);
  if (Check failure = take_request(call.arguments, call.request)) return failure;
  call.piece_steps = piece_steps_of(call.request);
  return current_device_traits(call.request.device);
}

Check prepare_call(const flashdma_bwd_arguments* arguments, PreparedCall& call) {
  if (Check failure = prepare_request(arguments, call)) return failure;
  if (call.idle) return {};
  call.tuning = tuning();
  if (Check failure = choose_kernel(dispatch_table(), environment(), call.tuning, call.request, call.resolution))
    return failure;
  if (Check failure = check_schedule_fits(call.arguments, call.request, call.resolution.config)) return failure;
  call.cache = call.resolution.cache;
  if (call.cache != CacheAnswer::not_asked) call.tuning->tell_ignored(call.tuning->choices_for(call.request.device));
  return {};
}

Check prepare_schedule(const flashdma_bwd_arguments* arguments, PreparedCall& call) {
  if (arguments == nullptr || arguments->struct_size != sizeof(call.arguments)) return check_problem(arguments);
  flashdma_bwd_arguments given = *arguments;
  given.schedule = nullptr;
  if (given.plan == nullptr) {
    if (Check failure = check_problem(&given)) return failure;
    return invalid("plan is NULL: a schedule is made of a plan; build that first");
  }
  if (Check failure = prepare_call(&given, call)) return failure;
  return check_may_be_scheduled(given);
}

}  // namespace flashdma_bwd
