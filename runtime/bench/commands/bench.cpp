// Timing problems. See bench.hpp.
#include "commands/bench.hpp"

#include <cuda_runtime_api.h>

#include <cstdio>
#include <utility>

#include "ceilings.hpp"
#include "commands/exit_codes.hpp"
#include "report/write_file.hpp"
#include "roofline.hpp"

namespace flashdma_bwd::bench {
namespace {

using SetAndProblem = std::pair<std::string, Problem>;

// The problems asked for, each with the name of its set; the dense set if none was.
bool collect(const BenchOptions& options, std::vector<SetAndProblem>& problems) {
  for (const std::string& set : options.sets)
    for (const Problem& problem : problem_set(set)) problems.emplace_back(set, problem);
  for (const std::string& text : options.problems) {
    Problem problem;
    std::string error;
    if (!parse_problem(text, problem, error)) {
      std::fprintf(stderr, "flashdma-bench: the problem \"%s\": %s\n", text.c_str(), error.c_str());
      return false;
    }
    problems.emplace_back("", problem);
  }
  if (problems.empty())
    for (const Problem& problem : problem_set("dense")) problems.emplace_back("dense", problem);
  return true;
}

bool has_gpu() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) return true;
  std::fprintf(stderr, "flashdma-bench: no GPU here; `flashdma-bench select` and `report` run without one\n");
  return false;
}

std::vector<Result> measure_all(const std::vector<SetAndProblem>& problems, const MeasureOptions& options) {
  std::vector<Result> results;
  for (const auto& [set, problem] : problems) {
    std::fprintf(stderr, "%s\n", problem_text(problem).c_str());
    results.push_back(measure(set, problem, options));
  }
  return results;
}

bool measure_ceilings_aloud(const BenchOptions& options, Ceilings& ceilings) {
  std::fprintf(stderr, "the ceilings of this GPU\n");
  std::string message;
  ceilings = measure_ceilings(options.measure.timing, message);
  if (!message.empty()) std::fprintf(stderr, "flashdma-bench: %s\n", message.c_str());
  return message.empty();
}

bool write_json(const BenchOptions& options, const Environment& environment, const std::vector<Result>& results,
                const Ceilings& ceilings) {
  if (options.json_file.empty()) return true;
  const std::string why = write_file(options.json_file, json(environment, results, ceilings));
  if (!why.empty()) std::fprintf(stderr, "flashdma-bench: %s\n", why.c_str());
  return why.empty();
}

bool all_succeeded(const std::vector<Result>& results) {
  for (const Result& result : results)
    if (!result.failure.empty()) return false;
  return true;
}

void print_environment(const Environment& environment) {
  std::printf("%s, driver %s, %s, flashdma_bwd %s, tables %s, commit %s\n", environment.gpu.c_str(),
              environment.driver.c_str(), environment.toolkit.c_str(), environment.library.c_str(),
              environment.table_hash.c_str(), environment.commit.c_str());
}

void print_roofline(const Result& result, const Ceilings& ceilings) {
  if (!result.failure.empty()) {
    std::printf("%s\n  failed: %s\n", problem_text(result.problem).c_str(), result.failure.c_str());
    return;
  }
  const RooflineTimes times{result.kernel,          result.row, result.layout,
                            result.active_fraction, result.ms,  result.planned_ms.value_or(0)};
  std::printf("%s", roofline_text(result.problem, times, ceilings).c_str());
}

}  // namespace

int run_bench(const BenchOptions& options) {
  std::vector<SetAndProblem> problems;
  if (!collect(options, problems)) return kUsage;
  if (!has_gpu()) return kFailure;
  Ceilings ceilings;
  const bool measured = !options.ceilings || measure_ceilings_aloud(options, ceilings);
  const std::vector<Result> results = measure_all(problems, options.measure);
  const Environment environment = current_environment(options.commit);
  print_environment(environment);
  if (options.ceilings) std::printf("%s", ceilings_text(ceilings).c_str());
  std::printf("%s", table(results).c_str());
  return write_json(options, environment, results, ceilings) && measured && all_succeeded(results) ? kFine : kFailure;
}

int run_roofline(const BenchOptions& options) {
  std::vector<SetAndProblem> problems;
  if (!collect(options, problems)) return kUsage;
  if (!has_gpu()) return kFailure;
  Ceilings ceilings;
  const bool measured = measure_ceilings_aloud(options, ceilings);
  const std::vector<Result> results = measure_all(problems, options.measure);
  const Environment environment = current_environment(options.commit);
  print_environment(environment);
  std::printf("%s", ceilings_text(ceilings).c_str());
  for (const Result& result : results) print_roofline(result, ceilings);
  return write_json(options, environment, results, ceilings) && measured && all_succeeded(results) ? kFine : kFailure;
}

}  // namespace flashdma_bwd::bench
