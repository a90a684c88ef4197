// Records as lines: symmetric, and what is refused by name.
#include "tune_cache/cache_record.hpp"

#include "cache_samples.hpp"
#include "support/catch.hpp"

namespace flashdma_bwd::testing {
namespace {

/// The line of the sample with `from` replaced by `to`.
std::string changed(const std::string& from, const std::string& to) {
  std::string line = record_text(sample_record(ordinary_problem()));
  const std::size_t at = line.find(from);
  INFO(line << "\n" << from);
  REQUIRE(at != std::string::npos);
  return line.replace(at, from.size(), to);
}

void check_refused(const std::string& line, const std::string& reason) {
  const Parsed<CacheRecord> parsed = parse_record(line);
  INFO(line << '\n' << parsed.error);
  CHECK_FALSE(parsed);
  CHECK(parsed.error.find(reason) != std::string::npos);
}

}  // namespace

TEST_CASE("a record's line is the documented one") {
  CacheRecord record = sample_record(ordinary_problem());
  record.kernel = "bwd_sm90_d128_bf16_ampere_m64n64_w8_s4_kv4_dq2_q1_do1_nobias";
  record.runner_up = "";
  record.measured = record.feasible = 1;
  CHECK(record_text(record) ==
        R"({"version":1,"compute_capability":90,"sm_count":132,"table_hash":"0123456789abcdef","toolkit":"13.0",)"
        R"("problem":"bf16 d=128 b=2 h=16 hk=4 sq=4096 sk=4096",)"
        R"("kernel":"bwd_sm90_d128_bf16_ampere_m64n64_w8_s4_kv4_dq2_q1_do1_nobias","ms":1.25,"spread_ms":0.0625,)"
        R"("measured":1,"feasible":1,"date":"2026-01-31T12:00:00Z"})");
}

TEST_CASE("records are read as they were written") {
  ProblemSource source(11);
  for (int i = 0; i < 500; ++i) {
    CacheRecord record = sample_record(source.next());
    record.ms = static_cast<double>(1 + source.below(1 << 20)) / 977;
    if (i % 3 == 0) {
      record.runner_up.clear();
      record.runner_up_ms = 0;
    }
    const Parsed<CacheRecord> parsed = parse_record(record_text(record));
    INFO(record_text(record) << '\n' << parsed.error);
    REQUIRE(parsed);
    CHECK(*parsed.value == record);
  }
}

TEST_CASE("members may stand in any order") {
  const CacheRecord record = sample_record(ordinary_problem());
  std::string line = record_text(record);
  line = "{\"date\":\"" + record.date + "\"," + line.substr(1, line.rfind(",\"date\"") - 1) + "}";
  const Parsed<CacheRecord> parsed = parse_record(line);
  INFO(line << '\n' << parsed.error);
  REQUIRE(parsed);
  CHECK(*parsed.value == record);
}

TEST_CASE("what is wrong with a record is told by name") {
  check_refused(changed("\"sm_count\"", "\"sm_counts\""),
                "`sm_counts` is no part of a record, did you mean `sm_count`?");
  check_refused(changed("\"sm_count\":132,", ""), "`sm_count` is missing");
  check_refused(changed("\"sm_count\":132", "\"sm_count\":\"132\""), "sm_count: it must be a number, without quotes");
  check_refused(changed("\"toolkit\":\"13.0\"", "\"toolkit\":13.0"), "toolkit: it must be a string");
  check_refused(changed("\"13.0\"", "\"13\""), "toolkit: `13` is no version such as `13.0`");
  check_refused(changed("132", "0"), "sm_count: `0` is no number above 0");
  check_refused(changed("132", "99999999999"), "sm_count: `99999999999` is no number above 0");
  check_refused(changed("132", "-1"), "sm_count: `-1` is no number above 0");
  check_refused(changed("0123456789abcdef", "0123456789ABCDEF"), "table_hash: ");
  check_refused(changed("d=128", "d=127"), "problem: d: `127` is no multiple of 8");
  check_refused(changed("bf16 d=128", "bf16 d=64"), "does not serve `bf16 d=64");
  check_refused(changed("_d128_", "_d129x_"), "kernel: `bwd_sm90_d129x_");
  check_refused(changed("\"ms\":1.25", "\"ms\":0"), "ms: `0` is no number of milliseconds");
  check_refused(changed("\"ms\":1.25", "\"ms\":-1"), "ms: `-1` is no number of milliseconds");
  check_refused(changed("\"ms\":1.25", "\"ms\":1e999"), "ms: `1e999` is no number of milliseconds");
  check_refused(changed(",\"runner_up_ms\":1.5", ""), "`runner_up` and `runner_up_ms` are given together");
  check_refused(changed("\"measured\":12", "\"measured\":15"), "`measured` is larger than `feasible`");
  check_refused(changed("2026-01-31T", "yesterday "), "date: ");
  check_refused(changed("\"version\":1", "\"version\":2"), "version 2: this library reads version 1");
  check_refused("no record", "column 1: expected `{`");
}

TEST_CASE("a line's version is known whatever follows") {
  CHECK(version_of(R"({"version":1,"problem":"x"})") == 1);
  CHECK(version_of(R"({"version":2,"nested":{"a":[1]}})") == 2);
  CHECK(version_of(R"({"version":2})") == 2);
  CHECK(version_of(R"({"version":2.5})") == 0);
  CHECK(version_of(R"({"version":)") == 0);
  CHECK(version_of(R"({"problem":"x","version":1})") == 0);
  CHECK(version_of("") == 0);
}

}  // namespace flashdma_bwd::testing
