// import: rows of the choices that a run-time cache has of one GPU and library.
#include <algorithm>
#include <ostream>
#include <span>
#include <utility>

#include "plan/plan.hpp"
#include "selection/configuration_name.hpp"
#include "selection/select_kernel.hpp"
#include "selection/vocabulary.hpp"
#include "tune/commands/session.hpp"
#include "tune/file_kind.hpp"

namespace flashdma_bwd::tune {
namespace {

std::optional<CacheContents> load_cache(const Options& options, const Surroundings& surroundings) {
  generator::SourceFile source{options.cache, options.cache, {}};
  std::string error;
  if (read_text_file(options.cache, false, source.text, error)) {
    const FileKind kind = file_kind(source.text);
    int code = kFine;
    if (kind == FileKind::cache) {
      CacheContents contents = read_shown_choices(source, surroundings, code);
      if (code == kFine && !contents.records.empty()) return contents;
    }
    if (code != kFine)
      error = options.cache + ": no row is made of a damaged cache";
    else if (kind == FileKind::store)
      error = options.cache +
              " is a store of flashdma-tune, not a run-time cache: `flashdma-tune tune --store` makes rows of one, and "
              "`flashdma-tune report` says which";
    else
      error = kind == FileKind::neither ? neither_text(options.cache) : options.cache + ": it has no record";
  }
  refuse(surroundings, kFindings, error);
  return std::nullopt;
}

/// The environment that --environment names, or the only one; shows what is in the way.
const CacheEnvironment* choose_environment(const CacheContents& contents, const Options& options,
                                           const Surroundings& surroundings) {
  const std::size_t count = contents.environments.size();
  const auto number = static_cast<std::size_t>(options.environment);
  if (number == 0 && count == 1) return &contents.environments.front();
  if (number > 0 && number <= count) return &contents.environments[number - 1];
  refuse(surroundings, kUsage,
         options.cache +
             (number > 0 ? ": there is no environment " + std::to_string(number)
                         : ": the records are of several environments, whose times are not mixed") +
             ": choose one with --environment");
  surroundings.err << environments_text(contents);
  return nullptr;
}

/// Lines of which no use is made, for one reason.
class LeftOut {
 public:
  explicit LeftOut(std::string why) : why_(std::move(why)) {}
  void add(const CacheLine& line) {
    if (count_++ == 0) first_ = line.number;
  }
  void tell(const std::string& path, const Surroundings& surroundings) const {
    if (count_ > 0)
      surroundings.err << path << ':' << first_ << ": warning: " << why_ << " (" << count_
                       << (count_ == 1 ? " record)\n" : " records)\n");
  }

