// Printing and parsing of records.
#include "tune_cache/cache_record.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "selection/configuration_name.hpp"
#include "selection/line_text.hpp"
#include "selection/number_text.hpp"
#include "selection/problem_text.hpp"
#include "selection/suggestion.hpp"
#include "tune_cache/flat_json.hpp"

namespace flashdma_bwd {
namespace {

constexpr std::string_view kNames[] = {
    "version", "compute_capability", "sm_count",  "table_hash",   "toolkit",  "problem",  "kernel",
    "ms",      "spread_ms",          "runner_up", "runner_up_ms", "measured", "feasible", "date"};

/// Each returns what is wrong with the value, or nothing.
std::string read_count(std::string_view text, int& count) {
  std::string_view rest = text;
  const auto number = take_number<int>(rest);
  if (!number || !rest.empty() || *number <= 0) return quoted(text) + " is no number above 0";
  count = *number;
  return {};
}

std::string read_ms(std::string_view text, bool may_be_zero, double& ms) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, ms);
  if (error == std::errc() && stop == end && std::isfinite(ms) && (ms > 0 || (may_be_zero && ms == 0))) return {};
  return quoted(text) + " is no number of milliseconds";
}

std::string read_kernel(std::string_view text, std::string& kernel) {
  const Parsed<KernelConfig> parsed = parse_configuration_name(text);
  if (!parsed) return quoted(text) + " is no kernel: " + parsed.error;
  kernel = text;
  return {};
}

/// Like `shape`, where 0 stands for any digit, x for any hexadecimal one and the rest for itself.
bool has_shape(std::string_view text, std::string_view shape) {
  const auto fits = [](char c, char wanted) {
    if (wanted == '0') return '0' <= c && c <= '9';
    if (wanted == 'x') return ('0' <= c && c <= '9') || ('a' <= c && c <= 'f');
    return c == wanted;
  };
  return std::equal(text.begin(), text.end(), shape.begin(), shape.end(), fits);
}

std::string read_toolkit(std::string_view text, std::string& toolkit) {
  std::string_view rest = text;
  if (!take_number<int>(rest) || !take_prefix(rest, ".") || !take_number<int>(rest) || !rest.empty())
    return quoted(text) + " is no version such as `13.0`";
  toolkit = text;
  return {};
}

std::string read_problem(std::string_view text, Problem& problem) {
  const Parsed<Problem> parsed = parse_problem_text(text);
  if (!parsed) return parsed.error;
  problem = *parsed.value;
  return {};
}

std::string read_shaped(std::string_view text, std::string_view shape, const char* example, std::string& value) {
  if (!has_shape(text, shape)) return quoted(text) + " is not of the form " + quoted(example);
  value = text;
  return {};
}

std::string read_value(const JsonMember& member, CacheRecord& record) {
  const std::string& name = member.name;
  const std::string& value = member.value;
  CacheEnvironment& environment = record.environment;
  if (name == "compute_capability") return read_count(value, environment.compute_capability);
  if (name == "sm_count") return read_count(value, environment.sm_count);
  if (name == "table_hash") return read_shaped(value, "xxxxxxxxxxxxxxxx", "0123456789abcdef", environment.table_hash);
  if (name == "toolkit") return read_toolkit(value, environment.toolkit);
  if (name == "problem") return read_problem(value, record.problem);
  if (name == "kernel") return read_kernel(value, record.kernel);
  if (name == "ms") return read_ms(value, false, record.ms);
  if (name == "spread_ms") return read_ms(value, true, record.spread_ms);
  if (name == "runner_up") return read_kernel(value, record.runner_up);
  if (name == "runner_up_ms") return read_ms(value, false, record.runner_up_ms);
  if (name == "measured") return read_count(value, record.measured);
  if (name == "feasible") return read_count(value, record.feasible);
  return read_shaped(value, "0000-00-00T00:00:00Z", "2026-01-31T12:00:00Z", record.date);
}

bool is_string(std::string_view name) {
  constexpr std::string_view kStrings[] = {"table_hash", "toolkit", "problem", "kernel", "runner_up", "date"};
  return std::find(std::begin(kStrings), std::end(kStrings), name) != std::end(kStrings);
}

