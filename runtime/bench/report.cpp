// A benchmark run as a table and as JSON. See report.hpp.
#include "report.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <flashdma_bwd/flashdma_bwd.hpp>
#include <fstream>
#include <regex>
#include <utility>

namespace flashdma_bwd::bench {
namespace {

std::string cuda_version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// The kernel driver's own version where the system shows it, else the newest CUDA that the driver serves.
std::string driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::smatch match;
  if (std::getline(file, line) && std::regex_search(line, match, std::regex("[0-9]+\\.[0-9]+(\\.[0-9]+)?")))
    return match.str();
  int version = 0;
  cudaDriverGetVersion(&version);
  return "for CUDA " + cuda_version(version);
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      result += ' ';
    else
      result += c;
  }
  return result + '"';
}

std::string number(double value, const char* format) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string plan_text(const Result& result) {
  std::string text = "  " + result.layout + " plan";
  if (!result.plan) return text + " in each call\n";
  if (result.plan_ms) text += number(*result.plan_ms, " %.4f ms");
  if (result.schedule_ms) text += number(*result.schedule_ms, ", its schedule %.4f ms");
  if (result.planned_ms)
    text +=
        number(*result.planned_ms, result.schedule_ms ? ", backward with both %.4f ms" : ", backward with it %.4f ms");
  if (const std::optional<PlanSummary>& tiles = result.plan->tiles)
    text += ", " + std::to_string(tiles->reordered_masks) + " of " + std::to_string(tiles->masks) +
            " masks reordered, tiles: " + std::to_string(tiles->all_tiles) + ", natural " +
            std::to_string(tiles->natural_tiles) + ", predicted at most " + std::to_string(tiles->predicted_tiles);
  return text + '\n';
}

// What is not known is not there.
std::string plan_json(const Result& result) {
  std::string text;
  const auto add = [&text](const char* name, const std::string& value) {
    text += (text.empty() ? "\"" : ", \"") + std::string(name) + "\": " + value;
  };
  add("layout", quoted(result.plan->layout));
  if (result.plan_ms) add("ms", number(*result.plan_ms, "%.5f"));
  if (result.schedule_ms) add("schedule_ms", number(*result.schedule_ms, "%.5f"));
  if (result.planned_ms) add("planned_ms", number(*result.planned_ms, "%.5f"));
  add("masks", std::to_string(result.plan->masks));
  if (const std::optional<PlanSummary>& tiles = result.plan->tiles) {
    add("reordered_masks", std::to_string(tiles->reordered_masks));
    add("all_tiles", std::to_string(tiles->all_tiles));
    add("natural_tiles", std::to_string(tiles->natural_tiles));
    add("predicted_tiles", std::to_string(tiles->predicted_tiles));
  }
  return '{' + text + '}';
}

std::string ceilings_json(const Ceilings& ceilings) {
  std::string text;
  if (ceilings.dense_tflops > 0)
    text += "\"dense_tflops\": " + number(ceilings.dense_tflops, "%.1f") +
            ", \"dense_source\": " + quoted(ceilings.dense_source);
  if (ceilings.copy_gb_per_s > 0)
    text += (text.empty() ? "" : ", ") + ("\"copy_gb_per_s\": " + number(ceilings.copy_gb_per_s, "%.1f")) +
            ", \"copy_source\": " + quoted(ceilings.copy_source);
  return text.empty() ? text : "  \"ceilings\": {" + text + "},\n";
}

}  // namespace

Environment current_environment(std::string commit) {
  Environment environment;
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, 0) == cudaSuccess) environment.gpu = properties.name;
  int runtime = 0;
  cudaRuntimeGetVersion(&runtime);
  environment.driver = driver_version();
  environment.toolkit = "CUDA " + cuda_version(runtime);
  environment.library = flashdma_bwd_version();
  environment.table_hash = flashdma_bwd_table_hash();
  environment.commit = std::move(commit);
  return environment;
}

double teraflops(const Result& result) {
  return result.ms > 0 ? result.problem.dense_flops() / (result.ms * 1e9) : 0;
}

std::string table(const std::vector<Result>& results) {
  std::size_t width = 7;
  for (const Result& result : results) width = std::max(width, problem_text(result.problem).size());
  std::string text = "problem" + std::string(width - 7, ' ') + "         ms  TFLOP/s  active  kernel\n";
  for (const Result& result : results) {
    const std::string problem = problem_text(result.problem);
    text += problem + std::string(width - problem.size(), ' ');
    if (!result.failure.empty()) {
      text += "  failed: " + result.failure + "\n";
      continue;
    }
    text += number(result.ms, "  %9.4f") + number(teraflops(result), "  %7.1f") +
            number(100 * result.active_fraction, "  %5.1f%%") + "  " + result.kernel + "  (" + result.row + ")\n";
    if (!result.layout.empty()) text += plan_text(result);
  }
  return text;
}

std::string json(const Environment& environment, const std::vector<Result>& results, const Ceilings& ceilings) {
  std::string text = "{\n  \"benchmark\": \"backward\",\n  \"backend\": \"flashdma_bwd\",\n";
  const std::pair<const char*, const std::string*> fields[] = {
      {"gpu", &environment.gpu},         {"driver", &environment.driver},         {"toolkit", &environment.toolkit},
      {"library", &environment.library}, {"table_hash", &environment.table_hash}, {"commit", &environment.commit}};
  for (const auto& [name, value] : fields) text += "  \"" + std::string(name) + "\": " + quoted(*value) + ",\n";
  text += ceilings_json(ceilings) + "  \"results\": [";
  const char* separator = "\n";
  for (const Result& result : results) {
    text += separator;
    separator = ",\n";
    text += "    {\"set\": " + quoted(result.set) + ", \"problem\": " + quoted(problem_text(result.problem));
    if (!result.failure.empty()) {
      text += ", \"failure\": " + quoted(result.failure) + "}";
      continue;
    }
    text += ", \"kernel\": " + quoted(result.kernel) + ", \"row\": " + quoted(result.row) +
            ", \"ms\": " + number(result.ms, "%.5f") + ", \"fastest_ms\": " + number(result.fastest_ms, "%.5f") +
            ", \"samples\": " + std::to_string(result.samples) + ", \"tflops\": " + number(teraflops(result), "%.1f") +
            ", \"active_fraction\": " + number(result.active_fraction, "%.5f");
    if (!result.layout.empty()) text += ", \"layout\": " + quoted(result.layout);
    if (result.plan) text += ", \"plan\": " + plan_json(result);
    text += "}";
  }
  return text + "\n  ]\n}\n";
}

}  // namespace flashdma_bwd::bench
