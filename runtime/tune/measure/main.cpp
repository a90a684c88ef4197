// flashdma-tune-measure: answers requests for timings, a line each. See tune/measuring_process.hpp for what is said.
#include <cuda_runtime_api.h>

#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "bench/report.hpp"
#include "diagnostics/render.hpp"
#include "selection/problem_text.hpp"
#include "tune/json_reader.hpp"
#include "tune/measure/candidate_timer.hpp"
#include "tune/measuring_process.hpp"
#include "tune/record_json.hpp"

namespace {

using namespace flashdma_bwd;
using Json = nlohmann::ordered_json;

constexpr int kFailure = 3;

void say(const Json& json) {
  std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n' << std::flush;
}

int fail(const std::string& why) {
  say({{"failure", why}});
  return kFailure;
}

/// Says who we are; false where there is no GPU to speak of.
bool introduce() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    fail(std::string("there is no GPU here: ") + cudaGetErrorString(error));
    return false;
  }
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, 0); error != cudaSuccess) {
    fail(std::string("the GPU does not say what it is: ") + cudaGetErrorString(error));
    return false;
  }
  const bench::Environment known = bench::current_environment("");
  tune::Environment environment;
  environment.gpu = known.gpu;
  environment.compute_capability = 10 * properties.major + properties.minor;
  environment.sm_count = properties.multiProcessorCount;
  environment.shared_memory_per_block = static_cast<int>(properties.sharedMemPerBlockOptin);
  environment.driver = known.driver;
  environment.toolkit = known.toolkit;
  environment.table_hash = known.table_hash;
  Json names = Json::array();
  for (const std::string_view name : kernels()) names.push_back(name);
  say({{"protocol", tune::kProtocolVersion}, {"environment", environment_json(environment)}, {"kernels", names}});
  return true;
}

/// A request, or findings.
tune::Request read_request(const tune::LinePlace& place, generator::Diagnostics& diagnostics) {
  tune::Request request;
  const std::optional<nlohmann::json> json = parse_json_line(place, diagnostics);
  if (!json) return request;
  const tune::JsonReader reader(*json, "a request", {"problem", "kernels", "rounds", "stop_share"}, place, diagnostics);
  const Parsed<Problem> problem = parse_problem_text(reader.text("problem"));
  if (problem)
    request.problem = *problem.value;
  else
    diagnostics.add(generator::Rule::unknown_value, reader.at("problem"), problem.error);
  if (const nlohmann::json* list = reader.list("kernels"))
    for (const nlohmann::json& kernel : *list)
      if (kernel.is_string()) request.kernels.push_back(kernel.get<std::string>());
  request.rounds = static_cast<int>(reader.integer("rounds", 1, 1 << 20));
  request.stop_share = reader.number("stop_share");
  return request;
}

void answer(const std::string& line) {
  const tune::LinePlace place{"standard input", 1, line};
  generator::Diagnostics diagnostics;
  const tune::Request request = read_request(place, diagnostics);
  if (!diagnostics.empty()) {
    fail(generator::render_text(diagnostics, {{place.path, place.path, line}}, false));
    return;
  }
  std::vector<tune::Candidate> results;
  const auto announce = [](const std::string& kernel) { say({{"running", kernel}}); };
  if (const std::string error = measure_request(request, announce, results); !error.empty()) {
    fail(error);
    return;
  }
  Json list = Json::array();
  for (const tune::Candidate& result : results) list.push_back(candidate_json(result));
  say({{"results", list}});
}

}  // namespace

int main() {
  try {
    if (!introduce()) return kFailure;
    for (std::string line; std::getline(std::cin, line);) answer(line);
    return 0;
  } catch (const std::exception& error) {
    return fail(std::string("internal error: ") + error.what());
  }
}
