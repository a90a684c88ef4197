// What a run is reported as: the layout of a mask's plan, the tiles that a plan promises, and nothing that is not
// known.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "report.hpp"
#include "report/results_file.hpp"
#include "support/catch.hpp"

namespace flashdma_bwd::bench {
namespace {

Result masked_result() {
  Result result;
  std::string error;
  REQUIRE(parse_problem("b=1 h=2 d=64 s=4096 causal mask=topw:512", result.problem, error));
  result.kernel = "bwd_x";
  result.row = "t.yaml:7";
  result.ms = 2;
  result.fastest_ms = 1.5;
  result.samples = 20;
  result.active_fraction = 0.1;
  result.layout = "reordered";
  return result;
}

PlanSummary summary() {
  PlanSummary summary{};
  summary.masks = 2;
  summary.reordered_masks = 1;
  summary.all_tiles = 4096;
  summary.natural_tiles = 3000;
  summary.predicted_tiles = 700;
  return summary;
}

nlohmann::json written(const Result& result) {
  const std::string text = json({}, {result});
  // The report reads it, too.
  std::vector<std::string> errors;
  const ResultsFile file = read_results(text, "out.json", errors);
  CHECK(errors.empty());
  CHECK(file.measurements.size() == 1);
  return nlohmann::json::parse(text)["results"][0];
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a masked problem shows its layout without a plan, too") {
  Result result = masked_result();
  CHECK(contains(table({result}), "\n  reordered plan in each call\n"));
  const nlohmann::json entry = written(result);
  CHECK(entry["layout"] == "reordered");
  CHECK_FALSE(entry.contains("plan"));
  result.layout.clear();
  CHECK_FALSE(contains(table({result}), "plan"));
  CHECK_FALSE(written(result).contains("layout"));
}

TEST_CASE("a plan that was built once shows its tiles and no times") {
  Result result = masked_result();
  result.plan = PlanFound{"reordered", 2, summary()};
  const std::string text = table({result});
  INFO(text);
  CHECK(
      contains(text, "\n  reordered plan, 1 of 2 masks reordered, tiles: 4096, natural 3000, predicted at most 700\n"));
  const nlohmann::json plan = written(result)["plan"];
  CHECK(plan == nlohmann::json::parse(R"({"layout": "reordered", "masks": 2, "reordered_masks": 1, "all_tiles": 4096,
                                          "natural_tiles": 3000, "predicted_tiles": 700})"));
}

TEST_CASE("a plan that was timed shows its times, and no tiles where it counts none") {
  Result result = masked_result();
  result.layout = "natural";
  result.plan = PlanFound{"natural", 2, std::nullopt};
  result.plan_ms = 0.25;
  result.planned_ms = 1.75;
  const std::string text = table({result});
  INFO(text);
  CHECK(contains(text, "\n  natural plan 0.2500 ms, backward with it 1.7500 ms\n"));
  CHECK(written(result)["plan"] ==
        nlohmann::json::parse(R"({"layout": "natural", "ms": 0.25, "planned_ms": 1.75, "masks": 2})"));
  result.schedule_ms = 0.125;
  CHECK(
      contains(table({result}), "\n  natural plan 0.2500 ms, its schedule 0.1250 ms, backward with both 1.7500 ms\n"));
  CHECK(written(result)["plan"] ==
        nlohmann::json::parse(
            R"({"layout": "natural", "ms": 0.25, "schedule_ms": 0.125, "planned_ms": 1.75, "masks": 2})"));
}

}  // namespace flashdma_bwd::bench
