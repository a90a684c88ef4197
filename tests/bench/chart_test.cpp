// Charts: axes, marks where they belong, hostile text, and the plot of time against density.
#include "report/chart.hpp"

#include <cmath>

#include "report/density_plot.hpp"
#include "results_of.hpp"

using namespace flashdma_bwd::bench;
using namespace flashdma_bwd::bench::test;

namespace {

Chart small_chart() {
  Chart chart;
  chart.title = "title";
  chart.x_label = "x";
  chart.y_label = "y";
  Series series;
  series.label = "series";
  series.color = 1;
  series.line = LineStyle::solid;
  series.shape = Shape::circle;
  series.marks = {{1, 1, "low"}, {100, 100, "high"}};
  chart.series.push_back(series);
  return chart;
}

const Series* find(const Chart& chart, const std::string& label) {
  for (const Series& series : chart.series)
    if (series.label == label) return &series;
  return nullptr;
}

std::vector<ResultsFile> density_files() {
  Measurement dense = measurement("b=1 h=2 d=64 s=1024 causal bias=key", "k", "r", 4);
  Measurement sparse = measurement("b=1 h=2 d=64 s=1024 causal bias=key mask=topw:64", "k", "r", 1);
  sparse.plan = PlanFigures{"reordered", 0.5, 0.75};
  Measurement fuller = measurement("b=1 h=2 d=64 s=1024 causal bias=key mask=topw:512", "k", "r", 3);
  return {results_file({fuller, dense, sparse}),
          results_file({other("b=1 h=2 d=64 s=1024 causal bias=key mask=topw:64", "another", 9)})};
}

}  // namespace

TEST_CASE("ticks enclose what is drawn, in steps of 1, 2 and 5") {
  CHECK(logarithmic_ticks(1, 100) == std::vector<double>{1, 2, 5, 10, 20, 50, 100});
  const std::vector<double> ticks = logarithmic_ticks(0.3, 0.45);
  REQUIRE(ticks.size() == 2);
  CHECK(ticks[0] == Approx(0.2));
  CHECK(ticks[1] == Approx(0.5));
  for (const double value : {1.0, 0.7, 1e-7, 5e9}) {
    const std::vector<double> around = logarithmic_ticks(value, value);
    REQUIRE(around.size() >= 2);
    CHECK(around.front() <= value);
    CHECK(around.back() >= value);
  }
}

TEST_CASE("ticks are written without exponents") {
  CHECK(tick_text(0.05) == "0.05");
  CHECK(tick_text(0.0001) == "0.0001");
  CHECK(tick_text(1) == "1");
  CHECK(tick_text(20000) == "20000");
}

TEST_CASE("marks lie between the axes, larger values to the right and further up") {
  const std::string text = chart_element(small_chart());
  // From the left axis and the bottom to the right end and the top below the legend.
  CHECK(contains(text, "<polyline points=\"62.0,370.0 738.0,64.0\" class=\"c-line c-1\"/>"));
  CHECK(contains(text, "<circle cx=\"62.0\" cy=\"370.0\" r=\"4\" class=\"c-mark c-1\"><title>low</title></circle>"));
  CHECK(contains(text, "class=\"c-tick\">100</text>"));
}

TEST_CASE("text of charts is escaped") {
  Chart chart = small_chart();
  chart.title = "<script>alert(1)</script>";
  chart.series[0].label = "a\"b&c";
  chart.series[0].marks[0].label = "</title><b>";
  for (const std::string& text : {chart_element(chart), chart_file(chart)}) {
    CHECK_FALSE(contains(text, "<script"));
    CHECK_FALSE(contains(text, "<b>"));
    CHECK(contains(text, "&lt;script&gt;alert(1)&lt;/script&gt;"));
    CHECK(contains(text, "a&quot;b&amp;c"));
  }
}

TEST_CASE("a chart's file stands by itself on an opaque ground") {
  const std::string text = chart_file(small_chart());
  CHECK(text.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK(contains(text, "<rect width=\"100%\" height=\"100%\" class=\"c-surface\"/>"));
  CHECK(contains(text, "@media (prefers-color-scheme:dark)"));
  CHECK(contains(text, "role=\"img\" aria-label=\"title\""));
}

TEST_CASE("time against density has a series of each kind") {
  const DensityPlot plot = density_plot(density_files(), {100, 1000, "", ""});
  REQUIRE(plot.error.empty());
  const Series* built = find(plot.chart, "N = 1024, plan built");
  REQUIRE(built != nullptr);
  REQUIRE(built->marks.size() == 2);
  // 64 keys for each query but the first 63, of the pairs that causality leaves.
  CHECK(built->marks[0].x == Approx(100 * (64.0 * 1024 - 64.0 * 63 / 2) / (1024.0 * 1025 / 2)));
  CHECK(built->marks[0].y == 1);
  CHECK(built->marks[1].y == 3);
  const Series* given = find(plot.chart, "plan given");
  REQUIRE(given != nullptr);
  CHECK(given->marks[0].y == 0.75);
  const Series* dense = find(plot.chart, "no mask, 4 ms");
  REQUIRE(dense != nullptr);
  CHECK(dense->marks.front().x == built->marks.front().x);
  CHECK(dense->marks.back().x == 100);
  CHECK(dense->marks.back().y == 4);
  const Series* another = find(plot.chart, "another");
  REQUIRE(another != nullptr);
  CHECK(another->line == LineStyle::none);
  CHECK(another->marks[0].y == 9);
  const Series* floor = find(plot.chart, "floor, plan given");
  REQUIRE(floor != nullptr);
  CHECK(floor->marks.back().x == Approx(100));
  CHECK(floor->marks.back().y == Approx(10.0 * 2 * 64 * (1024.0 * 1025 / 2) / 100e9));
}

TEST_CASE("without a ceiling there is no floor in the plot") {
  std::vector<ResultsFile> files = density_files();
  files[0].measurements.erase(files[0].measurements.begin() + 1);  // the dense one, which would be a ceiling
  const DensityPlot plot = density_plot(files, {});
  REQUIRE(plot.error.empty());
  CHECK(find(plot.chart, "floor, plan given") == nullptr);
  CHECK(find(plot.chart, "N = 1024, plan built") != nullptr);
}

TEST_CASE("results that do not make a plot of density are refused") {
  CHECK(contains(density_plot({results_file({measurement("b=1 h=2 d=64 s=1024", "k", "r", 1)})}, {}).error,
                 "no file has a time of this library with a mask"));
  CHECK(contains(density_plot({results_file({measurement("b=1 h=2 d=64 s=1024 mask=topw:8", "k", "r", 1),
                                             measurement("b=1 h=2 d=96 s=2048 mask=topw:8", "k", "r", 1)})},
                              {})
                     .error,
                 "differ in more than lengths and mask"));
  const Measurement masked = measurement("b=1 h=2 d=64 s=1024 mask=topw:8", "k", "r", 1);
  // Lines without a mask and points of others, too.
  for (const Measurement& another :
       {measurement("b=1 h=2 d=96 s=1024", "k", "r", 1), other("b=1 h=2 d=96 s=1024 mask=topw:8", "another", 1)})
    CHECK(contains(density_plot({results_file({masked, another})}, {}).error, "differ in more than lengths and mask"));
  CHECK(density_plot({results_file({masked}, "A"), results_file({masked}, "B")}, {}).error ==
        "the files are of several GPUs: A and B; plot one at a time");
}
