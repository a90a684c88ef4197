// What results come to: shares, groups in the order of what there is to gain, ceilings and where they come from.
#include "report/analysis.hpp"

#include "results_of.hpp"

using namespace flashdma_bwd::bench;
using namespace flashdma_bwd::bench::test;

namespace {

// 10 * 1024 * 1024 * 64 operations: at 1 TFLOP/s a floor of 0.67108864 ms.
constexpr const char* kDense = "b=1 h=1 d=64 s=1024";
constexpr double kFloorMs = 0.67108864;
const Ceilings kOneTeraflop{1, 0, "given", ""};

}  // namespace

TEST_CASE("shares and distances to the floor add up") {
  const std::vector<ResultsFile> files{
      results_file({measurement(kDense, "slow", "t.yaml:1", 3), measurement(kDense, "fast", "t.yaml:2", 1),
                    measurement(kDense, "slow", "t.yaml:1", 6)})};
  const std::vector<Analysis> analyses = analyse(files, kOneTeraflop);
  REQUIRE(analyses.size() == 1);
  const Analysis& analysis = analyses[0];
  CHECK(analysis.total_ms == Approx(10));
  CHECK(analysis.entries[0].share == Approx(0.3));
  CHECK(analysis.entries[0].achieved() == Approx(kFloorMs / 3));
  CHECK(analysis.entries[1].teraflops() == Approx(kFloorMs));
  REQUIRE(analysis.rows.size() == 2);
  CHECK(analysis.rows[0].name == "t.yaml:1");
  CHECK(analysis.rows[0].count == 2);
  CHECK(analysis.rows[0].share == Approx(0.9));
  CHECK(analysis.rows[0].above_floor == Approx((9 - 2 * kFloorMs) / 10));
  CHECK(analysis.rows[0].farthest == &analysis.entries[2]);
  CHECK(analysis.rows[1].above_floor == Approx((1 - kFloorMs) / 10));
  REQUIRE(analysis.configurations.size() == 2);
  CHECK(analysis.configurations[0].name == "slow");
}

TEST_CASE("the row to tune first has the most time above its floors, not the largest share") {
  const std::vector<ResultsFile> files{
      results_file({measurement("b=4 h=1 d=64 s=1024", "near", "t.yaml:1", 4 * kFloorMs),
                    measurement(kDense, "far", "t.yaml:2", 2 * kFloorMs)})};
  const std::vector<Analysis> analyses = analyse(files, kOneTeraflop);
  const Analysis& analysis = analyses[0];
  CHECK(analysis.rows[0].name == "t.yaml:2");
  CHECK(analysis.rows[0].share < analysis.rows[1].share);
  CHECK(analysis.rows[1].above_floor == Approx(0).margin(1e-12));
}

TEST_CASE("a backward with its plan given is an entry without a share") {
  Measurement masked = measurement("b=1 h=1 d=64 s=1024 mask=topw:256", "k", "t.yaml:1", 2);
  masked.plan = PlanFigures{"reordered", 0.5, 1.5};
  const std::vector<ResultsFile> files{results_file({masked})};
  const std::vector<Analysis> analyses = analyse(files, kOneTeraflop);
  const Analysis& analysis = analyses[0];
  REQUIRE(analysis.entries.size() == 2);
  CHECK(analysis.entries[1].ms == 1.5);
  CHECK(analysis.entries[1].share == 0);
  CHECK(analysis.total_ms == 2);
  CHECK(analysis.rows[0].count == 1);
  // Without a counted fraction of active pairs it is the problem's own: w keys of 1024 for each query.
  CHECK(analysis.entries[0].floor.ms == Approx(kFloorMs / 4));
  REQUIRE(analysis.problems.size() == 1);
  CHECK(analysis.problems[0].own == &analysis.entries[0]);
  CHECK(analysis.problems[0].planned == &analysis.entries[1]);
}

TEST_CASE("what other backends need stands beside, and counts nowhere else") {
  const std::vector<ResultsFile> files{
      results_file({measurement(kDense, "k", "t.yaml:1", 2), other(kDense, "pytorch_flash", 5)}),
      results_file({measurement(kDense, "k", "t.yaml:1", 1.5), other(kDense, "pytorch_flash", 4)})};
  const std::vector<Analysis> analyses = analyse(files, kOneTeraflop);
  REQUIRE(analyses.size() == 1);
  const Analysis& analysis = analyses[0];
  CHECK(analysis.entries.size() == 2);
  REQUIRE(analysis.problems.size() == 1);
  CHECK(analysis.problems[0].own->ms == 1.5);
  REQUIRE(analysis.problems[0].others.size() == 1);
  CHECK(analysis.problems[0].others[0] == std::pair<std::string, double>("pytorch_flash", 4));
  CHECK(analysis.other_backends == std::vector<std::string>{"pytorch_flash"});
}

TEST_CASE("each GPU has an analysis and ceilings of its own") {
  const std::vector<ResultsFile> files{results_file({measurement(kDense, "k", "t.yaml:1", 2)}, "A"),
                                       results_file({measurement(kDense, "k", "t.yaml:1", 4)}, "B")};
  const std::vector<Analysis> analyses = analyse(files, {});
  REQUIRE(analyses.size() == 2);
  CHECK(analyses[0].ceilings.dense_tflops == Approx(kFloorMs / 2));
  CHECK(analyses[1].ceilings.dense_tflops == Approx(kFloorMs / 4));
  CHECK(analyses[1].entries[0].achieved() == Approx(1));
}

TEST_CASE("ceilings are given, else measured, else the fastest dense result's") {
  ResultsFile file = results_file({measurement(kDense, "k", "t.yaml:1", 2),
                                   measurement("b=1 h=1 d=64 s=1024 mask=topw:1024", "k", "t.yaml:1", 0.1)});
  Ceilings ceilings = ceilings_of({&file}, {});
  CHECK(ceilings.dense_tflops == Approx(kFloorMs / 2));  // not of the masked problem
  CHECK(contains(ceilings.dense_source, kDense));
  CHECK(ceilings.copy_gb_per_s == 0);

  file.ceilings = {0.2, 3000, "measured", "copied"};
  ceilings = ceilings_of({&file}, {});
  CHECK(ceilings.dense_tflops == 0.2);
  CHECK(ceilings.dense_source == "measured, some.json");
  CHECK(ceilings.copy_gb_per_s == 3000);
  CHECK(ceilings.copy_source == "copied, some.json");

  ceilings = ceilings_of({&file}, {7, 0, "given", ""});
  CHECK(ceilings.dense_tflops == 7);
  CHECK(ceilings.dense_source == "given");
  CHECK(ceilings.copy_gb_per_s == 3000);
}

TEST_CASE("failures are kept apart") {
  Measurement failed = measurement(kDense, "", "", 0);
  failed.failure = "out of memory";
  const std::vector<ResultsFile> files{results_file({failed})};
  const std::vector<Analysis> analyses = analyse(files, {});
  CHECK(analyses[0].entries.empty());
  CHECK(analyses[0].rows.empty());
  REQUIRE(analyses[0].failures.size() == 1);
  CHECK(analyses[0].failures[0].second->failure == "out of memory");
}
