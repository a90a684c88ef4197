// The named grids are what the table is to be tuned on and judged by.
#include "tuning/grids.hpp"

#include <algorithm>
#include <set>

#include "config/model.hpp"
#include "selection/problem_text.hpp"
#include "selection/row_text.hpp"
#include "selection/select_kernel.hpp"
#include "support/catch.hpp"
#include "tuner/timing_model.hpp"

namespace flashdma_bwd::generator::test {
namespace {

std::vector<Problem> grid(std::string_view name) {
  for (const Grid& candidate : all_grids())
    if (candidate.name == name) return candidate.problems();
  FAIL("no such grid");
  return {};
}

std::set<std::string> texts(const std::vector<Problem>& problems) {
  std::set<std::string> result;
  for (const Problem& problem : problems) result.insert(problem_text(problem));
  return result;
}

}  // namespace

TEST_CASE("the problems of a grid are valid, different and can be tuned", "[grids]") {
  const Configuration configuration = shipped();
  for (const Grid& candidate : all_grids()) {
    const std::vector<Problem> problems = candidate.problems();
    INFO(candidate.name);
    CHECK(texts(problems).size() == problems.size());
    for (const Problem& problem : problems) {
      INFO(problem_text(problem));
      const Parsed<Problem> parsed = parse_problem_text(problem_text(problem));
      REQUIRE(parsed);
      CHECK(*parsed.value == problem);
      CHECK(shipped_tiles(*find_architecture(configuration, Architecture::sm90), problem).size() > 1);
    }
  }
}

TEST_CASE("the grid of sm90 has 200 problems and reaches as far as it says", "[grids]") {
  const std::vector<Problem> problems = grid("sm90");
  CHECK(problems.size() >= 200);
  const auto all = [&](auto&& of) {
    std::set<std::int64_t> values;
    for (const Problem& problem : problems) values.insert(static_cast<std::int64_t>(of(problem)));
    return values;
  };
  CHECK(all([](const Problem& p) { return p.head_dim; }).size() == std::size(kHeadDimBuckets));
  CHECK(all([](const Problem& p) { return p.data_type; }).size() == std::size(kDataTypes));
  CHECK(all([](const Problem& p) { return p.bias; }).size() == std::size(kBiasKinds));
  CHECK(all([](const Problem& p) { return p.layout; }).size() == std::size(kKeyLayouts));
  CHECK(all([](const Problem& p) { return p.causal; }).size() == 2);
  CHECK(all([](const Problem& p) { return p.mask_density; }).size() >= 4);
  const std::set<std::int64_t> lengths = all([](const Problem& p) { return p.seqlen_q; });
  CHECK(*lengths.begin() == 256);
  CHECK(*lengths.rbegin() == 32768);
  const std::set<std::int64_t> heads = all([](const Problem& p) { return p.batch * p.heads; });
  CHECK(*heads.begin() == 1);
  CHECK(*heads.rbegin() == 128);
}

TEST_CASE("every row of sm90's table decides a problem of its grid", "[grids]") {
  const Configuration configuration = shipped();
  const Table& table = table_of(configuration, Architecture::sm90);
  const std::vector<Row> rows = rows_of(table);
  std::set<int> decided;
  for (const Problem& problem : grid("sm90")) {
    const SelectionResult selection = select_among(Architecture::sm90, kDevice, problem, rows);
    REQUIRE(selection.status == SelectionStatus::ok);
    decided.insert(selection.row->line);
  }
  // One row is for masks of regular structure, which the grid does not have: documents packed in one row, for example.
  Problem documents;
  documents.head_dim = 128;
  documents.data_type = DataType::bf16;
  documents.masked = true;
  documents.mask_density = 250;
  documents.batch = 2;
  documents.heads = documents.heads_kv = 16;
  documents.seqlen_q = documents.seqlen_k = 4096;
  const SelectionResult regular = select_among(Architecture::sm90, kDevice, documents, rows);
  REQUIRE(regular.status == SelectionStatus::ok);
  CHECK_FALSE(decided.contains(regular.row->line));
  decided.insert(regular.row->line);
  for (const Row& row : rows) {
    INFO(row_text(row));
    CHECK(decided.contains(row.line));
  }
}

TEST_CASE("66 problems are held back, none of them in the grid that they judge", "[grids]") {
  const std::set<std::string> tuned_on = texts(grid("sm90")), held_back = texts(grid("sm90-held-back"));
  CHECK(held_back.size() == 66);
  for (const std::string& text : held_back) {
    INFO(text);
    CHECK_FALSE(tuned_on.contains(text));
  }
}

}  // namespace flashdma_bwd::generator::test
