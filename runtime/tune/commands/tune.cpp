// tune: measure what is not measured yet, make rows of it, and put them into the table.
#include <algorithm>
#include <ostream>
#include <set>
#include <utility>

#include "selection/configuration_name.hpp"
#include "tune/commands/session.hpp"
#include "tune/problem_sources.hpp"
#include "tune/progress.hpp"

namespace flashdma_bwd::tune {
namespace {

constexpr const char* kMeasureProgram = "flashdma-tune-measure";

/// The steps of the verb share what the steps before found.
class TuneRun {
 public:
  TuneRun(const Options& options, const Surroundings& surroundings) : options_(options), around_(surroundings) {}

  int run() {
    using Step = int (TuneRun::*)();
    for (const Step step : {&TuneRun::read_inputs, &TuneRun::meet_device, &TuneRun::plan, &TuneRun::open_store,
                            &TuneRun::build, &TuneRun::measure, &TuneRun::conclude}) {
      if (const int code = (this->*step)(); code != kFine) return code;
      if (finished_) return kFine;
    }
    return kFine;
  }

 private:
  int read_inputs();
  int meet_device();
  int plan();
  int open_store();  // before the build, which takes long: a store that is refused is refused at once
  int build();
  int measure();
  int conclude();
  void keep_compiled();
  double forecast_minutes(const std::vector<KernelConfig>& kernels) const;

