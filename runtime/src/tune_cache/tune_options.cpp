// Reading the options of tuning, from the environment and from the API's struct.
#include "tune_cache/tune_options.hpp"

#include <charconv>
#include <cmath>

namespace flashdma_bwd {
namespace {

/// What the options are called where they come from.
struct Names {
  const char* mode;
  const char* cache;
  const char* budget;
  const char* hash;
};
constexpr Names kVariables{"FLASHDMA_BWD_TUNE_MODE", "FLASHDMA_BWD_TUNE_CACHE", "FLASHDMA_BWD_TUNE_BUDGET_MS",
                           "FLASHDMA_BWD_TUNE_HASH"};
constexpr Names kFields{"tuning.mode", "tuning.cache", "tuning.budget_ms", "tuning.hash"};

/// Rules that do not ask where the options come from.
std::string violation(const TuneOptions& options, const Names& names) {
  const bool hexadecimal = options.hash.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!options.hash.empty() && (options.hash.size() != 16 || !hexadecimal))
    return std::string(names.hash) + " is `" + options.hash +
           "`: it must be 16 hexadecimal digits, as flashdma_bwd_get_tuning gives them";
  if (options.mode == TuneMode::read_only && options.cache.empty())
    return std::string(names.mode) + " is read_only, and there is no cache to read: set " + names.cache;
  if (options.mode != TuneMode::off && !options.hash.empty() && options.cache.empty())
    return std::string(names.hash) + " is set, and there is no cache that could have a hash: set " + names.cache;
  return {};
}

std::string check_budget(double ms, const std::string& text, const Names& names) {
  if (ms > 0 && std::isfinite(ms)) return {};
  return std::string(names.budget) + " is `" + text + "`: it must be a number of milliseconds above 0";
}

std::string read_mode(const std::string& text, TuneMode& mode) {
  if (text == "off")
    mode = TuneMode::off;
  else if (text == "first_use")
    mode = TuneMode::first_use;
  else if (text == "read_only")
    mode = TuneMode::read_only;
  else
    return std::string(kVariables.mode) + " is `" + text + "`: it must be off, first_use or read_only, or unset";
  return {};
}

}  // namespace

std::string read_tune_options(const std::function<const char*(const char*)>& get, TuneOptions& options) {
  const auto value_of = [&](const char* name) {
    const char* value = get(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string mode = value_of(kVariables.mode);
  const std::string budget = value_of(kVariables.budget);
  options.cache = value_of(kVariables.cache);
  options.hash = value_of(kVariables.hash);
  if (mode.empty()) {
    for (const char* name : {kVariables.cache, kVariables.budget, kVariables.hash})
      if (!value_of(name).empty())
        return std::string(name) + " is set and " + kVariables.mode +
               " is not: set it to first_use or read_only, or to off";
    return {};
  }
  if (std::string error = read_mode(mode, options.mode); !error.empty()) return error;
  if (!budget.empty()) {
    const char* end = budget.data() + budget.size();
    const auto [stop, code] = std::from_chars(budget.data(), end, options.budget_ms);
    if (code != std::errc() || stop != end) options.budget_ms = 0;
    if (std::string error = check_budget(options.budget_ms, budget, kVariables); !error.empty()) return error;
  }
  return violation(options, kVariables);
}

std::string read_tune_options(const flashdma_bwd_tuning& tuning, TuneOptions& options) {
  if (tuning.mode < FLASHDMA_BWD_TUNE_OFF || tuning.mode > FLASHDMA_BWD_TUNE_READ_ONLY)
    return "tuning.mode is " + std::to_string(tuning.mode) + ": it must be one of flashdma_bwd_tune_mode";
  options.mode = static_cast<TuneMode>(tuning.mode);
  options.cache = tuning.cache == nullptr ? "" : tuning.cache;
  options.hash = tuning.hash == nullptr ? "" : tuning.hash;
  if (tuning.budget_ms != 0) options.budget_ms = tuning.budget_ms;
  if (std::string error = check_budget(options.budget_ms, std::to_string(tuning.budget_ms), kFields); !error.empty())
    return error;
  return violation(options, kFields);
}

}  // namespace flashdma_bwd
