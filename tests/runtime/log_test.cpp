// What the library says on stderr, and how often.
#include "log.hpp"

#include <string>

#include "captured_stderr.hpp"
#include "support/catch.hpp"
#include "tables.hpp"
#include "tune_cache/choice_table.hpp"

namespace flashdma_bwd::testing {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// What a launch of the ordinary problem says at a level, of so many sequences and with a window if one is given.
std::string said(LogLevel level, const DispatchTable& table, const DeviceTraits& device, std::int64_t batch = 2,
                 std::int64_t window = 0) {
  Environment environment;
  environment.log = level;
  Request request{ordinary_problem(), device, {}, false};
  request.problem.batch = batch;
  request.problem.causal = window != 0;
  request.problem.window = window;
  Resolution resolution;
  REQUIRE_FALSE(resolve(table, environment, request, resolution));
  return captured_stderr([&] { log_resolution(environment, request, resolution); });
}

}  // namespace

TEST_CASE("a lower tier is told of once for each tier, unless the log is off") {
  const PretendedBuild build(set_of({Architecture::sm80, Architecture::sm86}));
  const DispatchTable& table = build.table();
  CHECK(said(LogLevel::off, table, kRtx4090).empty());
  const std::string first = said(LogLevel::warning, table, kRtx4090);
  INFO(first);
  CHECK(contains(first, "flashdma_bwd: warning: compute capability 8.9"));
  CHECK(contains(first, "those of sm86 run (tier 1)"));
  CHECK(said(LogLevel::warning, table, kRtx4090, 3).empty());
  CHECK(contains(said(LogLevel::warning, table, kH100), "PTX of sm80"));
  CHECK(said(LogLevel::warning, table, kH100).empty());
  CHECK(said(LogLevel::warning, table, kA100).empty());
  CHECK(said(LogLevel::warning, table, kRtx3090).empty());
}

TEST_CASE("at level info each problem's kernel is told once") {
  const PretendedBuild build;
  const std::string first = said(LogLevel::info, build.table(), kA100, 5);
  INFO(first);
  CHECK(contains(first, "flashdma_bwd: info: bwd_sm80_d128_bf16_"));
  CHECK(contains(first, "batch 5"));
  CHECK(contains(first, "configs/tables/sm80.yaml:"));
  CHECK(said(LogLevel::info, build.table(), kA100, 5).empty());
  CHECK(contains(said(LogLevel::info, build.table(), kA100, 6), "batch 6"));
  CHECK(contains(said(LogLevel::info, build.table(), kA100, 6, 300), "window of 300 queries a key"));
  CHECK(contains(said(LogLevel::info, build.table(), kA100, 6, 200), "window of 200 queries a key"));
  CHECK(said(LogLevel::info, build.table(), kA100, 6, 300).empty());
}

TEST_CASE("at level info the Ampere family on Hopper is told with its row's reason, once for each row") {
  const PretendedBuild build;
  Environment environment;
  const auto said_of = [&](const DeviceTraits& device, BiasKind bias, bool softcap, std::int64_t batch,
                           int head_dim = 128) {
    Request request{ordinary_problem(), device, {}, false};
    request.problem.bias = bias;
    request.problem.softcap = softcap;
    request.problem.head_dim = head_dim;
    request.problem.batch = batch;
    Resolution resolution;
    REQUIRE_FALSE(resolve(build.table(), environment, request, resolution));
    return captured_stderr([&] { log_resolution(environment, request, resolution); });
  };
  CHECK(said_of(kH100, BiasKind::tile, true, 21).empty());
  environment.log = LogLevel::info;
  const std::string first = said_of(kH100, BiasKind::tile, true, 22);
  INFO(first);
  CHECK(contains(first, "flashdma_bwd: info: bwd_sm90_d128_bf16_ampere_"));
  CHECK(contains(first, " runs the ampere family, not the hopper family: tensor copies cannot move this bias"));
  const std::string second = said_of(kH100, BiasKind::tile, true, 23);
  CHECK(contains(second, "batch 23"));
  CHECK_FALSE(contains(second, "family"));
  CHECK(contains(said_of(kH100, BiasKind::tile, false, 22, 256), "family: tensor copies cannot move this bias"));
  // A Hopper kernel, and GPUs that have the Ampere family alone.
  CHECK_FALSE(contains(said_of(kH100, BiasKind::key_vector, true, 22), "family"));
  CHECK_FALSE(contains(said_of(kA100, BiasKind::tile, true, 22), "family"));
}

TEST_CASE("a lower tier that the cache prefers is no reason to warn, one without a choice is") {
  const PretendedBuild build(set_of({Architecture::sm80}));
  const Environment environment;
  const Request request{ordinary_problem(), kOrin, {}, false};
  Resolution resolution;
  REQUIRE_FALSE(resolve(build.table(), environment, request, resolution));
  TunedChoice choice;
  resolution.decision = Decision::cache;
  resolution.row = nullptr;
  resolution.tuned = &choice;
  CHECK(captured_stderr([&] { log_resolution(environment, request, resolution); }).empty());
  resolution.table_tier = resolution.tier;
  CHECK(contains(captured_stderr([&] { log_resolution(environment, request, resolution); }),
                 "those of sm80 run (tier 2)"));
}

TEST_CASE("what the cache chose is told with its line") {
  const PretendedBuild build;
  Environment environment;
  environment.log = LogLevel::info;
  Request request{ordinary_problem(), kA100, {}, false};
  request.problem.batch = 77;
  Resolution resolution;
  REQUIRE_FALSE(resolve(build.table(), environment, request, resolution));
  TunedChoice choice;
  choice.line = 12;
  resolution.decision = Decision::cache;
  resolution.row = nullptr;
  resolution.tuned = &choice;
  resolution.cache_file = "cache.jsonl";
  CHECK(contains(captured_stderr([&] { log_resolution(environment, request, resolution); }),
                 "; chosen by cache.jsonl:12\n"));
}

TEST_CASE("a log level that cannot be read is told once") {
  const PretendedBuild build;
  Environment environment;
  environment.log_error = "FLASHDMA_BWD_LOG is wrong";
  const Request request{ordinary_problem(), kA100, {}, false};
  Resolution resolution;
  REQUIRE_FALSE(resolve(build.table(), environment, request, resolution));
  const auto say = [&] { log_resolution(environment, request, resolution); };
  CHECK(captured_stderr(say) == "flashdma_bwd: warning: FLASHDMA_BWD_LOG is wrong\n");
  CHECK(captured_stderr(say).empty());
}

}  // namespace flashdma_bwd::testing