std::string unknown(std::string_view name) {
  const std::string_view near = nearest_of(name, {std::begin(kNames), std::end(kNames)});
  return quoted(name) + " is no part of a record" + (near.empty() ? "" : ", did you mean " + quoted(near) + '?');
}

bool has(const std::vector<JsonMember>& members, std::string_view name) {
  return std::any_of(members.begin(), members.end(), [&](const JsonMember& member) { return member.name == name; });
}

std::string missing(const std::vector<JsonMember>& members) {
  for (const std::string_view name : kNames)
    if (!name.starts_with("runner_up") && !has(members, name)) return quoted(name) + " is missing";
  if (has(members, "runner_up") != has(members, "runner_up_ms"))
    return "`runner_up` and `runner_up_ms` are given together or not at all";
  return {};
}

/// Why a kernel cannot be a problem's, or nothing.
std::string mismatch(std::string_view member, const std::string& kernel, const Problem& problem) {
  const KernelConfig config = *parse_configuration_name(kernel).value;
  if (config.data_type == problem.data_type && config.head_dim == head_dim_bucket(problem.head_dim) &&
      config.bias == problem.bias && config.softcap == problem.softcap)
    return {};
  return std::string(member) + ": " + quoted(kernel) + " does not serve `" + problem_text(problem) + '`';
}

/// Rules between members.
std::string violation(const CacheRecord& record) {
  if (std::string error = mismatch("kernel", record.kernel, record.problem); !error.empty()) return error;
  if (!record.runner_up.empty())
    if (std::string error = mismatch("runner_up", record.runner_up, record.problem); !error.empty()) return error;
  if (record.measured > record.feasible) return "`measured` is larger than `feasible`";
  return {};
}

std::string read_record(std::string_view line, CacheRecord& record) {
  const Parsed<std::vector<JsonMember>> members = parse_flat_json(line);
  if (!members) return members.error;
  for (const JsonMember& member : *members.value) {
    if (std::find(std::begin(kNames), std::end(kNames), member.name) == std::end(kNames)) return unknown(member.name);
    if (member.is_string != is_string(member.name))
      return member.name + (member.is_string ? ": it must be a number, without quotes" : ": it must be a string");
    if (member.name == "version") {
      if (member.value != std::to_string(kCacheVersion))
        return "version " + member.value + ": this library reads version " + std::to_string(kCacheVersion);
    } else if (std::string error = read_value(member, record); !error.empty()) {
      return member.name + ": " + error;
    }
  }
  if (std::string error = missing(*members.value); !error.empty()) return error;
  return violation(record);
}

}  // namespace

bool same_choice(const CacheRecord& a, const CacheRecord& b) {
  return a.environment == b.environment && a.problem == b.problem && a.kernel == b.kernel;
}

std::string record_text(const CacheRecord& record) {
  FlatJsonWriter line;
  line.add("version", kCacheVersion);
  line.add("compute_capability", record.environment.compute_capability);
  line.add("sm_count", record.environment.sm_count);
  line.add("table_hash", record.environment.table_hash);
  line.add("toolkit", record.environment.toolkit);
  line.add("problem", problem_text(record.problem));
  line.add("kernel", record.kernel);
  line.add("ms", record.ms);
  line.add("spread_ms", record.spread_ms);
  if (!record.runner_up.empty()) {
    line.add("runner_up", record.runner_up);
    line.add("runner_up_ms", record.runner_up_ms);
  }
  line.add("measured", record.measured);
  line.add("feasible", record.feasible);
  line.add("date", record.date);
  return line.text();
}

Parsed<CacheRecord> parse_record(std::string_view line) {
  CacheRecord record;
  if (std::string error = read_record(line, record); !error.empty()) return Parsed<CacheRecord>::failure(error);
  return record;
}

int version_of(std::string_view line) {
  if (!take_prefix(line, "{\"version\":")) return 0;
  const auto version = take_number<int>(line);
  return version && (line.starts_with(',') || line.starts_with('}')) ? *version : 0;
}

}  // namespace flashdma_bwd