 private:
  std::string why_;
  int first_ = 0;
  std::size_t count_ = 0;
};

/// Of each problem the first record, as in the library.
std::vector<CacheLine> choices_of(const CacheContents& contents, const CacheEnvironment& environment,
                                  const Options& options, const Surroundings& surroundings) {
  LeftOut foreign("left out, of another environment than the one chosen");
  LeftOut repeated("left out, an earlier record has the problem");
  std::vector<CacheLine> choices;
  for (const CacheLine& line : contents.records)
    if (line.record.environment != environment)
      foreign.add(line);
    else if (std::ranges::any_of(choices, [&](const CacheLine& c) { return c.record.problem == line.record.problem; }))
      repeated.add(line);
    else
      choices.push_back(line);
  foreign.tell(options.cache, surroundings);
  repeated.tell(options.cache, surroundings);
  return choices;
}

std::vector<generator::MeasuredProblem> problems_of(const std::vector<CacheLine>& choices,
                                                    const generator::Table& table, const std::vector<Row>& rows,
                                                    const DeviceTraits& device, const Options& options,
                                                    const Surroundings& surroundings) {
  const bool was_raced = choices.front().record.environment.table_hash == generator::table_hash(rows);
  LeftOut unnamed("the kernel is of another architecture, no row of " + std::string(word(table.architecture)) +
                  " can name it: the problem keeps its row");
  LeftOut unjudged(std::string("the record does not say how long the table's choice takes: the problem keeps its row") +
                   (was_raced ? "" : "; " + options.configs + " has other tables now than the library that measured"));
  std::vector<generator::MeasuredProblem> problems;
  for (const CacheLine& line : choices) {
    const SelectionResult chosen = select_among(table.architecture, device, line.record.problem, rows);
    std::optional<TileConfig> incumbent;
    if (chosen.status == SelectionStatus::ok) incumbent = chosen.config.tile;
    problems.push_back(measured_problem(line.record, table.architecture, incumbent, was_raced));
    if (parse_configuration_name(line.record.kernel).value->architecture != table.architecture)
      unnamed.add(line);
    else if (!incumbent || find_tile(problems.back(), *incumbent) == nullptr)
      unjudged.add(line);
  }
  unnamed.tell(options.cache, surroundings);
  unjudged.tell(options.cache, surroundings);
  return problems;
}

/// What the report is about, and what is not known of it.
std::string header_of(std::span<const generator::MeasuredProblem> problems, const CacheEnvironment& environment,
                      Architecture architecture) {
  const auto bounds = std::ranges::count_if(problems, [](const generator::MeasuredProblem& problem) {
    return std::ranges::find(problem.tiles, generator::Evidence::at_least, &generator::MeasuredTile::evidence) !=
           problem.tiles.end();
  });
  std::string text = std::string(word(architecture)) + ", " + std::to_string(problems.size()) +
                     (problems.size() == 1 ? " choice" : " choices") + " of a run-time cache, " +
                     environment_text(environment) + '\n';
  if (bounds > 0)
    text += "of " + std::to_string(bounds) +
            " of them the table's choice has no time in the cache: it is slower beyond the noise, takes at least as "
            "long as the next to the fastest, and gives way to a row whatever the bound\n";
  return text;
}

}  // namespace

int run_import(const Options& options, const Surroundings& surroundings) {
  const std::optional<generator::Configuration> configuration = load_valid(options, surroundings);
  if (!configuration) return kFindings;
  const std::optional<CacheContents> contents = load_cache(options, surroundings);
  if (!contents) return kFindings;
  const CacheEnvironment* environment = choose_environment(*contents, options, surroundings);
  if (environment == nullptr) return kUsage;
  const generator::Table* table = own_table(*configuration, environment->compute_capability);
  if (table == nullptr)
    return refuse(surroundings, kFindings, options.cache + ": " + no_table_text(environment->compute_capability));

  // A cache does not have the GPU's shared memory: it is that of the architecture, where the table is the GPU's own.
  const DeviceTraits device{environment->compute_capability, environment->sm_count,
                            find_architecture(*configuration, table->architecture)->shared_memory_per_block};
  std::vector<Row> rows;
  for (const generator::Table& each : configuration->tables)
    for (const generator::TableRow& row : each.rows) rows.push_back(as_row(each, row));
  const std::vector<CacheLine> choices = choices_of(*contents, *environment, options, surroundings);
  std::vector<generator::MeasuredProblem> problems = problems_of(choices, *table, rows, device, options, surroundings);
  const std::string header = header_of(problems, *environment, table->architecture);
  Findings findings;
  const double bound = options.bound_percent / 100;
  find_rows(*table, device, std::move(problems), {}, bound, findings);
  surroundings.out << header << report_of(findings, bound, "as a program ran them");
  if (findings.rows.empty() || options.keep_table) return kFine;
  const generator::MeasuredWhere where{gpu_text(environment->compute_capability),
                                       environment->sm_count,
                                       "CUDA " + environment->toolkit,
                                       "unknown",
                                       options.commit,
                                       "run-time cache, tables " + environment->table_hash};
  return write_table(*configuration, findings, where,
                     "a new cache: the library passes over records of other tables than its own", surroundings);
}

}  // namespace flashdma_bwd::tune
