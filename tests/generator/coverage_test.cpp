// Coverage against its definition: the first row, in file order, whose condition holds.
#include "validation/coverage.hpp"

#include <random>

#include "config/load.hpp"
#include "generator/files.hpp"
#include "selection/select_kernel.hpp"
#include "support/catch.hpp"

namespace flashdma_bwd::generator::test {
namespace {

using Random = std::mt19937;

int number(Random& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

constexpr int kLargest = 6;  // lengths and counts are drawn from 0 ... 6, so that bounds meet often

Range random_range(Random& random, std::int64_t open_end) {
  const int low = number(random, 0, kLargest), high = number(random, low, kLargest + 1);
  return {low, high > kLargest ? open_end : high};
}

When random_when(Random& random) {
  When when;
  when.head_dim = 64;
  const auto rarely = [&] { return number(random, 0, 2) == 0; };
  if (rarely()) when.data_types.bits = static_cast<std::uint32_t>(number(random, 1, 2));
  if (rarely()) when.biases.bits = static_cast<std::uint32_t>(number(random, 1, 6));
  if (rarely()) when.layouts.bits = static_cast<std::uint32_t>(number(random, 1, 6));
  for (Choice* choice : {&when.softcap, &when.causal, &when.deterministic, &when.masked, &when.bias_copies})
    if (rarely()) *choice = number(random, 0, 1) == 0 ? Choice::no : Choice::yes;
  for (Range* range : {&when.seqlen_q, &when.seqlen_k, &when.work_items_per_sm})
    if (rarely()) *range = random_range(random, range->high);
  if (rarely()) when.mask_density = random_range(random, 1000);
  return when;
}

Table random_table(Random& random) {
  Table table;
  const int rows = number(random, 1, 6);
  for (int i = 0; i < rows; ++i) {
    TableRow row;
    row.when = random_when(random);
    table.rows.push_back(row);
  }
  return table;
}

/// A point of the domain, as a box of one problem.
Region random_point(Random& random) {
  Region point;
  for (std::size_t i = 0; i < kSetAxes; ++i) point.sets[i] = 1u << number(random, 0, i == 1 || i == 2 ? 2 : 1);
  for (Range& range : point.ranges) {
    const int value = number(random, 0, kLargest + 1);
    range = {value, value};
  }
  return point;
}

std::size_t count_containing(const std::vector<Region>& regions, const Region& point) {
  std::size_t count = 0;
  for (const Region& region : regions)
    if (intersect(region, point)) ++count;
  return count;
}

}  // namespace

TEST_CASE("each problem belongs to its first matching row, or to a hole, and to nothing else", "[coverage]") {
  Random random(20250101);
  for (int round = 0; round < 300; ++round) {
    const Table table = random_table(random);
    const Coverage coverage = cover(table);
    std::vector<Region> hole;
    for (const Coverage::Hole& h : coverage.holes)
      if (h.head_dim == 64) hole = h.regions;
    for (int sample = 0; sample < 100; ++sample) {
      const Region point = random_point(random);
      std::size_t first = 0;
      while (first < table.rows.size() && !intersect(region_of(table.rows[first].when), point)) ++first;
      for (std::size_t i = 0; i < table.rows.size(); ++i)
        REQUIRE(count_containing(coverage.decided[i], point) == (i == first ? 1u : 0u));
      REQUIRE(count_containing(hole, point) == (first == table.rows.size() ? 1u : 0u));
    }
  }
}

TEST_CASE("the region of a row is what selection admits", "[coverage]") {
  Random random(7);
  for (int round = 0; round < 20000; ++round) {
    Row row;
    row.when = random_when(random);
    row.use = {KernelFamily::ampere, 64, 64, 8, 4, 4, 2, 1, 1, false};
    Problem problem;
    problem.head_dim = 64;
    problem.data_type = static_cast<DataType>(number(random, 0, 1));
    problem.bias = static_cast<BiasKind>(number(random, 0, 2));
    problem.layout = static_cast<KeyLayout>(number(random, 0, 2));
    problem.softcap = number(random, 0, 1) == 1;
    problem.causal = number(random, 0, 1) == 1;
    problem.deterministic = number(random, 0, 1) == 1;
    problem.masked = number(random, 0, 1) == 1;
    problem.bias_copies = number(random, 0, 1) == 1;
    problem.mask_density = number(random, 0, kLargest + 1);
    problem.batch = number(random, 1, kLargest);
    problem.heads = problem.heads_kv = 1;
    problem.seqlen_q = number(random, 1, kLargest + 1);
    problem.seqlen_k = number(random, 1, kLargest + 1);
    const DeviceTraits device{80, 1, 166912};

    Region point;
    point.sets = {1u << static_cast<unsigned>(problem.data_type),
                  1u << static_cast<unsigned>(problem.bias),
                  1u << static_cast<unsigned>(problem.layout),
                  problem.softcap ? 2u : 1u,
                  problem.causal ? 2u : 1u,
                  problem.deterministic ? 2u : 1u,
                  problem.masked ? 2u : 1u,
                  problem.bias_copies ? 2u : 1u};
    const std::int64_t items = work_items_per_sm(problem, device);
    point.ranges = {Range{problem.seqlen_q, problem.seqlen_q}, Range{problem.seqlen_k, problem.seqlen_k},
                    Range{items, items}, Range{problem.mask_density, problem.mask_density}};
    REQUIRE(intersect(region_of(row.when), point).has_value() ==
            (first_failed_condition(row, problem, device) == Condition::none));
  }
}

TEST_CASE("boxes are joined where they touch, and only there", "[coverage]") {
  const Region whole = whole_domain();
  Region low = whole, high = whole;
  low.ranges[1] = {0, 511};
  high.ranges[1].low = 512;
  CHECK(simplify({low, high}) == std::vector<Region>{whole});
  high.ranges[1].low = 513;
  CHECK(simplify({low, high}).size() == 2);
  CHECK(subtract(whole, whole).empty());
  CHECK(simplify(subtract(whole, low)) == std::vector<Region>{[&] {
          Region rest = whole;
          rest.ranges[1].low = 512;
          return rest;
        }()});
}

TEST_CASE("the shipped tables decide every problem, and each of their rows some", "[coverage]") {
  Diagnostics diagnostics;
  const Configuration configuration = load_configuration(source_dir() / "configs", diagnostics);
  REQUIRE(diagnostics.empty());
  REQUIRE(configuration.tables.size() == std::size(kArchitectures));
  for (const Table& table : configuration.tables) {
    INFO(table.name);
    const Coverage coverage = cover(table);
    CHECK(coverage.holes.empty());
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      INFO("line " << table.rows[i].at.line);
      CHECK_FALSE(coverage.decided[i].empty());
    }
  }
}

}  // namespace flashdma_bwd::generator::test