  const Options& options_;
  const Surroundings& around_;
  bool finished_ = false;
  generator::Configuration configuration_;
  const generator::Table* table_ = nullptr;
  const generator::ArchitectureSpec* spec_ = nullptr;
  std::vector<Problem> problems_, held_back_;
  BuildLock build_lock_;  ///< longer than the device, which starts its program anew when that dies
  std::unique_ptr<Device> device_;
  DeviceDescription description_;
  std::vector<Task> tasks_;
  Store store_;
  std::vector<Measurement> known_;
};

int TuneRun::read_inputs() {
  for (const std::string& name : options_.grids)
    if (const std::string error = add_grid(name, problems_); !error.empty())
      return refuse(around_, kUsage, "--grid: " + error);
  std::optional<std::vector<Problem>> held_back = held_back_problems(options_, around_);
  if (!held_back) return kUsage;
  held_back_ = *std::move(held_back);
  generator::Diagnostics diagnostics;
  std::vector<generator::SourceFile> sources;
  for (const std::string& path : options_.problem_files) add_problem_file(path, problems_, diagnostics, sources);
  show_findings(diagnostics, sources, around_);
  if (!diagnostics.empty()) return kFindings;
  problems_.insert(problems_.end(), held_back_.begin(), held_back_.end());
  if (problems_.empty())
    return refuse(around_, kUsage, "there are no problems to tune: name some with --grid, --problems or --capture");
  std::optional<generator::Configuration> configuration = load_valid(options_, around_);
  if (!configuration) return kFindings;
  configuration_ = *std::move(configuration);
  return kFine;
}

int TuneRun::meet_device() {
  const std::string program =
      options_.measure.empty() ? around_.program_folder + '/' + kMeasureProgram : options_.measure;
  device_ = around_.device(program);
  if (const std::string error = device_->describe(description_); !error.empty())
    return refuse(around_, kFailure, error);
  description_.environment.commit = options_.commit;
  const int capability = description_.environment.compute_capability;
  table_ = own_table(configuration_, capability);
  if (table_ == nullptr) return refuse(around_, kFailure, no_table_text(capability));
  spec_ = find_architecture(configuration_, table_->architecture);
  return kFine;
}

double TuneRun::forecast_minutes(const std::vector<KernelConfig>& kernels) const {
  double seconds = 0;
  for (const KernelConfig& kernel : kernels)
    for (std::size_t i = 0; i < std::size(kHeadDimBuckets); ++i)
      if (kHeadDimBuckets[i] == kernel.head_dim) seconds += spec_->costs[i].seconds;
  return seconds / 60;
}

int TuneRun::plan() {
  tasks_ =
      make_tasks(configuration_, table_->architecture, description_.environment.device(), problems_, options_.loop);
  if (options_.loop.candidates == CandidateChoice::compiled) keep_compiled();
  if (!options_.dry_run) return kFine;
  std::set<std::string> wanted;
  for (const Task& task : tasks_) wanted.insert(task.kernels.begin(), task.kernels.end());
  std::vector<KernelConfig> missing;
  for (const std::string& name : wanted)
    if (std::ranges::find(description_.kernels, name) == description_.kernels.end())
      missing.push_back(*parse_configuration_name(name).value);
  around_.out << tasks_.size() << " problems, " << wanted.size() << " kernels, " << missing.size()
              << " of them not in this build";
  if (!missing.empty() && options_.loop.candidates != CandidateChoice::compiled)
    around_.out << ": about " << duration_text(60 * forecast_minutes(missing)) << " of one core to build";
  around_.out << '\n';
  for (const std::string& name : wanted)
    around_.out << name
                << (std::ranges::find(description_.kernels, name) == description_.kernels.end() ? "  (missing)\n"
                                                                                                : "\n");
  finished_ = true;
  return kFine;
}

int TuneRun::open_store() {
  if (const std::string error = store_.open(options_.store); !error.empty()) return refuse(around_, kFailure, error);
  std::optional<StoreContents> contents = read_shown(store_.source(), around_);
  if (!contents) return kFindings;
  known_ = std::move(contents->measurements);
  return kFine;
}

int TuneRun::build() {
  std::set<std::string> wanted;
  for (const Task& task : tasks_) wanted.insert(task.kernels.begin(), task.kernels.end());
  const std::set<std::string> compiled(description_.kernels.begin(), description_.kernels.end());
  if (options_.loop.candidates != CandidateChoice::compiled && !std::ranges::includes(compiled, wanted)) {
    if (const std::string error = build_lock_.take(options_.build); !error.empty())
      return refuse(around_, kFailure, error);
    std::vector<KernelConfig> kernels;
    kernels.reserve(wanted.size());
    for (const std::string& name : wanted) kernels.push_back(*parse_configuration_name(name).value);
    around_.err << "about " << duration_text(60 * forecast_minutes(kernels)) << " of one core to build\n";
    const ScratchResult result = build_candidates(
        configuration_, std::move(kernels), {options_.source, options_.build, table_->architecture, options_.jobs},
        around_.err, around_.run);
    if (!result.error.empty()) return refuse(around_, kFailure, result.error);
    for (const std::string& name : result.refused) around_.err << "left out, it does not build: " << name << '\n';
    device_ = around_.device(result.program.string());
    const std::string commit = description_.environment.commit;
    if (const std::string error = device_->describe(description_); !error.empty())
      return refuse(around_, kFailure, error);
    description_.environment.commit = commit;
  }
  if (options_.loop.candidates != CandidateChoice::compiled) keep_compiled();
  return kFine;
}

void TuneRun::keep_compiled() {
  std::vector<std::string> missing;
  const std::size_t before = tasks_.size();
  tasks_ = compiled_tasks(std::move(tasks_), description_.kernels, missing);
  for (const std::string& name : missing)
    around_.err << "the table's choice is not in this build, its problems keep their rows: " << name << '\n';
  if (tasks_.size() < before)
    around_.err << before - tasks_.size() << " problems have no candidate in this build and are left out\n";
}

int TuneRun::measure() {
  const std::size_t all = tasks_.size();
  std::vector<Task> open = open_tasks(tasks_, known_, description_.environment);
  if (open.size() < all)
    around_.err << all - open.size() << " of " << all << " problems are measured already, in " << options_.store
                << '\n';
  Progress progress(around_.err, around_.terminal, around_.seconds);
  const std::string error =
      run_tasks(open, description_.environment, around_.today, options_.loop, *device_, store_, progress, known_);
  return error.empty() ? kFine : refuse(around_, kFailure, error);
}

int TuneRun::conclude() {
  // Of what the store holds, only what was asked for now: another run may have measured other problems.
  std::vector<Measurement> measurements = latest(known_, description_.environment);
  std::erase_if(measurements, [&](const Measurement& measurement) {
    return std::ranges::find(problems_, measurement.problem) == problems_.end();
  });
  if (measurements.empty()) return refuse(around_, kFailure, "nothing could be measured");
  Findings findings;
  const double bound = options_.bound_percent / 100;
  const Environment& environment = description_.environment;
  find_rows(*table_, environment.device(), measured_problems(measurements), held_back_, bound, findings);
  judge_rows(bound, findings);
  around_.out << report_of(findings, bound);
  if (!findings.change_rows() || options_.keep_table) return kFine;
  return write_table(configuration_, findings, measured_where(environment), "`flashdma-tune report`", around_);
}

}  // namespace

int run_tune(const Options& options, const Surroundings& surroundings) {
  return TuneRun(options, surroundings).run();
}

}  // namespace flashdma_bwd::tune
