// Loading, showing, merging.
#include "tune/commands/session.hpp"

#include <algorithm>
#include <ostream>

#include "config/load.hpp"
#include "diagnostics/render.hpp"
#include "selection/architecture_chain.hpp"
#include "tune/problem_sources.hpp"
#include "tune/report.hpp"
#include "validation/validate.hpp"

namespace flashdma_bwd::tune {

int refuse(const Surroundings& surroundings, ExitCode code, const std::string& message) {
  surroundings.err << "flashdma-tune: " << message << '\n';
  return code;
}

void show_findings(const generator::Diagnostics& diagnostics, const std::vector<generator::SourceFile>& sources,
                   const Surroundings& surroundings) {
  if (!diagnostics.empty()) surroundings.err << generator::render_text(diagnostics, sources, surroundings.colour);
}

std::optional<generator::Configuration> load_valid(const Options& options, const Surroundings& surroundings) {
  generator::Diagnostics diagnostics;
  generator::Configuration configuration = generator::load_configuration(options.configs, diagnostics);
  validate(configuration, diagnostics);
  show_findings(diagnostics, configuration.sources, surroundings);
  if (!diagnostics.empty()) return std::nullopt;
  return configuration;
}

std::optional<StoreContents> read_shown(const generator::SourceFile& source, const Surroundings& surroundings) {
  generator::Diagnostics diagnostics;
  StoreContents contents = read_store(source, diagnostics);
  if (!contents.warning.empty()) surroundings.err << contents.warning << '\n';
  show_findings(diagnostics, {source}, surroundings);
  if (!diagnostics.empty()) return std::nullopt;
  return contents;
}

std::optional<Architecture> own_architecture(int compute_capability) {
  for (const FallbackStep& step : kFallbackChain)
    if (step.tier == 0 && applies(step, compute_capability)) return step.architecture;
  return std::nullopt;
}

std::optional<std::vector<Problem>> held_back_problems(const Options& options, const Surroundings& surroundings) {
  std::vector<Problem> problems;
  for (const std::string& name : options.held_back)
    if (const std::string error = add_grid(name, problems); !error.empty()) {
      refuse(surroundings, kUsage, "--held-back: " + error);
      return std::nullopt;
    }
  return problems;
}

void find_rows(const generator::Table& table, std::span<const Measurement> measurements,
               std::span<const Problem> held_back, double bound, Findings& findings) {
  findings.table = &table;
  for (const Measurement& measurement : measurements) {
    findings.device = measurement.environment.device();
    generator::MeasuredProblem problem = measured_problem(measurement);
    if (problem.tiles.empty()) continue;
    const bool held = std::ranges::find(held_back, problem.problem) != held_back.end();
    (held ? findings.held_back : findings.tuned_on).push_back(std::move(problem));
  }
  std::vector<Row> rows;
  for (const generator::TableRow& row : table.rows) rows.push_back(as_row(table, row));
  findings.rows = generator::merge(rows, table.architecture, findings.device, findings.tuned_on, bound);
}

std::string report_of(const Findings& findings, double bound) {
  return report_text({findings.table, findings.tuned_on, findings.held_back, findings.rows, findings.device, bound});
}

}  // namespace flashdma_bwd::tune
