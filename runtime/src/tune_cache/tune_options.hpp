// Whether and how the library learns which configuration is the fastest: what flashdma_bwd_set_tuning and the
// environment say.
//
//     FLASHDMA_BWD_TUNE_MODE=off|first_use|read_only   see flashdma_bwd_tune_mode
//     FLASHDMA_BWD_TUNE_CACHE=<file>                   the cache's file
//     FLASHDMA_BWD_TUNE_BUDGET_MS=<milliseconds>       how long the first use of a problem may measure
//     FLASHDMA_BWD_TUNE_HASH=<16 hexadecimal digits>   the hash that the cache must have; it is frozen from the start
#pragma once

#include <flashdma_bwd/flashdma_bwd.h>

#include <cstdint>
#include <functional>
#include <string>

namespace flashdma_bwd {

enum class TuneMode : std::uint8_t { off, first_use, read_only };

inline constexpr double kDefaultBudgetMs = 1000;

struct TuneOptions {
  TuneMode mode = TuneMode::off;
  std::string cache;  ///< path; empty: in memory only
  double budget_ms = kDefaultBudgetMs;
  std::string hash;  ///< empty: any
};

/// Both return what is wrong, by the name of the variable or the field, or nothing.
std::string read_tune_options(const std::function<const char*(const char*)>& get, TuneOptions& options);
std::string read_tune_options(const flashdma_bwd_tuning& tuning, TuneOptions& options);

}  // namespace flashdma_bwd
