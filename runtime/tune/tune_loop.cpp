// Tasks, and the loop.
#include "tune_loop.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "plan/plan.hpp"
#include "selection/configuration_name.hpp"
#include "selection/problem_text.hpp"
#include "selection/row_text.hpp"
#include "selection/select_kernel.hpp"
#include "tuning/candidates.hpp"

namespace flashdma_bwd::tune {
namespace {

const generator::Table* find_table(const generator::Configuration& configuration, Architecture architecture) {
  for (const generator::Table& table : configuration.tables)
    if (table.architecture == architecture) return &table;
  return nullptr;
}

/// Candidates by what tells the kernels of problems apart: they are enumerated once.
class Candidates {
 public:
  Candidates(const generator::Configuration& configuration, Architecture architecture, const LoopOptions& options)
      : spec_(*generator::find_architecture(configuration, architecture)), options_(options) {
    for (const generator::TableRow& row : find_table(configuration, architecture)->rows)
      known_[row.when.head_dim].push_back(row.use);
  }

  const std::vector<std::string>& of(const Problem& problem) {
    const When when = generator::kernel_condition(problem);
    const std::string kind = row_text(Row{spec_.architecture, when, {}, ProvenanceKind::derived, {}, {}, 0});
    const auto [place, first] = names_.try_emplace(kind);
    if (!first) return place->second;
    std::vector<TileConfig> tiles = generator::feasible_tiles(spec_, problem);
    if (options_.candidates == CandidateChoice::near) tiles = generator::near_tiles(tiles, known_[when.head_dim]);
    for (const TileConfig& tile : tiles) {
      std::string name = configuration_name(generator::kernel_of(spec_.architecture, problem, tile));
      const auto matches = [&](const std::string& filter) { return generator::matches(name, filter); };
      if (options_.filters.empty() || std::ranges::any_of(options_.filters, matches))
        place->second.push_back(std::move(name));
    }
    return place->second;
  }

 private:
  const generator::ArchitectureSpec& spec_;
  const LoopOptions& options_;
  std::map<int, std::vector<TileConfig>> known_;  ///< tiles of the table's rows, by head dim
  std::map<std::string, std::vector<std::string>> names_;
};

bool answers(const Measurement& measurement, const Task& task) {
  return measurement.problem == task.problem && std::ranges::all_of(task.kernels, [&](const std::string& kernel) {
           return std::ranges::any_of(measurement.candidates,
                                      [&](const Candidate& candidate) { return candidate.kernel == kernel; });
         });
}

/// "0.123 ms bwd_..., the table's choice 0.130 ms (+5.7 %)".
std::string outcome(const Measurement& measurement, const std::string& incumbent) {
  const Candidate *best = nullptr, *chosen = nullptr;
  std::size_t failed = 0;
  for (const Candidate& candidate : measurement.candidates) {
    if (!candidate.failure.empty()) {
      ++failed;
      continue;
    }
    if (best == nullptr || candidate.cold.ms < best->cold.ms) best = &candidate;
    if (candidate.kernel == incumbent) chosen = &candidate;
  }
  std::string text;
  if (best == nullptr) {
    text = "no candidate could be timed: " + measurement.candidates.front().failure;
  } else {
    text = decimal(best->cold.ms, 4) + " ms " + best->kernel;
    if (chosen == nullptr)
      text += ", the table's choice was not timed";
    else if (chosen == best)
      text += ", the table's choice";
    else
      text += ", the table's choice " + decimal(chosen->cold.ms, 4) + " ms (+" +
              decimal(100 * (chosen->cold.ms / best->cold.ms - 1), 1) + " %)";
  }
  if (failed > 0 && best != nullptr) text += "; " + std::to_string(failed) + " failed";
  return text;
}

}  // namespace

std::vector<Task> make_tasks(const generator::Configuration& configuration, Architecture architecture,
                             const DeviceTraits& device, std::span<const Problem> problems,
                             const LoopOptions& options) {
  const generator::Table& table = *find_table(configuration, architecture);
  std::vector<Row> rows;
  for (const generator::TableRow& row : table.rows) rows.push_back(as_row(table, row));
  Candidates candidates(configuration, architecture, options);
  std::vector<Task> tasks;
  std::set<std::string> seen;
  for (const Problem& problem : problems) {
    if (!seen.insert(problem_text(problem)).second) continue;
    Task& task = tasks.emplace_back(Task{problem, {}, {}});
    const SelectionResult selection = select_among(architecture, device, problem, rows);
    if (selection.status == SelectionStatus::ok) {
      task.incumbent = configuration_name(selection.config);
      task.kernels.push_back(task.incumbent);
    }
    for (const std::string& kernel : candidates.of(problem))
      if (kernel != task.incumbent) task.kernels.push_back(kernel);
  }
  return tasks;
}

std::vector<Task> compiled_tasks(std::vector<Task> tasks, const std::vector<std::string>& compiled,
                                 std::vector<std::string>& missing) {
  const std::set<std::string> names(compiled.begin(), compiled.end());
  for (Task& task : tasks) {
    if (!task.incumbent.empty() && !names.contains(task.incumbent) &&
        std::ranges::find(missing, task.incumbent) == missing.end())
      missing.push_back(task.incumbent);
    std::erase_if(task.kernels, [&](const std::string& kernel) { return !names.contains(kernel); });
  }
  std::erase_if(tasks, [](const Task& task) { return task.kernels.empty(); });
  return tasks;
}

std::vector<Task> open_tasks(std::vector<Task> tasks, std::span<const Measurement> known,
                             const Environment& environment) {
  std::erase_if(tasks, [&](const Task& task) {
    return std::ranges::any_of(known, [&](const Measurement& measurement) {
      return are_comparable(measurement.environment, environment) && answers(measurement, task);
    });
  });
  return tasks;
}

std::string run_tasks(std::span<const Task> tasks, const Environment& environment,
                      const std::function<std::string()>& today, const LoopOptions& options, Device& device,
                      Store& store, Progress& progress, std::vector<Measurement>& known) {
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const Task& task = tasks[i];
    const std::string text = problem_text(task.problem);
    progress.begin(i, tasks.size(), text + ", " + std::to_string(task.kernels.size()) + " candidates");
    Measurement measurement{task.problem, environment, today(), {}};
    if (const std::string error =
            device.measure({task.problem, task.kernels, options.rounds, options.stop_share}, measurement.candidates);
        !error.empty()) {
      progress.end(i, tasks.size(), text + ": not measured: " + error);
      continue;
    }
    if (std::string error = store.append(measurement); !error.empty()) return error;
    progress.end(i, tasks.size(), text + ": " + outcome(measurement, task.incumbent));
    known.push_back(std::move(measurement));
  }
  return {};
}

std::vector<Measurement> latest(std::span<const Measurement> measurements, const Environment& environment) {
  std::vector<Measurement> result;  // from the last to the first
  std::map<std::string, std::size_t> places;
  for (std::size_t i = measurements.size(); i-- > 0;) {
    const Measurement& measurement = measurements[i];
    if (!are_comparable(measurement.environment, environment)) continue;
    const auto [place, is_last] = places.try_emplace(problem_text(measurement.problem), result.size());
    if (is_last) {
      result.push_back(measurement);
      continue;
    }
    std::vector<Candidate>& known = result[place->second].candidates;
    for (const Candidate& candidate : measurement.candidates)
      if (std::ranges::find(known, candidate.kernel, &Candidate::kernel) == known.end()) known.push_back(candidate);
  }
  std::ranges::reverse(result);
  return result;
}

}  // namespace flashdma_bwd::tune
