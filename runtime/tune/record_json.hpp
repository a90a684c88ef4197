// A measurement as one line of JSON, and what the measuring program and the orchestration tell each other. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "diagnostics/diagnostic.hpp"
#include "measurement.hpp"

namespace flashdma_bwd::tune {

/// The version of a record's form. A record of another version is refused, not guessed at.
inline constexpr int kRecordVersion = 1;

nlohmann::ordered_json candidate_json(const Candidate& candidate);
nlohmann::ordered_json environment_json(const Environment& environment);

/// Without the end of the line.
std::string record_line(const Measurement& measurement);

/// Where a text of JSON stands, for diagnostics.
struct LinePlace {
  std::string path;
  int line = 0;
  std::string_view text;
};

std::optional<nlohmann::json> parse_json_line(const LinePlace& place, generator::Diagnostics& diagnostics);
std::optional<Measurement> read_record(const LinePlace& place, generator::Diagnostics& diagnostics);
std::optional<Environment> read_environment(const nlohmann::json& json, const LinePlace& place,
                                            generator::Diagnostics& diagnostics);
std::optional<Candidate> read_candidate(const nlohmann::json& json, const LinePlace& place,
                                        generator::Diagnostics& diagnostics);

}  // namespace flashdma_bwd::tune
