// The rounds.
#include "tune/measure/rounds.hpp"

#include <algorithm>
#include <limits>

namespace flashdma_bwd::tune {
namespace {

constexpr std::size_t kRoundsBeforeStopping = 3;

/// Between neighbouring values of a sorted list, linearly.
double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - static_cast<double>(below));
}

struct Series {
  std::vector<double> cold, warm;
  bool active = true;
};

void stop_losers(std::vector<Series>& series, std::vector<RoundTimes>& times, double stop_share) {
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < series.size(); ++i)
    if (times[i].failure.empty() && !series[i].cold.empty()) best = std::min(best, time_of(series[i].cold).ms);
  for (std::size_t i = 1; i < series.size(); ++i)
    if (series[i].active && series[i].cold.size() >= kRoundsBeforeStopping &&
        std::ranges::min(series[i].cold) > best * (1 + stop_share)) {
      series[i].active = false;
      times[i].stopped = true;
    }
}

}  // namespace

generator::Time time_of(std::vector<double> samples) {
  std::ranges::sort(samples);
  return {quantile(samples, 0.5), quantile(samples, 0.75) - quantile(samples, 0.25)};
}

std::vector<RoundTimes> time_in_rounds(std::size_t count, const RoundOptions& options,
                                       const std::function<Sample(std::size_t candidate)>& sample) {
  std::vector<Series> series(count);
  std::vector<RoundTimes> times(count);
  for (int round = 0; round < options.rounds; ++round) {
    for (std::size_t turn = 0; turn < count; ++turn) {
      const std::size_t i = (turn + static_cast<std::size_t>(round)) % count;
      if (!series[i].active) continue;
      Sample one = sample(i);
      if (!one.failure.empty()) {
        times[i].failure = std::move(one.failure);
        series[i].active = false;
        continue;
      }
      series[i].cold.push_back(one.cold);
      series[i].warm.push_back(one.warm);
    }
    stop_losers(series, times, options.stop_share);
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (!times[i].failure.empty()) continue;
    times[i].cold = time_of(series[i].cold);
    times[i].warm = time_of(series[i].warm);
    times[i].rounds = static_cast<int>(series[i].cold.size());
  }
  return times;
}

}  // namespace flashdma_bwd::tune
