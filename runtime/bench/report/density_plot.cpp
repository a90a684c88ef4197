// The plot of time against density. See density_plot.hpp.
#include "report/density_plot.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "active_pairs.hpp"
#include "report/analysis.hpp"
#include "report/html.hpp"

namespace flashdma_bwd::bench {
namespace {

constexpr int kFloorPoints = 64;

/// What was timed with one number of keys.
struct Lengths {
  std::vector<const Entry*> masked, planned;
  const Entry* dense = nullptr;
  std::map<std::string, std::vector<const Measurement*>> others;  ///< by backend
};

double pairs_of(const Problem& problem) {
  return static_cast<double>(problem.seqlen_q) * static_cast<double>(problem.seqlen_k);
}

double visible_fraction(const Problem& problem) {
  return visible_pairs(problem) / pairs_of(problem);
}

double percent(const Problem& problem, const Measurement& measurement) {
  const double active = measurement.active_fraction.value_or(active_pairs(problem) / pairs_of(problem));
  return 100 * active / visible_fraction(problem);
}

std::string mark_label(const Measurement& measurement, double x, double ms) {
  return problem_text(measurement.problem) + formatted(": %.2f %%, ", x) + formatted("%.4f ms", ms);
}

Mark mark_of(const Measurement& measurement, double ms) {
  const double x = percent(measurement.problem, measurement);
  return {x, ms, mark_label(measurement, x, ms)};
}

// What must be alike for times to lie on one line; a bias may differ, for without a mask there is less use for it.
bool alike(const Problem& a, const Problem& b) {
  return a.batch == b.batch && a.heads == b.heads && a.heads_kv == b.heads_kv && a.head_dim == b.head_dim &&
         a.bf16 == b.bf16 && a.causal == b.causal && a.deterministic == b.deterministic;
}

bool is_masked(const Measurement& measurement) {
  return measurement.problem.mask != MaskShape::none;
}

std::map<std::int64_t, Lengths> by_length(const Analysis& analysis) {
  std::map<std::int64_t, Lengths> lengths;
  for (const Entry& entry : analysis.entries) {
    if (percent(entry.measurement->problem, *entry.measurement) <= 0) continue;  // has no place on a logarithmic axis
    if (entry.measurement->problem.window > 0) continue;                         // is no point of a line of masks
    Lengths& each = lengths[entry.measurement->problem.seqlen_k];
    if (!is_masked(*entry.measurement))
      each.dense = &entry;
    else
      (entry.plan == PlanUse::built ? each.masked : each.planned).push_back(&entry);
  }
  for (const ResultsFile* file : analysis.files)
    for (const Measurement& measurement : file->measurements)
      if (measurement.failure.empty() && measurement.backend != kOwnBackend)
        lengths[measurement.problem.seqlen_k].others[measurement.backend].push_back(&measurement);
  std::erase_if(lengths, [](const auto& item) { return item.second.masked.empty(); });
  return lengths;
}

/// All that is drawn of one number of keys.
std::vector<const Problem*> problems_of(const Lengths& lengths) {
  std::vector<const Problem*> problems;
  for (const auto* entries : {&lengths.masked, &lengths.planned})
    for (const Entry* entry : *entries) problems.push_back(&entry->measurement->problem);
  if (lengths.dense != nullptr) problems.push_back(&lengths.dense->measurement->problem);
  for (const auto& [backend, measurements] : lengths.others)
    for (const Measurement* measurement : measurements) problems.push_back(&measurement->problem);
  return problems;
}

std::string unlike(const std::map<std::int64_t, Lengths>& lengths) {
  const Problem& first = lengths.begin()->second.masked.front()->measurement->problem;
  for (const auto& [keys, each] : lengths) {
    const std::int64_t queries = each.masked.front()->measurement->problem.seqlen_q;
    for (const Problem* problem : problems_of(each))
      if (!alike(first, *problem) || problem->seqlen_q != queries)
        return "`" + problem_text(first) + "` and `" + problem_text(*problem) +
               "` differ in more than lengths and mask: plot one kind at a time";
  }
  return {};
}

Series series_of(const std::vector<const Entry*>& entries) {
  Series series;
  series.line = LineStyle::solid;
  for (const Entry* entry : entries) series.marks.push_back(mark_of(*entry->measurement, entry->ms));
  std::sort(series.marks.begin(), series.marks.end(), [](const Mark& a, const Mark& b) { return a.x < b.x; });
  return series;
}

Series floor_series(const Problem& problem, PlanUse plan, const Ceilings& ceilings, double low, double high) {
  Series series;
  series.line = LineStyle::dotted;
  for (int i = 0; i <= kFloorPoints; ++i) {
    const double x = low * std::pow(high / low, static_cast<double>(i) / kFloorPoints);
    const Work work = work_of(problem, x / 100 * visible_fraction(problem), plan);
    series.marks.push_back({x, floor_of(work, ceilings).ms, ""});
  }
  return series;
}

Series with_shape(Series series, Shape shape, bool hollow) {
  series.shape = shape;
  series.hollow = hollow;
  return series;
}

Series dense_series(const Entry& dense, double lowest) {
  Series series;
  series.line = LineStyle::dashed;
  for (const double x : {lowest, 100.0}) series.marks.push_back({x, dense.ms, ""});
  return series;
}

// What was timed first, for it is drawn on top; one line of the legend.
void add_length(Chart& chart, std::int64_t keys, const Lengths& each, const Ceilings& ceilings, double lowest,
                int color) {
  const auto add = [&](Series series, const std::string& label) {
    series.label = label;
    series.color = color;
    chart.series.push_back(std::move(series));
  };
  const std::string name = "N = " + std::to_string(keys);
  add(with_shape(series_of(each.masked), Shape::circle, false), name + (each.planned.empty() ? "" : ", plan built"));
  chart.series.back().begins_line = true;
  if (!each.planned.empty()) add(with_shape(series_of(each.planned), Shape::circle, true), "plan given");
  constexpr Shape kShapes[] = {Shape::diamond, Shape::triangle, Shape::square};
  std::size_t shape = 0;
  for (const auto& [backend, measurements] : each.others) {
    Series other;
    for (const Measurement* measurement : measurements) other.marks.push_back(mark_of(*measurement, measurement->ms));
    add(with_shape(std::move(other), kShapes[shape++ % std::size(kShapes)], true), backend);
  }
  if (each.dense != nullptr) add(dense_series(*each.dense, lowest), "no mask" + formatted(", %.4g ms", each.dense->ms));
  const PlanUse plan = each.planned.empty() ? PlanUse::built : PlanUse::given;
  if (each.masked.front()->floor.ms > 0)
    add(floor_series(each.masked.front()->measurement->problem, plan, ceilings, lowest, 100),
        plan == PlanUse::built ? "floor" : "floor, plan given");
}

std::string kind_of(const Problem& problem) {
  std::string text = problem.bf16 ? "bf16" : "fp16";
  text += ", b = " + std::to_string(problem.batch) + ", h = " + std::to_string(problem.heads);
  if (problem.heads_kv != problem.heads) text += " (" + std::to_string(problem.heads_kv) + " KV heads)";
  return text + ", d = " + std::to_string(problem.head_dim) + (problem.causal ? ", causal" : "");
}

}  // namespace

DensityPlot density_plot(const std::vector<ResultsFile>& files, const Ceilings& given) {
  DensityPlot plot;
  const std::vector<Analysis> analyses = analyse(files, given);
  if (analyses.size() > 1) {
    plot.error =
        "the files are of several GPUs: " + analyses[0].gpu + " and " + analyses[1].gpu + "; plot one at a time";
    return plot;
  }
  const std::map<std::int64_t, Lengths> lengths = by_length(analyses.front());
  if (lengths.empty()) {
    plot.error =
        "no file has a time of this library with a mask; `flashdma-bench --set density --json FILE` makes some";
    return plot;
  }
  if (plot.error = unlike(lengths); !plot.error.empty()) return plot;
  double lowest = 100;
  for (const auto& [keys, each] : lengths)
    for (const Entry* entry : each.masked)
      lowest = std::min(lowest, percent(entry->measurement->problem, *entry->measurement));
  Chart& chart = plot.chart;
  const Analysis& analysis = analyses.front();
  const Problem& problem = lengths.begin()->second.masked.front()->measurement->problem;
  chart.title = "Time of the backward against the density of its mask, " + analysis.gpu;
  chart.description = kind_of(problem);
  chart.x_label = std::string("active pairs, % of ") + (problem.causal ? "those that causality leaves" : "all") +
                  "  (" + kind_of(problem) + ')';
  chart.y_label = "ms, median";
  chart.width = 840;
  chart.height = 520;
  int color = 0;
  for (const auto& [keys, each] : lengths)
    add_length(chart, keys, each, analysis.ceilings, lowest, color++ % kChartColors + 1);
  return plot;
}

}  // namespace flashdma_bwd::bench
