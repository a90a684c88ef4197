// Sections about results. See sections.hpp.
#include <cmath>
#include <iterator>

#include "report/chart.hpp"
#include "report/html.hpp"
#include "report/sections.hpp"

namespace flashdma_bwd::bench {
namespace {

constexpr const char* kMs = "%.4f";
constexpr const char* kAchieved = "floor / time: 100 is as fast as the ceilings allow";
constexpr const char* kAboveFloor =
    "the part of all the time that these problems spend above their floors: share x distance to the floor";

Cell achieved_cell(double floor_ms, double ms) {
  return floor_ms > 0 ? share_cell(floor_ms / ms) : no_cell();
}

Cell floor_cell(double floor_ms) {
  return floor_ms > 0 ? number_cell(kMs, floor_ms) : no_cell();
}

std::string definition(const std::string& term, const std::string& description) {
  return description.empty() ? "" : "<dt>" + escaped(term) + "</dt><dd>" + description + "</dd>\n";
}

std::string environment(const Analysis& analysis) {
  Table table("Where the figures come from",
              {{"File"}, {"GPU"}, {"Driver"}, {"Toolkit"}, {"Library"}, {"Tables"}, {"Commit"}, {"Results", true}});
  for (const ResultsFile* file : analysis.files) {
    const Environment& e = file->environment;
    table.add({name_cell(file->path), text_cell(e.gpu), text_cell(e.driver), text_cell(e.toolkit), text_cell(e.library),
               name_cell(e.table_hash), name_cell(e.commit),
               number_cell("%.0f", static_cast<double>(file->measurements.size()))});
  }
  return table.html();
}

std::string failures(const Analysis& analysis) {
  if (analysis.failures.empty()) return {};
  Table table("Not measured", {{"Problem"}, {"Backend"}, {"Why"}, {"File"}});
  for (const auto& [file, measurement] : analysis.failures)
    table.add({problem_cell(measurement->problem_text), text_cell(measurement->backend),
               text_cell(measurement->failure), name_cell(file->path)});
  return table.html();
}

std::string summary(const Analysis& analysis) {
  double floor_ms = 0;
  std::size_t count = 0;
  for (const Entry& entry : analysis.entries)
    if (entry.plan == PlanUse::built) {
      floor_ms += entry.floor.ms;
      ++count;
    }
  std::string text = "<dl>\n" + definition("Problems timed", std::to_string(count)) +
                     definition("Their times together", formatted("%.3f ms", analysis.total_ms));
  if (floor_ms > 0)
    text +=
        definition("Their floors together", formatted("%.3f ms", floor_ms) +
                                                formatted(", %.1f %% of the time", 100 * floor_ms / analysis.total_ms));
  return text + ceilings_html(analysis.ceilings) + "</dl>\n" + kFloorDefinition + environment(analysis) +
         failures(analysis);
}

std::string group_table(const std::string& caption, const std::string& heading, const std::vector<Group>& groups) {
  Table table(caption, {{heading},
                        {"Above floor, % of all", true, kAboveFloor},
                        {"Share, %", true, "of the time of all problems"},
                        {"Problems", true},
                        {"ms", true, "of its problems together"},
                        {"Floor, ms", true, "of its problems together"},
                        {"Of the floor's speed, %", true, kAchieved},
                        {"Farthest from its floor"}});
  for (const Group& group : groups)
    table.add({name_cell(group.name), group.floor_ms > 0 ? share_cell(group.above_floor) : no_cell(),
               share_cell(group.share), number_cell("%.0f", group.count), number_cell(kMs, group.ms),
               floor_cell(group.floor_ms), achieved_cell(group.floor_ms, group.ms),
               problem_cell(problem_text(group.farthest->measurement->problem))});
  return table.html();
}

std::string rows(const Analysis& analysis) {
  return "<p>Rows of the tables by what a faster kernel could save: share of the time, times the distance to the "
         "floor. "
         "The first deserves tuning most.</p>\n" +
         group_table("Rows of the tables, the most to gain first", "Row", analysis.rows);
}

const char* plan_word(const Entry& entry) {
  if (entry.measurement->problem.mask == MaskShape::none) return "no mask";
  return entry.plan == PlanUse::built ? "built" : "given";
}

Chart distance_chart(const Analysis& analysis) {
  Chart chart;
  chart.title = "Time as a multiple of the floor, against the floor";
  chart.description = "Each point is one problem; the lower, the nearer to its floor, which is the line at 1.";
  chart.x_label = "floor, ms";
  chart.y_label = "time / floor";
  Series kinds[3];
  const char* const labels[] = {"bound by compute", "bound by memory", "plan given"};
  const Shape shapes[] = {Shape::circle, Shape::square, Shape::triangle};
  double low = INFINITY, high = 0;
  for (const Entry& entry : analysis.entries) {
    if (entry.floor.ms <= 0) continue;
    const int kind = entry.plan == PlanUse::given ? 2 : entry.floor.bound == Bound::compute ? 0 : 1;
    const double multiple = entry.ms / entry.floor.ms;
    kinds[kind].marks.push_back({entry.floor.ms, multiple,
                                 problem_text(entry.measurement->problem) + formatted(": %.4f ms, ", entry.ms) +
                                     formatted("%.2f times the floor", multiple)});
    low = std::fmin(low, entry.floor.ms);
    high = std::fmax(high, entry.floor.ms);
  }
  if (high <= 0) return chart;
  Series floor;
  floor.label = "floor";
  floor.line = LineStyle::dashed;
  floor.marks = {{low, 1, ""}, {high, 1, ""}};
  chart.series.push_back(std::move(floor));
  for (std::size_t kind = 0; kind < std::size(kinds); ++kind) {
    if (kinds[kind].marks.empty()) continue;
    kinds[kind].label = labels[kind];
    kinds[kind].color = static_cast<int>(kind) + 1;
    kinds[kind].shape = shapes[kind];
    chart.series.push_back(std::move(kinds[kind]));
  }
  return chart;
}

std::string problems(const Analysis& analysis) {
  std::vector<Column> columns{{"Problem"},
                              {"ms", true, "the fastest median, with the building of the plan of a mask"},
                              {"Plan given, ms", true, "a backward whose mask's plan is there"},
                              {"Floor, ms", true},
                              {"Of the floor's speed, %", true, kAchieved}};
  for (const std::string& backend : analysis.other_backends) {
    columns.push_back({backend + ", ms", true});
    columns.push_back({"/ ours", true, "its time over this library's"});
  }
  Table table("By problem: the fastest of each", std::move(columns));
  for (const ProblemTimes& times : analysis.problems) {
    const Entry* own = times.own;
    std::vector<Cell> cells{problem_cell(times.text), own != nullptr ? number_cell(kMs, own->ms) : no_cell(),
                            times.planned != nullptr ? number_cell(kMs, times.planned->ms) : no_cell(),
                            own != nullptr ? floor_cell(own->floor.ms) : no_cell(),
                            own != nullptr ? achieved_cell(own->floor.ms, own->ms) : no_cell()};
    for (const std::string& backend : analysis.other_backends) {
      double ms = 0;
      for (const auto& [name, other] : times.others)
        if (name == backend) ms = other;
      cells.push_back(ms > 0 ? number_cell(kMs, ms) : no_cell());
      cells.push_back(ms > 0 && own != nullptr ? number_cell("%.2f", ms / own->ms) : no_cell());
    }
    table.add(std::move(cells));
  }
  return table.html();
}

std::string flat(const Analysis& analysis) {
  Table table("Every time of this library, in the files' order",
              {{"Problem"},
               {"Plan", false, "whether the time has the building of the mask's plan"},
               {"Active, %", true, "pairs that mask and causality leave, of all"},
               {"ms", true, "median"},
               {"Share, %", true, "of the time of all problems, each with its plan built"},
               {"TFLOP/s", true, "of the active pairs"},
               {"Floor, ms", true},
               {"Bound", false, "which of the two ceilings makes the floor"},
               {"Of the floor's speed, %", true, kAchieved},
               {"Row"},
               {"Configuration"}});
  for (const Entry& entry : analysis.entries) {
    const Measurement& m = *entry.measurement;
    Problem whole = m.problem;
    whole.causal = false;
    whole.window = 0;
    table.add({problem_cell(problem_text(m.problem)), text_cell(plan_word(entry)),
               number_cell("%.2f", 100 * entry.work.flops / whole.dense_flops()), number_cell(kMs, entry.ms),
               entry.plan == PlanUse::built ? share_cell(entry.share) : no_cell(),
               number_cell("%.1f", entry.teraflops()), floor_cell(entry.floor.ms),
               text_cell(bound_word(entry.floor.bound)), achieved_cell(entry.floor.ms, entry.ms), name_cell(m.row),
               name_cell(m.kernel)});
  }
  return table.html();
}

}  // namespace

void add_result_sections(const Analysis& analysis, std::size_t number, bool several, std::vector<Section>& sections) {
  const std::string suffix = std::to_string(number + 1);
  const std::string gpu = several ? " · " + analysis.gpu : "";
  sections.push_back({"summary-" + suffix, "Summary" + gpu, summary(analysis)});
  if (!analysis.rows.empty()) sections.push_back({"rows-" + suffix, "Rows that deserve tuning" + gpu, rows(analysis)});
  if (const Chart chart = distance_chart(analysis); !chart.series.empty())
    sections.push_back({"chart-" + suffix, "Time against floor" + gpu,
                        "<div class=\"scroll plain\" role=\"region\" tabindex=\"0\" aria-label=\"Chart\">\n" +
                            chart_element(chart) + "</div>\n"});
  if (!analysis.configurations.empty())
    sections.push_back(
        {"configurations-" + suffix, "By configuration" + gpu,
         group_table("Configurations, the most to gain first", "Configuration", analysis.configurations)});
  if (!analysis.problems.empty()) sections.push_back({"problems-" + suffix, "By problem" + gpu, problems(analysis)});
  if (!analysis.entries.empty()) sections.push_back({"flat-" + suffix, "All times" + gpu, flat(analysis)});
}

}  // namespace flashdma_bwd::bench
