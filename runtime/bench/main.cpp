// flashdma-bench: times the backward on the GPU at hand, and kernel selection and monitoring on the CPU.
#include <cuda_runtime_api.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "device_problem.hpp"
#include "monitoring_benchmark.hpp"
#include "report.hpp"
#include "select_benchmark.hpp"
#include "timing.hpp"

namespace {

using namespace flashdma_bwd;

constexpr int kFine = 0;
constexpr int kFailure = 1;
constexpr int kUsage = 2;

struct Options {
  std::vector<std::string> sets;
  std::vector<std::string> problems;
  std::string json_file;
  std::string commit = "unknown";
  bench::DeviceProblemOptions device;
  bench::TimingOptions timing;
  bool plan = false;
};

const std::map<std::string, std::int32_t> kLayouts = {{"auto", FLASHDMA_BWD_MASK_AUTO},
                                                      {"natural", FLASHDMA_BWD_MASK_NATURAL},
                                                      {"compacted", FLASHDMA_BWD_MASK_COMPACTED},
                                                      {"reordered", FLASHDMA_BWD_MASK_REORDERED}};

// Times the building of the mask's plan and the backward with it.
void measure_plan(bench::DeviceProblem& problem, const bench::TimingOptions& options, bench::Result& result) {
  if (!problem.make_plan()) {
    result.failure = problem.message();
    return;
  }
  for (double* ms : {&result.plan_ms, &result.planned_ms}) {
    const bench::Timing timing =
        ms == &result.plan_ms ? bench::time_plan(problem, options) : bench::time_backward(problem, options);
    *ms = timing.median_ms;
    if (result.failure.empty()) result.failure = timing.message;
  }
}

bench::Result measure(const std::string& set, const bench::Problem& problem, const Options& options) {
  bench::Result result;
  result.set = set;
  result.problem = problem;
  bench::DeviceProblem device_problem(problem, options.device);
  result.failure = device_problem.message();
  if (!result.failure.empty()) return result;
  result.active_fraction = device_problem.active_fraction();
  Selection selection{};
  if (const Status status = select(device_problem.arguments(), selection); !status) {
    result.failure = status.message();
    return result;
  }
  result.kernel = selection.kernel;
  result.row = std::string(selection.row_file) + ":" + std::to_string(selection.row_line);
  const bench::Timing timing = bench::time_backward(device_problem, options.timing);
  result.failure = timing.message;
  result.ms = timing.median_ms;
  result.fastest_ms = timing.fastest_ms;
  result.samples = options.timing.samples;
  if (options.plan && problem.mask != bench::MaskShape::none && result.failure.empty())
    measure_plan(device_problem, options.timing, result);
  result.plan = device_problem.plan_summary();
  return result;
}

// The problems asked for, each with the name of its set; the dense set if none was.
bool collect(const Options& options, std::vector<std::pair<std::string, bench::Problem>>& problems) {
  for (const std::string& set : options.sets)
    for (const bench::Problem& problem : bench::problem_set(set)) problems.emplace_back(set, problem);
  for (const std::string& text : options.problems) {
    bench::Problem problem;
    std::string error;
    if (!bench::parse_problem(text, problem, error)) {
      std::fprintf(stderr, "flashdma-bench: --problem \"%s\": %s\n", text.c_str(), error.c_str());
      return false;
    }
    problems.emplace_back("", problem);
  }
  if (problems.empty())
    for (const bench::Problem& problem : bench::problem_set("dense")) problems.emplace_back("dense", problem);
  return true;
}

int run(const Options& options) {
  std::vector<std::pair<std::string, bench::Problem>> problems;
  if (!collect(options, problems)) return kUsage;
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "flashdma-bench: no GPU here; `flashdma-bench select` runs without one\n");
    return kFailure;
  }
  std::vector<bench::Result> results;
  bool failed = false;
  for (const auto& [set, problem] : problems) {
    std::fprintf(stderr, "%s\n", bench::problem_text(problem).c_str());
    results.push_back(measure(set, problem, options));
    failed = failed || !results.back().failure.empty();
  }
  const bench::Environment environment = bench::current_environment(options.commit);
  std::printf("%s, driver %s, %s, flashdma_bwd %s, tables %s, commit %s\n%s", environment.gpu.c_str(),
              environment.driver.c_str(), environment.toolkit.c_str(), environment.library.c_str(),
              environment.table_hash.c_str(), environment.commit.c_str(), bench::table(results).c_str());
  if (!options.json_file.empty()) {
    std::ofstream file(options.json_file);
    file << bench::json(environment, results);
    if (!file.flush()) {
      std::fprintf(stderr, "flashdma-bench: cannot write %s\n", options.json_file.c_str());
      return kFailure;
    }
  }
  return failed ? kFailure : kFine;
}

int parse_and_run(int argc, char** argv) {
  CLI::App app{
      "Times the backward pass of dynamic mask attention: median of CUDA-event timings, after a warm-up, over rotating "
      "inputs."};
  Options options;
  std::string sets;
  for (const std::string_view name : bench::kSetNames) sets += (sets.empty() ? "" : ", ") + std::string(name);
  app.add_option("--set", options.sets, "A named set of problems: " + sets)
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(bench::kSetNames), std::end(bench::kSetNames))));
  app.add_option("--problem", options.problems,
                 "One problem, such as \"b=1 h=16 hk=4 d=128 s=8192 causal bias=key mask=topw:1024\"");
  app.add_option("--kernel", options.device.kernel,
                 "Canonical name of the kernel to use instead of the table's choice");
  app.add_flag("--reuse-plan", options.device.reuse_plan, "Build the mask's plan once, outside of what is timed");
  app.add_flag("--plan", options.plan, "Time the building of the mask's plan and the backward with it, too")
      ->excludes("--reuse-plan");
  app.add_option("--layout", options.device.mask_layout,
                 "What is made of a mask: auto, natural, compacted or reordered")
      ->transform(CLI::CheckedTransformer(kLayouts));
  app.add_option("--samples", options.timing.samples, "Timings, of which the median counts")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--sustain", options.timing.sustain_seconds,
                 "Seconds to run before timing, to reach the clock that the GPU can hold")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--json", options.json_file, "Write the results to this file as JSON");
  app.add_option("--commit", options.commit, "The source's commit, for the report")->capture_default_str();
  CLI::App* select_command = app.add_subcommand("select", "Times kernel selection; needs no GPU");
  CLI::App* monitoring_command =
      app.add_subcommand("monitoring", "Times what hooks, counters and the like cost a launch; needs no GPU");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kFine : kUsage;
  }
  if (select_command->parsed()) return bench::print_select_benchmark() ? kFine : kFailure;
  if (monitoring_command->parsed()) return bench::print_monitoring_benchmark() ? kFine : kFailure;
  return run(options);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return parse_and_run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "flashdma-bench: %s\n", error.what());
    return kFailure;
  }
}
