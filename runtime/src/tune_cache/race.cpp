// See race.hpp.
#include "tune_cache/race.hpp"

#include <algorithm>
#include <cstddef>

namespace flashdma_bwd {
namespace {

constexpr std::size_t kSamples = 9;  ///< of each configuration that stays
/// A configuration that takes this much longer than the fastest is not measured again.
constexpr double kOutOfReach = 1.25;
/// Smaller differences, of the time, are taken for noise whatever the samples say: a few samples may agree by chance.
constexpr double kLeastNoise = 0.01;

double quantile(const std::vector<double>& sorted, std::size_t quarters) {
  return sorted[(sorted.size() - 1) * quarters / 4];
}

class Runner {
 public:
  Runner(ConfigurationTimer& timer, double budget_ms) : timer_(timer), end_(timer.now_ms() + budget_ms) {}

  bool has_time_for(double ms) const { return timer_.now_ms() + ms <= end_; }

  struct Entrant {
    Candidate candidate;
    std::vector<double> samples;
    double median() const {
      std::vector<double> sorted = samples;
      std::sort(sorted.begin(), sorted.end());
      return quantile(sorted, 2);
    }
  };

  Check sample(Entrant& entrant) {
    double ms = 0;
    if (Check failure = timer_.time(*entrant.candidate.kernel, ms)) return failure;
    entrant.samples.push_back(ms);
    return {};
  }

  /// Loads a kernel, runs it once for the caches and the clock, and once to be measured. Leaves out what there is no
  /// time for, and the second run of what is out of reach. `fastest`: of those before; 0: this is the incumbent.
  Check enter(Entrant& entrant, double fastest) {
    const bool incumbent = fastest == 0;
    if (Check failure = timer_.prepare(*entrant.candidate.kernel)) return failure;
    if (!incumbent && !has_time_for(fastest)) return {};
    double first = 0;
    if (Check failure = timer_.time(*entrant.candidate.kernel, first)) return failure;
    if (!incumbent && (first > 2 * kOutOfReach * fastest || !has_time_for(first))) return {};
    return sample(entrant);
  }

 private:
  ConfigurationTimer& timer_;
  double end_;
};

Contestant result_of(const Runner::Entrant& entrant) {
  std::vector<double> sorted = entrant.samples;
  std::sort(sorted.begin(), sorted.end());
  return {entrant.candidate, quantile(sorted, 2), quantile(sorted, 3) - quantile(sorted, 1)};
}

/// Whether `slow` took longer by more than the samples of either differ.
bool slower_beyond_noise(const Contestant& slow, const Contestant& fast) {
  return slow.ms > fast.ms + std::max({slow.spread_ms, fast.spread_ms, kLeastNoise * slow.ms});
}

double fastest_of(const std::vector<Runner::Entrant>& entrants) {
  double fastest = entrants.front().median();
  for (const Runner::Entrant& entrant : entrants) fastest = std::min(fastest, entrant.median());
  return fastest;
}

/// In turns, so that a change of the clock hits all alike.
Check sample_in_turns(Runner& runner, std::vector<Runner::Entrant>& entrants) {
  for (std::size_t round = 1; round < kSamples; ++round) {
    const double reach = kOutOfReach * fastest_of(entrants);
    for (Runner::Entrant& entrant : entrants) {
      if (entrant.median() > reach) continue;
      if (!runner.has_time_for(entrant.median())) return {};
      if (Check failure = runner.sample(entrant)) return failure;
    }
  }
  return {};
}

}  // namespace

Check run_race(std::span<const Candidate> candidates, double budget_ms, ConfigurationTimer& timer, Race& race) {
  Runner runner(timer, budget_ms);
  std::vector<Runner::Entrant> entrants;
  for (const Candidate& candidate : candidates) {
    const double fastest = entrants.empty() ? 0 : fastest_of(entrants);
    if (!entrants.empty() && !runner.has_time_for(2 * fastest)) break;
    Runner::Entrant entrant{candidate, {}};
    if (Check failure = runner.enter(entrant, fastest)) {
      if (entrants.empty()) return failure;
      race.failures.push_back(std::string(candidate.kernel->name) + ": " + failure->message);
    } else if (!entrant.samples.empty()) {
      entrants.push_back(std::move(entrant));
    }
  }
  // What is alone has nothing to be compared with.
  if (entrants.size() > 1)
    if (Check failure = sample_in_turns(runner, entrants)) return failure;
  for (const Runner::Entrant& entrant : entrants) race.measured.push_back(result_of(entrant));
  const Contestant incumbent = race.measured.front();
  std::stable_sort(race.measured.begin(), race.measured.end(),
                   [](const Contestant& a, const Contestant& b) { return a.ms < b.ms; });
  if (!slower_beyond_noise(incumbent, race.measured.front())) {
    const auto found = std::find_if(race.measured.begin(), race.measured.end(), [&](const Contestant& contestant) {
      return contestant.candidate.kernel == incumbent.candidate.kernel;
    });
    std::rotate(race.measured.begin(), found, found + 1);
  }
  return {};
}

}  // namespace flashdma_bwd
