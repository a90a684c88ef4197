// flashdma-bench: times the backward on the GPU at hand, and kernel selection and monitoring on the CPU.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "commands/bench.hpp"
#include "commands/exit_codes.hpp"
#include "commands/report.hpp"
#include "finite_number.hpp"
#include "monitoring_benchmark.hpp"
#include "select_benchmark.hpp"

namespace {

using namespace flashdma_bwd;
using bench::kFailure;
using bench::kFine;
using bench::kUsage;

const std::map<std::string, std::int32_t> kLayouts = {{"auto", FLASHDMA_BWD_MASK_AUTO},
                                                      {"natural", FLASHDMA_BWD_MASK_NATURAL},
                                                      {"compacted", FLASHDMA_BWD_MASK_COMPACTED},
                                                      {"reordered", FLASHDMA_BWD_MASK_REORDERED}};

void add_bench(CLI::App& app, bench::BenchOptions& options) {
  std::string sets;
  for (const std::string_view name : bench::kSetNames) sets += (sets.empty() ? "" : ", ") + std::string(name);
  app.add_option("--set", options.sets, "A named set of problems: " + sets)
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(bench::kSetNames), std::end(bench::kSetNames))));
  app.add_option("--problem", options.problems,
                 "One problem, such as \"b=1 h=16 hk=4 d=128 s=8192 causal bias=key mask=topw:1024\"");
  app.add_option("--kernel", options.measure.device.kernel,
                 "Canonical name of the kernel to use instead of the table's choice");
  app.add_flag("--reuse-plan", options.measure.device.reuse_plan,
               "Build the mask's plan and its schedule once, outside of what is timed");
  app.add_flag("--plan", options.measure.plan,
               "Time the building of the mask's plan, that of its schedule, and the backward with both, too")
      ->excludes("--reuse-plan");
  app.add_flag("--schedule,!--no-schedule", options.measure.device.schedule,
               "Whether a plan that is built once has a schedule (default: yes)");
  app.add_option("--layout", options.measure.device.mask_layout,
                 "What is made of a mask: auto, natural, compacted or reordered")
      ->transform(CLI::CheckedTransformer(kLayouts));
  app.add_option("--samples", options.measure.timing.samples, "Timings, of which the median counts")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--sample-ms", options.measure.timing.shortest_sample_ms,
                 "A timing has as many calls as take so many milliseconds, 64 at most")
      ->check(CLI::PositiveNumber)
      ->check(bench::finite_number())
      ->capture_default_str();
  app.add_option("--sustain", options.measure.timing.sustain_seconds,
                 "Seconds to run before timing; the clock that the GPU can hold takes one")
      ->check(CLI::NonNegativeNumber)
      ->check(bench::finite_number())
      ->capture_default_str();
  app.add_option("--json", options.json_file, "Write the results to this file as JSON");
  app.add_option("--commit", options.commit, "The source's commit, for the report")->capture_default_str();
  app.add_flag("--ceilings", options.ceilings, "Measure the ceilings of this GPU, too: copy bandwidth and dense rate");
}

// Flags for timing that stand before a command that times nothing.
bool has_stray_options(const CLI::App& app, const CLI::App& command) {
  for (const CLI::Option* option : app.get_options())
    if (option->count() > 0) {
      std::fprintf(stderr, "flashdma-bench: %s has no effect on `%s`: leave it out\n", option->get_name().c_str(),
                   command.get_name().c_str());
      return true;
    }
  return false;
}

int parse_and_run(int argc, char** argv) {
  CLI::App app{
      "Times the backward pass of dynamic mask attention: median of CUDA-event timings, after a warm-up, over rotating "
      "inputs. Of a mask the library is told how many pairs are active, as a caller may (mask_density)."};
  bench::BenchOptions options;
  bench::ReportOptions report_options;
  add_bench(app, options);
  CLI::App* select_command = app.add_subcommand("select", "Times kernel selection; needs no GPU");
  CLI::App* monitoring_command =
      app.add_subcommand("monitoring", "Times what hooks, counters and the like cost a launch; needs no GPU");
  CLI::App* roofline = app.add_subcommand(
      "roofline",
      "Holds problems against ceilings that are measured on this GPU in the same run; takes the flags above");
  roofline->add_option("problems", options.problems, "Problems, as for --problem");
  roofline->fallthrough();
  CLI::App* report = bench::add_report(app, report_options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kFine : kUsage;
  }
  if (report->parsed()) return has_stray_options(app, *report) ? kUsage : bench::run_report(report_options);
  if (roofline->parsed()) return bench::run_roofline(options);
  if (select_command->parsed()) return bench::print_select_benchmark() ? kFine : kFailure;
  if (monitoring_command->parsed()) return bench::print_monitoring_benchmark() ? kFine : kFailure;
  return bench::run_bench(options);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return parse_and_run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "flashdma-bench: %s\n", error.what());
    return kFailure;
  }
}
