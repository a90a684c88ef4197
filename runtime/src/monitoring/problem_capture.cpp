// Which problems are there already, and the end of a capture.
#include "monitoring/problem_capture.hpp"

#include <new>

#include "environment.hpp"
#include "log.hpp"
#include "monitoring/problem_file.hpp"
#include "monitoring/switches.hpp"

namespace flashdma_bwd {

std::string ProblemCapture::add(const Problem& problem, std::string_view text) {
  if (problem.seqlen_q == 0 || problem.seqlen_k == 0) return {};
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ended_ || seen_.contains(text)) return {};
  seen_.emplace(text);
  const std::string error = append_to_problem_file(path_, text);
  if (error.empty()) return {};
  ended_ = true;
  return "FLASHDMA_BWD_CAPTURE names " + path_ + ", and " + error +
         ". No more problems of this process are captured; give a file that can be written, or unset it";
}

void capture_problem(const Problem& problem, std::string_view text) try {
  static auto* const capture = new ProblemCapture(environment().capture);  // kept for the library's lifetime
  const std::string warning = capture->add(problem, text);
  if (warning.empty()) return;
  monitoring_switches.fetch_and(~kMonitorCapture);
  log_warning(environment(), warning);
} catch (const std::bad_alloc&) {
  monitoring_switches.fetch_and(~kMonitorCapture);  // there is no memory for a warning either
}

}  // namespace flashdma_bwd
