// Putting results together. See analysis.hpp.
#include "report/analysis.hpp"

#include <algorithm>
#include <cmath>

#include "active_pairs.hpp"

namespace flashdma_bwd::bench {
namespace {

/// As it was counted, or else as the problem says.
double active_fraction(const Measurement& measurement) {
  const Problem& problem = measurement.problem;
  if (measurement.active_fraction) return *measurement.active_fraction;
  return active_pairs(problem) / (static_cast<double>(problem.seqlen_q) * static_cast<double>(problem.seqlen_k));
}

bool is_own(const Measurement& measurement) {
  return measurement.backend == kOwnBackend && measurement.failure.empty();
}

Entry entry_of(const ResultsFile& file, const Measurement& measurement, PlanUse plan, const Ceilings& ceilings) {
  Entry entry{&measurement, &file, plan, plan == PlanUse::built ? measurement.ms : measurement.plan->planned_ms,
              {},           {}};
  entry.work = work_of(measurement.problem, active_fraction(measurement), plan);
  entry.floor = floor_of(entry.work, ceilings);
  return entry;
}

double above_floor(const Entry& entry) {
  return std::max(entry.ms - entry.floor.ms, 0.0);
}

void add_entries(Analysis& analysis) {
  for (const ResultsFile* file : analysis.files)
    for (const Measurement& measurement : file->measurements) {
      if (!measurement.failure.empty()) analysis.failures.emplace_back(file, &measurement);
      if (!is_own(measurement)) continue;
      analysis.entries.push_back(entry_of(*file, measurement, PlanUse::built, analysis.ceilings));
      analysis.total_ms += measurement.ms;
      if (measurement.plan && measurement.plan->planned_ms > 0)
        analysis.entries.push_back(entry_of(*file, measurement, PlanUse::given, analysis.ceilings));
    }
  for (Entry& entry : analysis.entries)
    if (entry.plan == PlanUse::built) entry.share = entry.ms / analysis.total_ms;
}

std::vector<Group> groups_by(const Analysis& analysis, std::string Measurement::*name) {
  std::vector<Group> groups;
  for (const Entry& entry : analysis.entries) {
    if (entry.plan == PlanUse::given) continue;
    const std::string& wanted = entry.measurement->*name;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& each) { return each.name == wanted; });
    if (group == groups.end()) {
      Group& added = groups.emplace_back();
      added.name = wanted;
      group = groups.end() - 1;
    }
    ++group->count;
    group->ms += entry.ms;
    group->floor_ms += entry.floor.ms;
    group->share += entry.share;
    group->above_floor += above_floor(entry) / analysis.total_ms;
    if (group->farthest == nullptr || above_floor(entry) > above_floor(*group->farthest)) group->farthest = &entry;
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const Group& a, const Group& b) { return a.above_floor > b.above_floor; });
  return groups;
}

ProblemTimes& times_of(Analysis& analysis, const std::string& text) {
  for (ProblemTimes& times : analysis.problems)
    if (times.text == text) return times;
  ProblemTimes& times = analysis.problems.emplace_back();
  times.text = text;
  return times;
}

void add_other(Analysis& analysis, const Measurement& measurement) {
  auto& others = times_of(analysis, problem_text(measurement.problem)).others;
  const auto same = [&](const auto& other) { return other.first == measurement.backend; };
  if (const auto found = std::find_if(others.begin(), others.end(), same); found != others.end())
    found->second = std::min(found->second, measurement.ms);
  else
    others.emplace_back(measurement.backend, measurement.ms);
  auto& backends = analysis.other_backends;
  if (std::find(backends.begin(), backends.end(), measurement.backend) == backends.end())
    backends.push_back(measurement.backend);
}

void add_problems(Analysis& analysis) {
  for (const Entry& entry : analysis.entries) {
    ProblemTimes& times = times_of(analysis, problem_text(entry.measurement->problem));
    const Entry*& fastest = entry.plan == PlanUse::built ? times.own : times.planned;
    if (fastest == nullptr || entry.ms < fastest->ms) fastest = &entry;
  }
  for (const ResultsFile* file : analysis.files)
    for (const Measurement& measurement : file->measurements)
      if (measurement.failure.empty() && !is_own(measurement)) add_other(analysis, measurement);
}

// The fastest of the dense results: no ceiling of the GPU, but what this library comes to on it.
void take_fastest_dense(const std::vector<const ResultsFile*>& files, Ceilings& ceilings) {
  for (const ResultsFile* file : files)
    for (const Measurement& measurement : file->measurements) {
      if (!is_own(measurement) || measurement.problem.mask != MaskShape::none) continue;
      const double tflops = entry_of(*file, measurement, PlanUse::built, {}).teraflops();
      if (tflops <= ceilings.dense_tflops) continue;
      ceilings.dense_tflops = tflops;
      ceilings.dense_source = "this library's fastest dense result here, " + problem_text(measurement.problem);
    }
}

}  // namespace

Ceilings ceilings_of(const std::vector<const ResultsFile*>& files, const Ceilings& given) {
  Ceilings ceilings = given;
  for (const ResultsFile* file : files) {
    const Ceilings& measured = file->ceilings;
    if (given.dense_tflops == 0 && measured.dense_tflops > ceilings.dense_tflops) {
      ceilings.dense_tflops = measured.dense_tflops;
      ceilings.dense_source = measured.dense_source + ", " + file->path;
    }
    if (given.copy_gb_per_s == 0 && measured.copy_gb_per_s > ceilings.copy_gb_per_s) {
      ceilings.copy_gb_per_s = measured.copy_gb_per_s;
      ceilings.copy_source = measured.copy_source + ", " + file->path;
    }
  }
  if (ceilings.dense_tflops == 0) take_fastest_dense(files, ceilings);
  return ceilings;
}

std::vector<Analysis> analyse(const std::vector<ResultsFile>& files, const Ceilings& given) {
  std::vector<Analysis> analyses;
  for (const ResultsFile& file : files) {
    const auto same = [&](const Analysis& each) { return each.gpu == file.environment.gpu; };
    auto analysis = std::find_if(analyses.begin(), analyses.end(), same);
    if (analysis == analyses.end()) {
      analyses.emplace_back().gpu = file.environment.gpu;
      analysis = analyses.end() - 1;
    }
    analysis->files.push_back(&file);
  }
  for (Analysis& analysis : analyses) {
    analysis.ceilings = ceilings_of(analysis.files, given);
    add_entries(analysis);
    analysis.rows = groups_by(analysis, &Measurement::row);
    analysis.configurations = groups_by(analysis, &Measurement::kernel);
    add_problems(analysis);
  }
  return analyses;
}

}  // namespace flashdma_bwd::bench
