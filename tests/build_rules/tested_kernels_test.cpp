// The lines about kernels that the processes of a GPU test run leave for its record.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "gpu/results.hpp"
#include "support/catch.hpp"
#include "support/in_child.hpp"
#include "support/temporary_folder.hpp"

namespace flashdma_bwd::testing {
namespace {

constexpr double kBar = 4e-3;

/// A comparison whose largest error is that of one output.
Result comparison(const std::string& kernel, const GradientErrors& errors) {
  return {kernel, "a problem", errors, kBar, errors.largest() <= kBar};
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("Each kernel has its comparisons and its largest error of all outputs, rounded up") {
  const TemporaryFolder folder;
  const std::string path = folder.path("kernels.txt");
  Results run;
  run.add(comparison("bwd_b", {0.1 * kBar, 0, 0, 0.505 * kBar}));
  run.add(comparison("bwd_b", {0, 0.2 * kBar, 0, 0}));
  run.add(comparison("bwd_a", {0, 0, kBar, 0}));
  run.add(comparison("bwd_c", {0, 0, 0, 0}));
  run.add(comparison("bwd_d", {0, 0.001 * kBar, 0, 0}));
  REQUIRE(run.append_tested_kernels(path.c_str()));
  CHECK(text_of(path) == "bwd_a 1 100\nbwd_b 2 51\nbwd_c 1 0\nbwd_d 1 1\n");
}

TEST_CASE("One comparison that failed fails its kernel") {
  const TemporaryFolder folder;
  const std::string path = folder.path("kernels.txt");
  Results run;
  run.add(comparison("bwd_a", {0, 0, 0, 0}));
  run.add(comparison("bwd_a", {0, 0, 0, std::numeric_limits<double>::quiet_NaN()}));
  run.add(comparison("bwd_a", {0, 0, 0, 0}));
  Result defect = comparison("bwd_b", {0, 0, 0, 0});
  defect.pass = false;
  run.add(defect);
  REQUIRE(run.append_tested_kernels(path.c_str()));
  CHECK(text_of(path) == "bwd_a 3 failed\nbwd_b 1 failed\n");
}

TEST_CASE("The lines of processes that append at once stay whole") {
  const TemporaryFolder folder;
  const std::string path = folder.path("kernels.txt");
  constexpr int kProcesses = 8, kKernels = 2000;
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      Results run;
      for (int kernel = 0; kernel < kKernels; ++kernel)
        run.add(comparison("bwd_process" + std::to_string(process) + "_" + std::to_string(kernel), {0, 0, 0, kBar}));
      _exit(run.append_tested_kernels(path.c_str()) ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  std::vector<std::string> lines, expected;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  for (int process = 0; process < kProcesses; ++process)
    for (int kernel = 0; kernel < kKernels; ++kernel)
      expected.push_back("bwd_process" + std::to_string(process) + "_" + std::to_string(kernel) + " 1 100");
  std::sort(lines.begin(), lines.end());
  std::sort(expected.begin(), expected.end());
  CHECK((lines == expected));
}

TEST_CASE("A file that cannot be written is said to be so") {
  const TemporaryFolder folder;
  Results run;
  run.add(comparison("bwd_a", {0, 0, 0, 0}));
  CHECK_FALSE(run.append_tested_kernels(folder.path().c_str()));
  const std::string path = folder.path("kernels.txt");
  const std::string said = said_on_full_disk(
      5, [&] { return run.append_tested_kernels(path.c_str()) ? std::string("written") : std::string("refused"); });
  CHECK(said == "refused");
}

}  // namespace flashdma_bwd::testing
