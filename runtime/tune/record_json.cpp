// Records in and out.
#include "record_json.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "diagnostics/suggest.hpp"
#include "json_reader.hpp"
#include "selection/configuration_name.hpp"
#include "selection/problem_text.hpp"

namespace flashdma_bwd::tune {
namespace {

using generator::Diagnostics;
using generator::Rule;
using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 3> kCheckWords = {"none", "reference", "smaller"};
constexpr std::int64_t kMostCount = 1 << 30;

Json time_json(const generator::Time& time) {
  return {{"ms", time.ms}, {"spread_ms", time.spread_ms}};
}

generator::Time read_time(const JsonReader& parent, std::string_view key, const LinePlace& place,
                          Diagnostics& diagnostics) {
  const nlohmann::json* json = parent.object(key);
  if (json == nullptr) return {};
  const JsonReader reader(*json, "a time", {"ms", "spread_ms"}, place, diagnostics);
  const generator::Time time{reader.number("ms"), reader.number("spread_ms")};
  if (time.ms == 0 && reader.has("ms"))
    diagnostics.add(Rule::out_of_range, parent.at(key), "no call takes 0 ms",
                    {"remove the line: it is measured again"});
  return time;
}

Check read_check(const JsonReader& reader, Diagnostics& diagnostics) {
  const std::string text = reader.text("check");
  const auto found = std::ranges::find(kCheckWords, text);
  if (found != kCheckWords.end()) return static_cast<Check>(found - kCheckWords.begin());
  if (!text.empty())
    diagnostics.add(Rule::unknown_value, reader.at("check"),
                    "`check` is `" + text + "`, not " + generator::enumerate({kCheckWords.begin(), kCheckWords.end()}));
  return Check::none;
}

}  // namespace

generator::MeasuredProblem measured_problem(const Measurement& measurement) {
  generator::MeasuredProblem result{measurement.problem, {}, measurement.date};
  for (const Candidate& candidate : measurement.candidates)
    if (const Parsed<KernelConfig> kernel = parse_configuration_name(candidate.kernel);
        kernel && candidate.failure.empty())
      result.tiles.push_back({kernel.value->tile, candidate.cold, candidate.warm, generator::Evidence::timed});
  // Which of some tiles that are as fast is the fastest shall not hang on the order in which they were timed.
  std::ranges::sort(result.tiles, {}, [](const generator::MeasuredTile& tile) { return tile_name(tile.tile); });
  return result;
}

std::vector<generator::MeasuredProblem> measured_problems(std::span<const Measurement> measurements) {
  std::vector<generator::MeasuredProblem> result;
  for (const Measurement& measurement : measurements) result.push_back(measured_problem(measurement));
  return result;
}

Json candidate_json(const Candidate& candidate) {
  if (!candidate.failure.empty()) return {{"kernel", candidate.kernel}, {"failure", candidate.failure}};
  return {{"kernel", candidate.kernel},        {"cold", time_json(candidate.cold)},
          {"warm", time_json(candidate.warm)}, {"rounds", candidate.rounds},
          {"stopped", candidate.stopped},      {"check", kCheckWords[static_cast<std::size_t>(candidate.check)]},
          {"error", candidate.error}};
}

Json environment_json(const Environment& environment) {
  return {{"gpu", environment.gpu},
          {"compute_capability", environment.compute_capability},
          {"sm_count", environment.sm_count},
          {"shared_memory_per_block", environment.shared_memory_per_block},
          {"driver", environment.driver},
          {"toolkit", environment.toolkit},
          {"table_hash", environment.table_hash},
          {"commit", environment.commit}};
}

std::string record_line(const Measurement& measurement) {
  Json candidates = Json::array();
  for (const Candidate& candidate : measurement.candidates) candidates.push_back(candidate_json(candidate));
  const Json record{{"version", kRecordVersion},
                    {"problem", problem_text(measurement.problem)},
                    {"date", measurement.date},
                    {"environment", environment_json(measurement.environment)},
                    {"candidates", std::move(candidates)}};
  // A driver's message may hold any bytes; what is not UTF-8 is replaced.
  return record.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<nlohmann::json> parse_json_line(const LinePlace& place, Diagnostics& diagnostics) {
  try {
    return nlohmann::json::parse(place.text);
  } catch (const nlohmann::json::parse_error& error) {
    diagnostics.add(Rule::json_syntax, {place.path, place.line, std::max(1, static_cast<int>(error.byte))},
                    "not JSON: the line cannot be read from here on",
                    {"a record is one line that flashdma-tune wrote; remove it, and it is measured again"});
    return std::nullopt;
  }
}

std::optional<Environment> read_environment(const nlohmann::json& json, const LinePlace& place,
                                            Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.size();
  const JsonReader reader(
      json, "`environment`",
      {"gpu", "compute_capability", "sm_count", "shared_memory_per_block", "driver", "toolkit", "table_hash", "commit"},
      place, diagnostics);
  Environment environment;
  environment.gpu = reader.text("gpu");
  environment.compute_capability = static_cast<int>(reader.integer("compute_capability", 10, 999));
  environment.sm_count = static_cast<int>(reader.integer("sm_count", 1, 100000));
  environment.shared_memory_per_block = static_cast<int>(reader.integer("shared_memory_per_block", 1, kMostCount));
  environment.driver = reader.text("driver");
  environment.toolkit = reader.text("toolkit");
  environment.table_hash = reader.text("table_hash");
  environment.commit = reader.text("commit");
  return diagnostics.size() == before ? std::optional(environment) : std::nullopt;
}

std::optional<Candidate> read_candidate(const nlohmann::json& json, const LinePlace& place, Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.size();
  const JsonReader reader(json, "a candidate",
                          {"kernel", "cold", "warm", "rounds", "stopped", "check", "error", "failure"}, place,
                          diagnostics);
  Candidate candidate;
  candidate.kernel = reader.text("kernel");
  if (const Parsed<KernelConfig> kernel = parse_configuration_name(candidate.kernel);
      !kernel && !candidate.kernel.empty())
    diagnostics.add(Rule::unknown_value, reader.at("kernel"),
                    "`kernel` is not the canonical name of a configuration: " + kernel.error);
  if (reader.has("failure")) {
    candidate.failure = reader.text("failure");
  } else {
    candidate.cold = read_time(reader, "cold", place, diagnostics);
    candidate.warm = read_time(reader, "warm", place, diagnostics);
    candidate.rounds = static_cast<int>(reader.integer("rounds", 1, kMostCount));
    candidate.stopped = reader.flag("stopped");
    candidate.check = read_check(reader, diagnostics);
    candidate.error = reader.number("error");
  }
  return diagnostics.size() == before ? std::optional(candidate) : std::nullopt;
}

std::optional<Measurement> read_record(const LinePlace& place, Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.size();
  const std::optional<nlohmann::json> json = parse_json_line(place, diagnostics);
  if (!json) return std::nullopt;
  if (json->is_object() && json->contains("version") && json->at("version") != kRecordVersion) {
    diagnostics.add(Rule::foreign_version, {place.path, place.line, 1},
                    "the record is of version " + json->at("version").dump() + ", this program reads version " +
                        std::to_string(kRecordVersion),
                    {"use the program that wrote it, or another file for --store"});
    return std::nullopt;
  }
  const JsonReader reader(*json, "a record", {"version", "problem", "date", "environment", "candidates"}, place,
                          diagnostics);
  reader.integer("version", kRecordVersion, kRecordVersion);
  Measurement measurement;
  const Parsed<Problem> problem = parse_problem_text(reader.text("problem"));
  if (problem)
    measurement.problem = *problem.value;
  else if (reader.has("problem"))
    diagnostics.add(Rule::unknown_value, reader.at("problem"), "`problem` is no problem: " + problem.error);
  measurement.date = reader.text("date");
  if (const nlohmann::json* environment = reader.object("environment"))
    if (const auto read = read_environment(*environment, place, diagnostics)) measurement.environment = *read;
  if (const nlohmann::json* candidates = reader.list("candidates"))
    for (const nlohmann::json& candidate : *candidates)
      if (const auto read = read_candidate(candidate, place, diagnostics)) measurement.candidates.push_back(*read);
  return diagnostics.size() == before ? std::optional(measurement) : std::nullopt;
}

}  // namespace flashdma_bwd::tune
