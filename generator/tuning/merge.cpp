// Greedy covering: each time the box that serves most of the problems that still need a row.
#include "tuning/merge.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "selection/select_kernel.hpp"
#include "tuning/box.hpp"
#include "tuning/regret.hpp"

namespace flashdma_bwd::generator {
namespace {

struct Point {
  const MeasuredProblem* measured = nullptr;
  const MeasuredTile* best = nullptr;
  Region at;
  std::vector<TileConfig> allowed;  ///< near the best and not slower than the table before
  bool needs_row = false;
};

struct Box {
  Region region;
  TileConfig tile;
};

/// A problem whose table choice was not timed keeps it: nothing could be said to be no slower.
Point point_on(const MeasuredProblem& measured, const TileConfig* incumbent, const DeviceTraits& device, double bound) {
  Point point{&measured, fastest(measured), point_of(measured.problem, device), {}, false};
  const MeasuredTile* before = incumbent == nullptr ? nullptr : find_tile(measured, *incumbent);
  if (before == nullptr) return point;
  const double limit = point.best->cold.ms * (1 + bound);
  for (const MeasuredTile& tile : measured.tiles)
    if (tile.evidence == Evidence::timed && tile.cold.ms <= limit && !slower_beyond_noise(tile.cold, before->cold))
      point.allowed.push_back(tile.tile);
  point.needs_row = is_too_slow(*before, *point.best, bound);
  return point;
}

class Cover {
 public:
  explicit Cover(std::vector<Point> points) : points_(std::move(points)) {
    for (const Point& point : points_)
      if (point.needs_row) uncovered_.push_back(&point);
  }

  std::vector<Box> boxes() {
    std::vector<Box> boxes;
    while (const std::optional<Box> box = best_box()) {
      boxes.push_back(*box);
      std::erase_if(uncovered_, [&](const Point* point) { return holds(box->region, point->at); });
    }
    drop_redundant(boxes);
    for (Box& box : boxes) box.tile = best_tile(box);
    return boxes;
  }

  std::vector<const Point*> inside(const Region& box) const {
    std::vector<const Point*> result;
    for (const Point& point : points_)
      if (holds(box, point.at)) result.push_back(&point);
    return result;
  }

 private:
  bool serves(const TileConfig& tile, const Region& box) const {
    std::vector<Region> places;
    for (const Point& point : points_) {
      if (!holds(box, point.at)) continue;
      if (std::ranges::find(point.allowed, tile) == point.allowed.end()) return false;
      places.push_back(point.at);
    }
    return is_measured(box, places);
  }

  /// Whether the row of this box can name a problem on which its tile won.
  bool wins_somewhere(const TileConfig& tile, const Region& box) const {
    return std::ranges::any_of(inside(box), [&](const Point* point) { return wins(tile, *point->measured); });
  }

  Region grown_from(const Point& seed, const TileConfig& tile) const {
    Region box = seed.at;
    std::vector<const Point*> rest = uncovered_;
    for (bool grew = true; grew;) {
      grew = false;
      std::ranges::stable_sort(rest, {}, [&](const Point* point) { return distance(box, point->at); });
      for (const Point* point : rest) {
        if (holds(box, point->at)) continue;
        const Region larger = hull(box, point->at);
        if (!serves(tile, larger)) continue;
        box = larger;
        grew = true;
      }
    }
    return box;
  }

  std::ptrdiff_t newly_covered(const Region& box) const {
    return std::ranges::count_if(uncovered_, [&](const Point* point) { return holds(box, point->at); });
  }

  /// Nothing where no row can help: at the place of a problem are others, which its tiles do not serve.
  std::optional<Box> best_box() const {
    std::vector<Box> tried;
    std::optional<Box> best;
    for (const Point* seed : uncovered_)
      for (const TileConfig& tile : seed->allowed) {
        const auto reached = [&](const Box& box) { return box.tile == tile && holds(box.region, seed->at); };
        if (std::ranges::any_of(tried, reached)) continue;
        if (!serves(tile, seed->at)) continue;
        const Box& box = tried.emplace_back(Box{grown_from(*seed, tile), tile});
        if (!wins_somewhere(tile, box.region)) continue;
        if (!best || newly_covered(box.region) > newly_covered(best->region)) best = box;
      }
    return best;
  }

  void drop_redundant(std::vector<Box>& boxes) const {
    for (std::size_t i = 0; i < boxes.size();) {
      const bool needed = std::ranges::any_of(points_, [&](const Point& point) {
        if (!point.needs_row || !holds(boxes[i].region, point.at)) return false;
        for (std::size_t j = 0; j < boxes.size(); ++j)
          if (j != i && holds(boxes[j].region, point.at)) return false;
        return true;
      });
      if (needed)
        ++i;
      else
        boxes.erase(boxes.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  /// Of the tiles that serve the box, the one with the least sum of regrets.
  TileConfig best_tile(const Box& box) const {
    const std::vector<const Point*> points = inside(box.region);
    TileConfig best = box.tile;
    const auto sum = [&](const TileConfig& tile) {
      double shares = 0;
      for (const Point* point : points) shares += share_of(*find_tile(*point->measured, tile), *point->measured);
      return shares;
    };
    for (const TileConfig& tile : points.front()->allowed)
      if (serves(tile, box.region) && wins_somewhere(tile, box.region) && sum(tile) < sum(best)) best = tile;
    return best;
  }

  std::vector<Point> points_;
  std::vector<const Point*> uncovered_;
};

}  // namespace

std::vector<TunedRow> merge(std::span<const Row> rows, Architecture architecture, const DeviceTraits& device,
                            std::span<const MeasuredProblem> measured, double bound) {
  std::vector<TunedRow> result;
  for (const int head_dim : kHeadDimBuckets) {
    std::vector<Point> points;
    for (const MeasuredProblem& problem : measured) {
      if (head_dim_bucket(problem.problem.head_dim) != head_dim || problem.tiles.empty()) continue;
      const SelectionResult before = select_among(architecture, device, problem.problem, rows);
      points.push_back(
          point_on(problem, before.status == SelectionStatus::ok ? &before.config.tile : nullptr, device, bound));
    }
    Cover cover(std::move(points));
    std::vector<TunedRow> found;
    for (const Box& box : cover.boxes()) {
      std::vector<const MeasuredProblem*> inside;
      for (const Point* point : cover.inside(box.region)) inside.push_back(point->measured);
      found.push_back(tuned_row(condition_of(head_dim, box.region), box.tile, inside));
    }
    std::ranges::stable_sort(found, std::greater<>(), &TunedRow::problems);
    result.insert(result.end(), found.begin(), found.end());
  }
  return result;
}

std::vector<Row> with_tuned_rows(std::span<const Row> rows, Architecture architecture,
                                 std::span<const TunedRow> tuned) {
  std::vector<Row> result;
  for (const TunedRow& row : tuned)
    result.push_back({architecture, row.when, row.use, ProvenanceKind::measured, {}, {}, 0});
  result.insert(result.end(), rows.begin(), rows.end());
  return result;
}

}  // namespace flashdma_bwd::generator
