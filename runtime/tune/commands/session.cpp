// Loading, showing, merging, writing.
#include "tune/commands/session.hpp"

#include <algorithm>
#include <ostream>

#include "config/load.hpp"
#include "diagnostics/render.hpp"
#include "report/write_file.hpp"
#include "selection/architecture_chain.hpp"
#include "tune/problem_sources.hpp"
#include "tune/report.hpp"
#include "tuning/edit_table.hpp"
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

CacheContents read_shown_choices(const generator::SourceFile& source, const Surroundings& surroundings, int& code) {
  generator::Diagnostics diagnostics;
  CacheContents contents = read_choices(source, diagnostics);
  if (!contents.warning.empty()) surroundings.err << contents.warning << '\n';
  show_findings(diagnostics, {source}, surroundings);
  if (!diagnostics.empty()) code = kFindings;
  return contents;
}

const generator::Table* own_table(const generator::Configuration& configuration, int compute_capability) {
  for (const FallbackStep& step : kFallbackChain)
    if (step.tier == 0 && applies(step, compute_capability))
      for (const generator::Table& table : configuration.tables)
        if (table.architecture == step.architecture) return &table;
  return nullptr;
}

std::string no_table_text(int compute_capability) {
  return "there is no table for GPUs of " + gpu_text(compute_capability) +
         ": they run another's rows, which timings of this one must not change. CONTRIBUTING.md says how to add an "
         "architecture";
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

void find_rows(const generator::Table& table, const DeviceTraits& device,
               std::vector<generator::MeasuredProblem> measured, std::span<const Problem> held_back, double bound,
               Findings& findings) {
  findings.table = &table;
  findings.device = device;
  for (generator::MeasuredProblem& problem : measured) {
    if (problem.tiles.empty()) continue;
    const bool held = std::ranges::find(held_back, problem.problem) != held_back.end();
    (held ? findings.held_back : findings.tuned_on).push_back(std::move(problem));
  }
  std::vector<Row> rows;
  for (const generator::TableRow& row : table.rows) rows.push_back(as_row(table, row));
  findings.rows = generator::merge(rows, table.architecture, findings.device, findings.tuned_on, bound);
}

bool Findings::change_rows() const {
  return !rows.empty() ||
         std::ranges::find(evidence, generator::Backing::backed, &generator::RowEvidence::backing) != evidence.end();
}

void judge_rows(double bound, Findings& findings) {
  findings.evidence = generator::evidence_of(*findings.table, findings.rows, findings.device, findings.tuned_on, bound);
}

std::string report_of(const Findings& findings, double bound, const std::string& times) {
  return report_text({findings.table, findings.tuned_on, findings.held_back, findings.rows, findings.evidence,
                      findings.device, bound, times});
}

generator::MeasuredWhere measured_where(const Environment& environment) {
  return {environment.gpu, environment.sm_count, environment.toolkit, environment.driver, environment.commit};
}

int write_table(const generator::Configuration& configuration, const Findings& findings,
                const generator::MeasuredWhere& where, const std::string& next, const Surroundings& surroundings) {
  const generator::Table& table = *findings.table;
  const generator::SourceFile& source = *find_source(configuration.sources, table.at.file);
  const generator::ArchitectureSpec& spec = *find_architecture(configuration, table.architecture);
  generator::SourceFile edited;
  generator::Diagnostics diagnostics;
  if (!edit_table(source, table, spec, findings.rows, findings.evidence, where, edited, diagnostics)) {
    show_findings(diagnostics, {edited}, surroundings);
    return refuse(surroundings, kFindings, source.path + ": the table is as it was");
  }
  if (edited.text == source.text) {
    surroundings.out << source.path << ": says all of this already\n";
    return kFine;
  }
  std::string now, error;
  if (!read_text_file(source.path, false, now, error)) return refuse(surroundings, kFailure, error);
  if (now != source.text)
    return refuse(surroundings, kFindings,
                  source.path +
                      ": the table was edited meanwhile and is left as it is; run the same command again, nothing is "
                      "measured twice");
  if (error = bench::write_file(source.path, edited.text); !error.empty()) return refuse(surroundings, kFailure, error);
  const auto measured =
      std::ranges::count(findings.evidence, generator::Backing::backed, &generator::RowEvidence::backing);
  surroundings.out << source.path << ": " << findings.rows.size() << (findings.rows.size() == 1 ? " row" : " rows")
                   << " written";
  if (!findings.evidence.empty()) surroundings.out << ", " << measured << " of those before with their measurements";
  surroundings.out << ". Next: `git diff " << source.path << "`, `flashdma-gen generate`, build, and " << next << '\n';
  return kFine;
}

}  // namespace flashdma_bwd::tune
