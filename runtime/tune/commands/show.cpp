// show: what a store or a run-time cache holds. report: what a store says of a table, and the rows that it asks for.
#include <ostream>

#include "selection/vocabulary.hpp"
#include "tune/commands/session.hpp"
#include "tune/file_kind.hpp"
#include "tune/report.hpp"

namespace flashdma_bwd::tune {
namespace {

std::optional<generator::SourceFile> load(const Options& options, const Surroundings& surroundings) {
  generator::SourceFile source{options.store, options.store, {}};
  std::string error;
  if (read_text_file(options.store, false, source.text, error)) return source;
  refuse(surroundings, kFindings, error);
  return std::nullopt;
}

int show_cache(const generator::SourceFile& source, const Options& options, const Surroundings& surroundings) {
  int code = kFine;
  const CacheContents contents = read_shown_choices(source, surroundings, code);
  surroundings.out << (options.format == Format::json ? choices_json(contents) : choices_text(contents));
  return code;
}

}  // namespace

int run_show(const Options& options, const Surroundings& surroundings) {
  const std::optional<generator::SourceFile> source = load(options, surroundings);
  if (!source) return kFindings;
  const FileKind kind = file_kind(source->text);
  if (kind == FileKind::neither) return refuse(surroundings, kFindings, neither_text(options.store));
  if (kind == FileKind::cache) return show_cache(*source, options, surroundings);
  const std::optional<StoreContents> contents = read_shown(*source, surroundings);
  if (!contents) return kFindings;
  surroundings.out << (options.format == Format::json ? measurements_json(contents->measurements)
                                                      : measurements_text(contents->measurements));
  return kFine;
}

int run_report(const Options& options, const Surroundings& surroundings) {
  const std::optional<std::vector<Problem>> held_back = held_back_problems(options, surroundings);
  if (!held_back) return kUsage;
  const std::optional<generator::Configuration> configuration = load_valid(options, surroundings);
  if (!configuration) return kFindings;
  const std::optional<generator::SourceFile> source = load(options, surroundings);
  if (!source) return kFindings;
  const std::optional<StoreContents> contents = read_shown(*source, surroundings);
  if (!contents) return kFindings;
  if (contents->measurements.empty()) return refuse(surroundings, kFindings, options.store + ": nothing is measured");

  const Environment& environment = contents->measurements.back().environment;
  const generator::Table* table = own_table(*configuration, environment.compute_capability);
  if (table == nullptr)
    return refuse(
        surroundings, kFindings,
        options.store + ": " + options.configs + " has no table for the compute capability of " + environment.gpu);
  const std::vector<Measurement> measurements = latest(contents->measurements, environment);
  Findings findings;
  const double bound = options.bound_percent / 100;
  find_rows(*table, environment.device(), measured_problems(measurements), *held_back, bound, findings);
  judge_rows(bound, findings);
  surroundings.out << word(table->architecture) << ", measured on " << environment.gpu << ", " << environment.sm_count
                   << " SMs, " << environment.toolkit << ", driver " << environment.driver << ", commit "
                   << environment.commit << '\n'
                   << report_of(findings, bound);
  std::size_t others = 0;
  for (const Measurement& measurement : contents->measurements)
    if (!are_comparable(measurement.environment, environment)) ++others;
  if (others > 0)
    surroundings.err << "flashdma-tune: " << others
                     << " measurements of another GPU, driver, toolkit or commit than the last one's are left out\n";
  if (!options.write_table || !findings.change_rows()) return kFine;
  return write_table(*configuration, findings, measured_where(environment), "`flashdma-tune report`", surroundings);
}

}  // namespace flashdma_bwd::tune
