// The options of tuning, from the environment and from the API's struct: what is read and what is refused.
#include "tune_cache/tune_options.hpp"

#include <limits>
#include <map>

#include "support/catch.hpp"

namespace flashdma_bwd::testing {
namespace {

struct Read {
  TuneOptions options;
  std::string error;
};
Read from_variables(const std::map<std::string, std::string>& values) {
  Read read;
  read.error = read_tune_options(
      [&](const char* name) { return values.count(name) != 0 ? values.at(name).c_str() : nullptr; }, read.options);
  return read;
}
Read from_struct(std::int32_t mode, const char* cache, double budget_ms, const char* hash) {
  Read read;
  read.error = read_tune_options({sizeof(flashdma_bwd_tuning), mode, cache, budget_ms, hash}, read.options);
  return read;
}

bool begins(const Read& read, const std::string& with) {
  INFO(read.error);
  CHECK(read.error.find(with) == 0);
  return read.error.find(with) == 0;
}

}  // namespace

TEST_CASE("without variables, and with empty ones, nothing is tuned") {
  for (const auto& values : {std::map<std::string, std::string>{}, {{"FLASHDMA_BWD_TUNE_MODE", ""}}}) {
    const Read read = from_variables(values);
    CHECK(read.error.empty());
    CHECK(read.options.mode == TuneMode::off);
  }
  CHECK(from_variables({{"FLASHDMA_BWD_TUNE_MODE", "off"}, {"FLASHDMA_BWD_TUNE_CACHE", "file"}}).error.empty());
}

TEST_CASE("variables are read") {
  const Read read = from_variables({{"FLASHDMA_BWD_TUNE_MODE", "first_use"},
                                    {"FLASHDMA_BWD_TUNE_CACHE", "a/cache.jsonl"},
                                    {"FLASHDMA_BWD_TUNE_BUDGET_MS", "12.5"}});
  CHECK(read.error.empty());
  CHECK(read.options.mode == TuneMode::first_use);
  CHECK(read.options.cache == "a/cache.jsonl");
  CHECK(read.options.budget_ms == 12.5);
  CHECK(read.options.hash.empty());
  const Read other = from_variables({{"FLASHDMA_BWD_TUNE_MODE", "read_only"},
                                     {"FLASHDMA_BWD_TUNE_CACHE", "c"},
                                     {"FLASHDMA_BWD_TUNE_HASH", "0123456789abcdef"}});
  CHECK(other.error.empty());
  CHECK(other.options.mode == TuneMode::read_only);
  CHECK(other.options.budget_ms == kDefaultBudgetMs);
  CHECK(other.options.hash == "0123456789abcdef");
}

TEST_CASE("variables that cannot be honoured are refused by name") {
  CHECK(begins(from_variables({{"FLASHDMA_BWD_TUNE_MODE", "always"}}),
               "FLASHDMA_BWD_TUNE_MODE is `always`: it must be off, first_use or read_only"));
  CHECK(begins(from_variables({{"FLASHDMA_BWD_TUNE_MODE", "read_only"}}),
               "FLASHDMA_BWD_TUNE_MODE is read_only, and there is no cache to read: set FLASHDMA_BWD_TUNE_CACHE"));
  CHECK(begins(from_variables({{"FLASHDMA_BWD_TUNE_CACHE", "c"}}),
               "FLASHDMA_BWD_TUNE_CACHE is set and FLASHDMA_BWD_TUNE_MODE is not"));
  CHECK(begins(from_variables({{"FLASHDMA_BWD_TUNE_BUDGET_MS", "1"}}), "FLASHDMA_BWD_TUNE_BUDGET_MS is set and "));
  CHECK(begins(from_variables({{"FLASHDMA_BWD_TUNE_HASH", "0123456789abcdef"}}), "FLASHDMA_BWD_TUNE_HASH is set and "));
  for (const char* budget : {"0", "-1", "nan", "inf", "fast", "1s", " 1", "1e999"})
    CHECK(begins(
        from_variables({{"FLASHDMA_BWD_TUNE_MODE", "first_use"}, {"FLASHDMA_BWD_TUNE_BUDGET_MS", budget}}),
        "FLASHDMA_BWD_TUNE_BUDGET_MS is `" + std::string(budget) + "`: it must be a number of milliseconds above 0"));
  for (const char* hash : {"0123456789abcde", "0123456789abcdef0", "0123456789ABCDEF", "0123456789abcdeg"})
    CHECK(begins(from_variables({{"FLASHDMA_BWD_TUNE_MODE", "read_only"},
                                 {"FLASHDMA_BWD_TUNE_CACHE", "c"},
                                 {"FLASHDMA_BWD_TUNE_HASH", hash}}),
                 "FLASHDMA_BWD_TUNE_HASH is `" + std::string(hash) + "`: it must be 16 hexadecimal digits"));
  CHECK(
      begins(from_variables({{"FLASHDMA_BWD_TUNE_MODE", "first_use"}, {"FLASHDMA_BWD_TUNE_HASH", "0123456789abcdef"}}),
             "FLASHDMA_BWD_TUNE_HASH is set, and there is no cache that could have a hash"));
}

TEST_CASE("the struct is read, and refused by its fields") {
  const Read read = from_struct(FLASHDMA_BWD_TUNE_READ_ONLY, "c", 0, "0123456789abcdef");
  CHECK(read.error.empty());
  CHECK(read.options.mode == TuneMode::read_only);
  CHECK(read.options.budget_ms == kDefaultBudgetMs);
  CHECK(read.options.hash == "0123456789abcdef");
  CHECK(from_struct(FLASHDMA_BWD_TUNE_FIRST_USE, nullptr, 3, nullptr).error.empty());
  CHECK(begins(from_struct(3, nullptr, 0, nullptr), "tuning.mode is 3: "));
  CHECK(begins(from_struct(-1, nullptr, 0, nullptr), "tuning.mode is -1: "));
  CHECK(begins(from_struct(FLASHDMA_BWD_TUNE_READ_ONLY, "", 0, nullptr), "tuning.mode is read_only, and there is no"));
  CHECK(begins(from_struct(FLASHDMA_BWD_TUNE_FIRST_USE, "c", -1, nullptr), "tuning.budget_ms is `"));
  CHECK(begins(from_struct(FLASHDMA_BWD_TUNE_FIRST_USE, "c", std::numeric_limits<double>::quiet_NaN(), nullptr),
               "tuning.budget_ms is `"));
  CHECK(begins(from_struct(FLASHDMA_BWD_TUNE_FIRST_USE, "c", 1, "short"), "tuning.hash is `short`"));
}

}  // namespace flashdma_bwd::testing
