// Which rows measurements back: a verdict for each way to be backed or not.
#include "tuning/row_evidence.hpp"

#include <cmath>

#include "support/catch.hpp"
#include "tuner/timing_model.hpp"

namespace flashdma_bwd::generator::test {
namespace {

constexpr TileConfig kWide{KernelFamily::ampere, 64, 128, 8, 2, 2, 2, 2, 1, false};
constexpr TileConfig kNarrow{KernelFamily::ampere, 64, 64, 8, 2, 2, 2, 2, 2, false};
constexpr TileConfig kThird{KernelFamily::ampere, 128, 64, 8, 2, 2, 2, 2, 1, false};

/// Up to 1024 queries the narrow tile, else the wide one.
Table two_rows() {
  Table table;
  table.architecture = Architecture::sm90;
  table.rows.resize(2);
  table.rows[0].when.head_dim = table.rows[1].when.head_dim = 128;
  table.rows[0].when.seqlen_q = {0, 1024};
  table.rows[0].use = kNarrow;
  table.rows[0].derived = "few keys";
  table.rows[1].use = kWide;
  return table;
}

struct Timed {
  TileConfig tile;
  double ms;
};

MeasuredProblem problem(std::int64_t seqlen, std::initializer_list<Timed> times) {
  MeasuredProblem result{dense_problems(128, seqlen, seqlen, {16}).back(), {}, "2025-11-22"};
  for (const Timed& time : times) result.tiles.push_back({time.tile, {time.ms, 0.001}, {time.ms, 0.001}});
  return result;
}

std::vector<RowEvidence> judge(const Table& table, const std::vector<MeasuredProblem>& measured,
                               const std::vector<TunedRow>& added = {}) {
  return evidence_of(table, added, kDevice, measured);
}

Backing of_first(const std::vector<MeasuredProblem>& measured) {
  const Table table = two_rows();
  return judge(table, measured)[0].backing;
}

}  // namespace

TEST_CASE("a row that is the fastest somewhere and near the best everywhere is backed", "[evidence]") {
  const Table table = two_rows();
  const std::vector<MeasuredProblem> measured{problem(256, {{kNarrow, 1}, {kWide, 1.5}}),
                                              problem(512, {{kNarrow, 2}, {kWide, 2.5}, {kThird, 2.25}}),
                                              problem(1024, {{kNarrow, 4.08}, {kWide, 4}})};
  const std::vector<RowEvidence> evidence = judge(table, measured);
  REQUIRE(evidence.size() == 2);
  CHECK(evidence[0].row == &table.rows[0]);
  CHECK(evidence[0].backing == Backing::backed);
  const TunedRow& record = evidence[0].record;
  CHECK(record.when == table.rows[0].when);
  CHECK(record.use == kNarrow);
  CHECK(record.derived == "few keys");
  CHECK(record.problems == 3);
  CHECK(record.shown == &measured[1]);  // the longest on which it is the fastest
  CHECK(record.runner_up->tile == kThird);
  CHECK(std::abs(record.worst_regret - 0.02) < 1e-9);
  CHECK(evidence[0].worst == &measured[2]);
  CHECK(evidence[1].backing == Backing::no_problem);
}

TEST_CASE("what keeps a row from being backed is told apart", "[evidence]") {
  CHECK(of_first({}) == Backing::no_problem);
  CHECK(of_first({problem(2048, {{kNarrow, 1}, {kWide, 2}})}) == Backing::no_problem);
  CHECK(of_first({problem(512, {{kWide, 2}, {kThird, 1}})}) == Backing::not_timed);
  CHECK(of_first({problem(512, {{kNarrow, 1}})}) == Backing::no_rival);
  CHECK(of_first({problem(512, {{kNarrow, 1.02}, {kWide, 1}})}) == Backing::never_fastest);
  CHECK(of_first({problem(512, {{kNarrow, 1.04}, {kWide, 1}})}) == Backing::too_slow);
  // One problem on which it loses outweighs those that it wins.
  CHECK(of_first({problem(256, {{kNarrow, 1}, {kWide, 2}}), problem(512, {{kNarrow, 1.04}, {kWide, 1}})}) ==
        Backing::too_slow);
  // Slower than the bound, but by no more than the rounds differ.
  MeasuredProblem noisy = problem(512, {{kNarrow, 1.04}, {kWide, 1}});
  noisy.tiles[0].cold.spread_ms = 0.05;
  CHECK(of_first({noisy}) == Backing::never_fastest);
  // A time that is not known is no evidence.
  MeasuredProblem bounded = problem(512, {{kNarrow, 1.01}, {kWide, 1}});
  bounded.tiles[0].evidence = Evidence::at_least;
  CHECK(of_first({bounded}) == Backing::too_slow);
}

TEST_CASE("what rows before it decide is no evidence for a row", "[evidence]") {
  const Table table = two_rows();
  const std::vector<MeasuredProblem> measured{problem(256, {{kNarrow, 1.5}, {kWide, 1}}),
                                              problem(512, {{kNarrow, 1}, {kWide, 1.5}})};
  CHECK(judge(table, measured)[0].backing == Backing::too_slow);
  When shortest = table.rows[0].when;
  shortest.seqlen_q = {256, 256};
  const MeasuredProblem* decided = measured.data();
  const std::vector<RowEvidence> evidence =
      judge(table, measured, {tuned_row(shortest, kWide, std::span(&decided, 1))});
  CHECK(evidence[0].backing == Backing::backed);
  CHECK(evidence[0].record.problems == 1);
}

}  // namespace flashdma_bwd::generator::test
