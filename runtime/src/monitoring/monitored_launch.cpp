// The order of what happens around a monitored launch.
#include "monitoring/monitored_launch.hpp"

namespace flashdma_bwd {
namespace {

flashdma_bwd_call_report report_of(const CallDescription& description, const char* problem) {
  flashdma_bwd_call_report report = {};
  report.struct_size = sizeof(flashdma_bwd_call_report);
  report.code = FLASHDMA_BWD_OK;
  report.problem = problem;
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
    : hooks_((switches & kMonitorHooks) != 0),
      problem_(description.problem),
      report_(report_of(description, problem_.c_str())) {
  hooks_.before(report_);
  if ((switches & FLASHDMA_BWD_MONITOR_NVTX) != 0) range_.begin(description.kernel);
}

void LaunchMonitor::finish(const LaunchResult& result) {
  range_.end();
  report_.code = result.error == cudaSuccess ? FLASHDMA_BWD_OK : FLASHDMA_BWD_CUDA_ERROR;
  report_.launches = result.kernels;
  hooks_.after(report_);
}

}  // namespace flashdma_bwd
