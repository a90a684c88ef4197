// Writing the run's results.
#include "gpu/results.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iomanip>
#include <map>
#include <set>
#include <sstream>

namespace flashdma_bwd::testing {
namespace {

/// JSON has no infinity: what is not finite is null.
std::string number(double value) {
  if (!std::isfinite(value)) return "null";
  std::ostringstream text;
  text << std::setprecision(3) << value;
  return text.str();
}

/// One write at the file's end, which those of other processes do not cut.
bool append(const char* path, const std::string& text) {
  constexpr mode_t kReadableByAll = 0644;
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, kReadableByAll);
  const ssize_t count = file < 0 ? -1 : write(file, text.data(), text.size());
  const char* reason = count < 0 ? std::strerror(errno) : "it took a part only";
  if (file >= 0) close(file);
  if (count == static_cast<ssize_t>(text.size())) return true;
  std::fprintf(stderr, "test_gpu: cannot write %s: %s\n", path, reason);
  return false;
}

/// What the comparisons of a kernel came to.
struct Tally {
  std::size_t comparisons = 0;
  double largest_share = 0;
  bool pass = true;
};

}  // namespace

Results& results() {
  static Results instance;
  return instance;
}

void Results::add_not_runnable(const std::string& kernel, const std::string& why) {
  if (std::find(not_runnable_.begin(), not_runnable_.end(), kernel) == not_runnable_.end())
    not_runnable_.push_back(kernel);
  not_runnable_reason_ = why;
}

void Results::print_summary() const {
  std::set<std::string> kernels;
  double worst = 0;
  const Result* worst_result = nullptr;
  std::size_t failed = 0;
  for (const Result& result : results_) {
    kernels.insert(result.kernel);
    if (!result.pass) ++failed;
    const double share = result.errors.largest() / result.bar;
    if (worst_result == nullptr || share > worst) {
      worst = share;
      worst_result = &result;
    }
  }
  std::printf("%zu comparisons of %zu kernels, %zu failed\n", results_.size(), kernels.size(), failed);
  if (worst_result != nullptr)
    std::printf("largest error: %.0f %% of the bar of %g: %s\n  %s\n  %s\n", 100 * worst, worst_result->bar,
                worst_result->kernel.c_str(), worst_result->problem.c_str(), worst_result->errors.text().c_str());
  if (!not_runnable_.empty())
    std::printf("%zu kernels of other architectures have no code for this GPU, for example %s:\n  %s\n",
                not_runnable_.size(), not_runnable_.front().c_str(), not_runnable_reason_.c_str());
}

bool Results::append_lines(const char* path) const {
  std::ostringstream text;
  for (const Result& result : results_)
    text << "{\"kernel\":\"" << result.kernel << "\",\"problem\":\"" << result.problem
         << "\",\"dq\":" << number(result.errors.d_q) << ",\"dk\":" << number(result.errors.d_k)
         << ",\"dv\":" << number(result.errors.d_v) << ",\"dbias\":" << number(result.errors.d_bias)
         << ",\"bar\":" << number(result.bar) << ",\"pass\":" << (result.pass ? "true" : "false") << "}\n";
  return append(path, text.str());
}

bool Results::append_tested_kernels(const char* path) const {
  std::map<std::string, Tally> tallies;
  for (const Result& result : results_) {
    Tally& tally = tallies[result.kernel];
    ++tally.comparisons;
    tally.largest_share = std::max(tally.largest_share, result.errors.largest() / result.bar);
    tally.pass = tally.pass && result.pass;
  }
  std::ostringstream text;
  for (const auto& [name, tally] : tallies) {
    text << name << ' ' << tally.comparisons << ' ';
    if (tally.pass)
      text << static_cast<long>(std::ceil(100 * tally.largest_share)) << '\n';
    else
      text << "failed\n";
  }
  return append(path, text.str());
}

}  // namespace flashdma_bwd::testing
