// The order of what happens around a monitored launch.
#include "monitoring/monitored_launch.hpp"

#include "monitoring/problem_capture.hpp"

namespace flashdma_bwd {
namespace {

/// All but the problem's text.
flashdma_bwd_call_report report_of(const CallDescription& description) {
  flashdma_bwd_call_report report = {};
  report.struct_size = sizeof(flashdma_bwd_call_report);
  report.code = FLASHDMA_BWD_OK;
  report.tag = description.tag;
  report.kernel = description.kernel;
  report.row_file = description.row_file;
  report.row_line = description.row_line;
  report.tier = description.tier;
  report.workspace_bytes = description.workspace_bytes;
  report.stream = description.stream;
  return report;
}

}  // namespace

LaunchMonitor::LaunchMonitor(std::uint32_t switches, const CallDescription& description)
    : switches_(switches),
      kernel_index_(description.kernel_index),
      cache_(description.cache),
      hooks_((switches & kMonitorHooks) != 0),
      report_(report_of(description)) {
  const bool captured = (switches_ & kMonitorCapture) != 0;
  if (captured || hooks_.any()) report_.problem = problem_.emplace(description.problem).c_str();
  if (captured) capture_problem(description.problem, problem_->view());
  hooks_.before(report_);
  if ((switches_ & FLASHDMA_BWD_MONITOR_NVTX) != 0) range_.begin(report_.kernel);
  if ((switches_ & FLASHDMA_BWD_MONITOR_TIMING) != 0) timer_.start(report_.stream);
}

void LaunchMonitor::finish(const LaunchResult& result) {
  const bool launched = result.error == cudaSuccess;
  if ((switches_ & FLASHDMA_BWD_MONITOR_COUNTERS) != 0) count(launched);
  range_.end();
  report_.code = launched ? FLASHDMA_BWD_OK : FLASHDMA_BWD_CUDA_ERROR;
  report_.launches = result.kernels;
  hooks_.after(report_);
}

void LaunchMonitor::count(bool launched) {
  CallCounters& counters = *call_counters();
  const bool timed = timer_.stop(report_.stream, kernel_index_, launched);
  if (!launched) return;
  counters.add_call(kernel_index_, report_.tier);
  if (cache_ == CacheAnswer::chosen)
    counters.add_cache_hit();
  else if (cache_ != CacheAnswer::not_asked)
    counters.add_cache_miss();
  if (!timed && (switches_ & FLASHDMA_BWD_MONITOR_TIMING) != 0) counters.add_untimed_call();
}

}  // namespace flashdma_bwd
