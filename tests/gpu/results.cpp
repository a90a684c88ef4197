// Writing the run's results.
#include "gpu/results.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
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

bool append(const char* path, const std::string& text) {
  std::ofstream file(path, std::ios::app);
  file << text;
  file.close();
  if (!file) std::fprintf(stderr, "test_gpu: cannot write %s\n", path);
  return static_cast<bool>(file);
}

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

std::vector<std::string> Results::passed_kernels() const {
  std::map<std::string, bool> passed;
  for (const Result& result : results_) {
    const auto [position, fresh] = passed.emplace(result.kernel, result.pass);
    if (!fresh) position->second = position->second && result.pass;
  }
  std::vector<std::string> names;
  for (const auto& [name, pass] : passed)
    if (pass) names.push_back(name);
  return names;
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

bool Results::append_passed_kernels(const char* path) const {
  std::string text;
  for (const std::string& name : passed_kernels()) text += name + '\n';
  return append(path, text);
}

}  // namespace flashdma_bwd::testing
