// Records of the cache.
#include "cache_choices.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "progress.hpp"
#include "selection/configuration_name.hpp"
#include "selection/number_text.hpp"
#include "selection/problem_text.hpp"

namespace flashdma_bwd::tune {
namespace {

using generator::Evidence;

/// Takes "column <n>: " off an error that begins so; 1 if it does not.
int take_column(std::string_view& why) {
  std::string_view rest = why;
  if (!take_prefix(rest, "column ")) return 1;
  const auto column = take_number<int>(rest);
  if (!column || !take_prefix(rest, ": ")) return 1;
  why = rest;
  return *column;
}

std::string counted(std::size_t count, const std::string& what) {
  return std::to_string(count) + ' ' + what + (count == 1 ? "" : "s");
}

}  // namespace

CacheContents read_choices(const generator::SourceFile& source, generator::Diagnostics& diagnostics) {
  CacheContents contents;
  std::size_t passed_over = 0;
  for (const CacheLine& line : parse_cache(source.text)) {
    switch (line.kind) {
      case LineKind::record:
        contents.records.push_back(line);
        if (std::ranges::find(contents.environments, line.record.environment) == contents.environments.end())
          contents.environments.push_back(line.record.environment);
        break;
      case LineKind::other_version:
        if (passed_over++ == 0)
          contents.warning = source.path + ':' + std::to_string(line.number) + ": warning: " + line.why;
        break;
      case LineKind::damaged: {
        std::string_view why = line.why;
        const int column = take_column(why);
        diagnostics.add(generator::Rule::cache_record, {source.path, line.number, column},
                        "no record: " + std::string(why),
                        {"the library passes such a line over: remove it, and its problem is measured again"});
      }
    }
  }
  if (passed_over > 0)
    contents.warning += "; " + counted(passed_over, "record") +
                        " of other versions passed over: the flashdma-tune of the library that wrote them reads them";
  return contents;
}

std::string gpu_text(int compute_capability) {
  return "compute capability " + std::to_string(compute_capability / 10) + '.' +
         std::to_string(compute_capability % 10);
}

std::string environment_text(const CacheEnvironment& environment) {
  return gpu_text(environment.compute_capability) + ", " + std::to_string(environment.sm_count) + " SMs, CUDA " +
         environment.toolkit + ", tables " + environment.table_hash;
}

std::string environments_text(const CacheContents& contents) {
  std::string text;
  for (std::size_t i = 0; i < contents.environments.size(); ++i) {
    const auto is_of = [&](const CacheLine& line) { return line.record.environment == contents.environments[i]; };
    const auto count = static_cast<std::size_t>(std::ranges::count_if(contents.records, is_of));
    text += "environment " + std::to_string(i + 1) + ": " + environment_text(contents.environments[i]) + ": " +
            counted(count, "record") + '\n';
  }
  return text;
}

std::string choices_text(const CacheContents& contents) {
  std::string text;
  for (const CacheLine& line : contents.records) {
    const CacheRecord& record = line.record;
    text += problem_text(record.problem) + "  (" + environment_text(record.environment) + ", " + record.date + ")\n  " +
            decimal(record.ms, 4) + " ms (spread " + decimal(record.spread_ms, 4) + "), the fastest of " +
            std::to_string(record.measured) + " measured of " + std::to_string(record.feasible) + "  " + record.kernel +
            '\n';
    if (!record.runner_up.empty())
      text += "  " + decimal(record.runner_up_ms, 4) + " ms, next  " + record.runner_up + '\n';
  }
  return text + environments_text(contents);
}

std::string choices_json(const CacheContents& contents) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const CacheLine& line : contents.records)
    array.push_back(nlohmann::ordered_json::parse(record_text(line.record)));
  return array.dump(2) + '\n';
}

generator::MeasuredProblem measured_problem(const CacheRecord& record, Architecture architecture,
                                            const std::optional<TileConfig>& incumbent, bool was_raced) {
  generator::MeasuredProblem result{record.problem, {}, record.date.substr(0, std::string("YYYY-MM-DD").size())};
  const auto add = [&](const std::string& name, const generator::Time& time) {
    const KernelConfig kernel = *parse_configuration_name(name).value;
    const bool is_own = kernel.architecture == architecture;
    if (find_tile(result, kernel.tile) != nullptr || (!is_own && kernel.tile == incumbent)) return;
    result.tiles.push_back({kernel.tile, time, {}, is_own ? Evidence::timed : Evidence::elsewhere});
  };
  add(record.kernel, {record.ms, record.spread_ms});
  if (record.runner_up.empty()) return result;
  // A runner-up that was faster was so within the noise, or it would have been the choice.
  add(record.runner_up, {record.runner_up_ms, std::max(0.0, record.ms - record.runner_up_ms)});
  if (was_raced && incumbent && find_tile(result, *incumbent) == nullptr)
    result.tiles.push_back({*incumbent, {std::max(record.ms, record.runner_up_ms), 0}, {}, Evidence::at_least});
  return result;
}

}  // namespace flashdma_bwd::tune
