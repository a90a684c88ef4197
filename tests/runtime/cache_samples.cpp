// See cache_samples.hpp.
#include "cache_samples.hpp"

#include <fstream>
#include <sstream>

#include "selection/configuration_name.hpp"
#include "selection/select_kernel.hpp"

namespace flashdma_bwd::testing {

CacheEnvironment sample_environment() {
  return {kH100.compute_capability, kH100.sm_count, "0123456789abcdef", "13.0"};
}

CacheRecord sample_record(const Problem& problem) {
  CacheRecord record;
  record.environment = sample_environment();
  record.problem = problem;
  const SelectionResult chosen = select_among(Architecture::sm90, kH100, problem, generated_rows());
  record.kernel = configuration_name(chosen.config);
  const SelectionResult older = select_among(Architecture::sm80, kA100, problem, generated_rows());
  record.runner_up = configuration_name(older.config);
  record.ms = 1.25;
  record.spread_ms = 0.0625;
  record.runner_up_ms = 1.5;
  record.measured = 12;
  record.feasible = 14;
  record.date = "2026-01-31T12:00:00Z";
  return record;
}

Problem problem_of_batch(std::int64_t batch) {
  Problem problem = ordinary_problem();
  problem.batch = batch;
  return problem;
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}
std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace flashdma_bwd::testing
