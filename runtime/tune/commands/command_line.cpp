// The options of each verb, and nothing else.
#include "tune/commands/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <ostream>

#include "bench/finite_number.hpp"
#include "diagnostics/suggest.hpp"
#include "tune/commands/session.hpp"
#include "tuning/grids.hpp"

namespace flashdma_bwd::tune {
namespace {

const std::map<std::string, CandidateChoice> kChoices = {
    {"compiled", CandidateChoice::compiled}, {"near", CandidateChoice::near}, {"all", CandidateChoice::all}};

std::string grid_list() {
  std::string text;
  for (const generator::Grid& grid : generator::all_grids())
    text += (text.empty() ? "" : "; ") + std::string(grid.name) + ": " + std::string(grid.what);
  return text;
}

void add_configs(CLI::App& verb, Options& options) {
  verb.add_option("--configs", options.configs, "the folder with architectures/, tables/ and profiles/")
      ->capture_default_str();
}

void add_held_back(CLI::App& verb, Options& options) {
  verb.add_option("--held-back", options.held_back,
                  "a grid whose problems make no rows: the report says how the table does on them")
      ->option_text("GRID ...");
}

void add_bound(CLI::App& verb, Options& options) {
  verb.add_option("--bound", options.bound_percent,
                  "percent that a choice may be slower than the best measured one before it gets a row")
      ->check(CLI::Range(0.0, 100.0))
      ->check(bench::finite_number())
      ->capture_default_str();
}

void add_tune(CLI::App& verb, Options& options) {
  verb.add_option("--grid", options.grids, grid_list())->option_text("GRID ...");
  verb.add_option("--problems,--capture", options.problem_files,
                  "a file of problems, by hand or of FLASHDMA_BWD_CAPTURE: `flashdma_bwd problems 1`, then one a line")
      ->option_text("FILE ...");
  verb.add_option("--store", options.store, "measurements, JSON Lines: what is in it is not measured again")
      ->capture_default_str();
  add_configs(verb, options);
  add_held_back(verb, options);
  add_bound(verb, options);
  verb.add_option("--candidates", options.loop.candidates,
                  "compiled: what this build has; near: one step from a tile of the table; all: every feasible tile")
      ->transform(CLI::CheckedTransformer(kChoices))
      ->option_text("compiled|near|all [near]");
  verb.add_flag_function(
          "--compiled-only", [&options](std::int64_t) { options.loop.candidates = CandidateChoice::compiled; },
          "the same as --candidates compiled")
      ->excludes("--candidates");
  verb.add_option("--filter", options.loop.filters,
                  "only candidates whose canonical name has this text, or matches this pattern of * and ?; the table's "
                  "choice is timed in any case");
  verb.add_option("--rounds", options.loop.rounds, "times that each candidate is timed, of which the median counts")
      ->check(CLI::Range(3, 10000))
      ->capture_default_str();
  verb.add_option("--source", options.source, "this repository, to build candidates that are not compiled in")
      ->capture_default_str();
  verb.add_option("--build", options.build, "the folder for that build")->capture_default_str();
  verb.add_option("--jobs", options.jobs, "compilations at once; 0: as many as cores")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  verb.add_option("--measure", options.measure, "the measuring program; the one beside this program if not given");
  verb.add_option("--commit", options.commit, "the source's commit: what was measured of another is not used")
      ->capture_default_str();
  verb.add_flag("--dry-run", options.dry_run, "say what would be measured and built; do neither");
  verb.add_flag("--keep-table", options.keep_table, "measure and report, leave the table as it is");
}

void add_import(CLI::App& verb, Options& options) {
  verb.add_option("cache", options.cache, "a file of FLASHDMA_BWD_TUNE_CACHE")->required()->option_text("CACHE");
  add_configs(verb, options);
  add_bound(verb, options);
  verb.add_option("--environment", options.environment,
                  "whose records: their number in what `show` prints; needed where there are several")
      ->check(CLI::Range(1, 1000000))
      ->option_text("NUMBER");
  verb.add_option("--commit", options.commit, "the commit of the library that measured, which a cache does not know")
      ->capture_default_str();
  verb.add_flag("--keep-table", options.keep_table, "report, leave the table as it is");
}

}  // namespace

int run_command_line(std::vector<std::string> arguments, const Surroundings& surroundings) {
  Options options;
  CLI::App app("Times kernels on the GPU at hand and puts what it finds into its table.", "flashdma-tune");
  app.require_subcommand(1);
  app.footer(
      "Data goes to standard output, progress and diagnostics to standard error. Exit codes: 0 fine, 1 findings, 2 "
      "usage, 3 no GPU, a disk or a build that failed, or internal.");
  CLI::App* tune = app.add_subcommand("tune", "measure, report, and write configs/tables/<architecture>.yaml back");
  add_tune(*tune, options);
  CLI::App* import_verb = app.add_subcommand(
      "import", "make rows of a run-time cache's choices, and write configs/tables/<architecture>.yaml back");
  add_import(*import_verb, options);
  CLI::App* show = app.add_subcommand("show", "print what a store, or a run-time cache, holds");
  CLI::App* report = app.add_subcommand("report", "say how far a table is from the best that a store has measured");
  show->add_option("file", options.store, "a store of measurements, or a file of FLASHDMA_BWD_TUNE_CACHE")
      ->required()
      ->option_text("FILE");
  report->add_option("store", options.store, "a store of measurements")->required()->option_text("STORE");
  show->add_option("--format", options.format, "text, or json: all records as one array")
      ->transform(
          CLI::CheckedTransformer(std::map<std::string, Format>{{"text", Format::text}, {"json", Format::json}}))
      ->option_text("text|json");
  add_configs(*report, options);
  add_held_back(*report, options);
  add_bound(*report, options);
  report->add_flag(
      "--write-table", options.write_table,
      "put the rows that are asked for into configs/tables/<architecture>.yaml, as `tune` does: for a store "
      "that comes from the GPU's machine");

  // Options alone are those of `tune`.
  if (!arguments.empty() && arguments[0].starts_with("--") && arguments[0] != "--help")
    arguments.insert(arguments.begin(), "tune");
  // CLI11 would only say that a subcommand is missing.
  if (!arguments.empty() && !arguments[0].starts_with('-')) {
    std::vector<std::string> verbs;
    for (const CLI::App* verb : app.get_subcommands(nullptr)) verbs.push_back(verb->get_name());
    if (std::ranges::find(verbs, arguments[0]) == verbs.end()) {
      const std::vector<std::string_view> names(verbs.begin(), verbs.end());
      const std::vector<std::string> meant = generator::did_you_mean(arguments[0], names);
      return refuse(surroundings, kUsage,
                    "there is no verb `" + arguments[0] + "`; " +
                        (meant.empty() ? "there is " + generator::enumerate(names) : meant.front()));
    }
  }
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 takes them reversed
  } catch (const CLI::ParseError& error) {
    return app.exit(error, surroundings.out, surroundings.err) == 0 ? kFine : kUsage;
  }
  if (*tune) return run_tune(options, surroundings);
  if (*import_verb) return run_import(options, surroundings);
  return *show ? run_show(options, surroundings) : run_report(options, surroundings);
}

}  // namespace flashdma_bwd::tune
