// Which configuration wins, what is measured within a budget, and which configurations take part.
#include "tune_cache/race.hpp"

#include <algorithm>
#include <set>

#include "fake_timer.hpp"
#include "selection/configuration_name.hpp"
#include "support/catch.hpp"
#include "tables.hpp"

namespace flashdma_bwd::testing {
namespace {

constexpr double kPlenty = 1e9;

/// Candidates with names from a list, of which the first is the incumbent.
struct Field {
  explicit Field(const std::vector<std::string_view>& names) {
    for (const std::string_view name : names) kernels.push_back({name, {}});
    for (const KernelEntry& kernel : kernels) candidates.push_back({&kernel});
  }
  std::vector<KernelEntry> kernels;
  std::vector<Candidate> candidates;
};

Race raced(const Field& field, double budget_ms, FakeTimer& timer) {
  Race race;
  const Check failure = run_race(field.candidates, budget_ms, timer, race);
  INFO((failure ? failure->message : ""));
  REQUIRE_FALSE(failure);
  REQUIRE_FALSE(race.measured.empty());
  return race;
}

std::string winner(const Race& race) {
  return std::string(race.measured.front().candidate.kernel->name);
}

Request request_on(const DeviceTraits& device, const Problem& problem) {
  return {problem, device, {}, false};
}
std::vector<Candidate> candidates_on(const DispatchTable& table, const Request& request) {
  Resolution resolution;
  REQUIRE_FALSE(resolve(table, Environment(), request, resolution));
  const std::vector<Candidate> candidates = candidates_for(table, request, resolution);
  REQUIRE(candidates.front().kernel == resolution.kernel);
  return candidates;
}

}  // namespace

TEST_CASE("the fastest wins and the others follow in the order of their times") {
  const Field field({"incumbent", "slow", "fast", "middle"});
  FakeTimer timer;
  timer.fixed_ms = {{"incumbent", 10}, {"slow", 11}, {"fast", 8}, {"middle", 9}};
  const Race race = raced(field, kPlenty, timer);
  REQUIRE(race.measured.size() == 4);
  CHECK(winner(race) == "fast");
  CHECK(race.measured[0].ms == 8);
  CHECK(race.measured[0].spread_ms == 0);
  CHECK(race.measured[1].candidate.kernel->name == "middle");
  CHECK(race.measured[3].candidate.kernel->name == "slow");
  CHECK(timer.order.front() == "incumbent");
  CHECK(timer.prepared == std::vector<std::string>{"incumbent", "slow", "fast", "middle"});
}

TEST_CASE("configurations are sampled in turns") {
  const Field field({"one", "two"});
  FakeTimer timer;
  raced(field, kPlenty, timer);
  REQUIRE(timer.order.size() == 20);
  CHECK(std::vector<std::string>(timer.order.begin(), timer.order.begin() + 8) ==
        std::vector<std::string>{"one", "one", "two", "two", "one", "two", "one", "two"});
}

TEST_CASE("a configuration that is alone is run no more than it takes to have a time") {
  const Field field({"one"});
  FakeTimer timer;
  const Race race = raced(field, kPlenty, timer);
  CHECK(race.measured.size() == 1);
  CHECK(race.measured[0].ms == 10);
  CHECK(timer.all_runs() == 2);
}

TEST_CASE("the incumbent stays where another is faster by no more than noise") {
  const Field field({"incumbent", "other"});
  FakeTimer timer;
  timer.fixed_ms = {{"incumbent", 10}, {"other", 9.95}};
  CHECK(winner(raced(field, kPlenty, timer)) == "incumbent");
  // The samples of either differ by more than their medians do.
  timer.fixed_ms = {{"other", 9}};
  timer.ms_of = [](const std::string&, int run) { return run % 2 == 0 ? 8.0 : 11.0; };
  const Race race = raced(field, kPlenty, timer);
  CHECK(winner(race) == "incumbent");
  CHECK(race.measured.front().spread_ms == 3);
  CHECK(race.measured[1].candidate.kernel->name == "other");
  // And by more: it goes.
  timer.ms_of = [](const std::string&, int run) { return run % 2 == 0 ? 12.9 : 13.1; };
  CHECK(winner(raced(field, kPlenty, timer)) == "other");
}

TEST_CASE("the first run of a kernel does not count") {
  const Field field({"incumbent", "other"});
  FakeTimer timer;
  timer.ms_of = [](const std::string& name, int run) { return run == 0 ? 20.0 : name == "other" ? 8.0 : 10.0; };
  const Race race = raced(field, kPlenty, timer);
  CHECK(winner(race) == "other");
  CHECK(race.measured[0].ms == 8);
  CHECK(race.measured[0].spread_ms == 0);
}

TEST_CASE("what cannot win is run no more than it takes to know") {
  const Field field({"incumbent", "hopeless", "behind"});
  FakeTimer timer;
  timer.fixed_ms = {{"incumbent", 10}, {"hopeless", 40}, {"behind", 14}};
  const Race race = raced(field, kPlenty, timer);
  CHECK(race.measured.size() == 2);
  CHECK(timer.runs["hopeless"] == 1);
  CHECK(timer.runs["behind"] == 2);
  CHECK(timer.runs["incumbent"] == 10);
}

TEST_CASE("what the budget has no room for is not measured and not chosen") {
  const Field field({"incumbent", "a", "b", "best"});
  for (double budget_ms = 1; budget_ms < 200; budget_ms += 1) {
    FakeTimer timer;
    timer.fixed_ms = {{"incumbent", 10}, {"a", 9}, {"b", 9.5}, {"best", 1}};
    const double begin = timer.clock_ms;
    const Race race = raced(field, budget_ms, timer);
    const double spent = timer.clock_ms - begin;
    INFO(budget_ms << " " << spent);
    CHECK(spent <= std::max(budget_ms, 20.0));
    for (const Contestant& contestant : race.measured)
      CHECK(timer.runs.count(std::string(contestant.candidate.kernel->name)) == 1);
    if (timer.runs.count("best") == 0) CHECK(winner(race) != "best");
    if (budget_ms < 30) CHECK(timer.all_runs() == 2);
    if (budget_ms >= 100) CHECK(winner(race) == "best");
  }
}

TEST_CASE("a kernel that is slower than expected goes over the budget by its own time only") {
  const Field field({"incumbent", "slow", "other"});
  FakeTimer timer;
  timer.fixed_ms = {{"slow", 500}};
  const double begin = timer.clock_ms;
  raced(field, 60, timer);
  CHECK(timer.clock_ms - begin <= 60 + 500);
  CHECK(timer.runs["slow"] == 1);
  CHECK(timer.runs.count("other") == 0);
}

TEST_CASE("loading kernels counts") {
  const Field field({"incumbent", "a", "b", "c"});
  FakeTimer timer;
  timer.prepare_ms = 100;
  const Race race = raced(field, 250, timer);
  CHECK(timer.prepared.size() == 2);
  CHECK(race.measured.size() == 2);
}

TEST_CASE("a kernel that cannot run is passed over, unless it is the table's choice") {
  const Field field({"incumbent", "broken", "fast"});
  FakeTimer timer;
  timer.fixed_ms = {{"fast", 5}};
  timer.failing = {{"broken", "main kernel failed"}};
  const Race race = raced(field, kPlenty, timer);
  CHECK(winner(race) == "fast");
  CHECK(race.measured.size() == 2);
  CHECK(race.failures == std::vector<std::string>{"broken: main kernel failed"});
  timer.failing = {{"incumbent", "main kernel failed"}};
  Race none;
  const Check failure = run_race(field.candidates, kPlenty, timer, none);
  REQUIRE(failure);
  CHECK(failure->message == "main kernel failed");
  CHECK(none.measured.empty());
}

TEST_CASE("candidates are the table's choice and every other kernel that serves the problem, each once") {
  const PretendedBuild build;
  ProblemSource source(31);
  int several = 0;
  for (const DeviceTraits& device : {kA100, kRtx3090, kOrin, kRtx4090, kH100, kB200})
    for (int i = 0; i < 100; ++i) {
      const Request request = request_on(device, source.next());
      const std::vector<Candidate> candidates = candidates_on(build.table(), request);
      std::vector<TileConfig> tiles;
      for (const Candidate& candidate : candidates) {
        const KernelConfig& config = candidate.kernel->config;
        REQUIRE(why_not_served(config, request.problem, device).empty());
        REQUIRE(candidate.form == candidates.front().form);
        REQUIRE(candidate.form == *code_form(config.architecture, device.compute_capability));
        REQUIRE(candidate.tier == tier_of(config.architecture, device.compute_capability));
        REQUIRE(std::find(tiles.begin(), tiles.end(), config.tile) == tiles.end());
        tiles.push_back(config.tile);
      }
      // Whatever is left out has a tile that takes part, or does not serve, or has no machine code.
      for (const KernelEntry& kernel : build.table().kernels)
        if (std::find(tiles.begin(), tiles.end(), kernel.config.tile) == tiles.end() &&
            why_not_served(kernel.config, request.problem, device).empty())
          REQUIRE((code_form(kernel.config.architecture, device.compute_capability) != candidates.front().form ||
                   candidates.front().form == CodeForm::ptx));
      several += candidates.size() > 1 ? 1 : 0;
    }
  CHECK(several > 200);
}

TEST_CASE("where the table's choice is PTX the candidates are of its architecture") {
  const PretendedBuild build;
  const std::vector<Candidate> candidates = candidates_on(build.table(), request_on(kB200, ordinary_problem()));
  CHECK(candidates.size() > 1);
  for (const Candidate& candidate : candidates) {
    CHECK(candidate.form == CodeForm::ptx);
    CHECK(candidate.kernel->config.architecture == Architecture::sm80);
  }
}

}  // namespace flashdma_bwd::testing
