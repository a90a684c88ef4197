// Results for tests of reports.
#pragma once

#include <string>
#include <vector>

#include "report/results_file.hpp"
#include "support/catch.hpp"

namespace flashdma_bwd::bench::test {

inline Problem problem_of(const std::string& text) {
  Problem problem;
  std::string error;
  INFO(text);
  REQUIRE(parse_problem(text, problem, error));
  return problem;
}

inline Measurement measurement(const std::string& text, const std::string& kernel, const std::string& row, double ms) {
  Measurement result;
  result.backend = kOwnBackend;
  result.problem_text = text;
  result.problem = problem_of(text);
  result.kernel = kernel;
  result.row = row;
  result.ms = ms;
  return result;
}

inline Measurement other(const std::string& text, const std::string& backend, double ms) {
  Measurement result = measurement(text, "", "", ms);
  result.backend = backend;
  return result;
}

inline ResultsFile results_file(std::vector<Measurement> measurements, const std::string& gpu = "NVIDIA H200") {
  ResultsFile file;
  file.path = "some.json";
  file.environment = {gpu, "580.1", "CUDA 13.0", "0.1.0", "12ab", "abc"};
  file.measurements = std::move(measurements);
  return file;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace flashdma_bwd::bench::test
