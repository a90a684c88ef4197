// The edit of a table's text: what comes in, what stays, what is refused.
#include "tuning/edit_table.hpp"

#include <algorithm>

#include "config/read.hpp"
#include "diagnostics/render.hpp"
#include "generator/files.hpp"
#include "support/catch.hpp"
#include "tuner/timing_model.hpp"

namespace flashdma_bwd::generator::test {
namespace {

namespace fs = std::filesystem;

fs::path tuner_cases() {
  return source_dir() / "tests/tuner/cases";
}

const MeasuredWhere kWhere{"NVIDIA \"H200\"", 132, "CUDA 13.0", "580.159.04", "0123456789ab"};

/// A measured problem on which `tile` beats `other`.
MeasuredProblem duel(int head_dim, std::int64_t seqlen, const TileConfig& tile, const TileConfig& other) {
  Problem problem = dense_problems(head_dim, seqlen, seqlen, {16}).back();
  return {problem, {{tile, {1.0625, 0.0125}, {1, 0.01}}, {other, {1.25, 0.02}, {1.2, 0.02}}}, "2025-11-22"};
}

TunedRow row_for(const MeasuredProblem& measured, const When& when) {
  return {when, measured.tiles[0].tile, &measured, &measured.tiles[1], 7, 0.0213};
}

struct Read {
  SourceFile source;
  std::optional<Table> table;
};

Read read_case(const std::string& name) {
  Read result{{"tables/" + name, "configs/tables/" + name, read(tuner_cases() / name)}, {}};
  Diagnostics diagnostics;
  result.table = read_table(result.source, diagnostics);
  INFO(render_text(diagnostics, {result.source}, false));
  REQUIRE(diagnostics.empty());
  REQUIRE(result.table);
  return result;
}

ArchitectureSpec limits(Architecture architecture) {
  return *find_architecture(shipped(), architecture);
}

constexpr TileConfig kWide{KernelFamily::ampere, 64, 128, 8, 2, 2, 2, 2, 1, false};
constexpr TileConfig kNarrow{KernelFamily::ampere, 64, 64, 8, 2, 2, 2, 2, 2, false};

When short_ones(int head_dim) {
  When when;
  when.head_dim = head_dim;
  when.data_types.bits = 2;
  when.causal = Choice::yes;
  when.seqlen_q = {256, 1024};
  when.work_items_per_sm = {3, 3};
  return when;
}

}  // namespace

TEST_CASE("tuned rows go before those of their head dim, all else stays", "[edit]") {
  const Read before = read_case("edit-before.yaml");
  const MeasuredProblem first = duel(128, 1024, kNarrow, kWide), second = duel(64, 512, kNarrow, kWide);
  const TunedRow rows[] = {row_for(first, short_ones(128)), row_for(second, short_ones(64))};
  SourceFile edited;
  Diagnostics diagnostics;
  const std::optional<Table> after =
      edit_table(before.source, *before.table, limits(Architecture::sm80), rows, {}, kWhere, edited, diagnostics);
  INFO(render_text(diagnostics, {edited}, false));
  REQUIRE(after);
  CHECK(after->rows.size() == before.table->rows.size() + 2);
  check_expected(edited.text, tuner_cases() / "edit-after.yaml");
}

TEST_CASE("no rows, no change", "[edit]") {
  for (const char* name : {"edit-before.yaml", "edit-after.yaml"}) {
    const Read before = read_case(name);
    SourceFile edited;
    Diagnostics diagnostics;
    REQUIRE(edit_table(before.source, *before.table, limits(Architecture::sm80), {}, {}, kWhere, edited, diagnostics));
    CHECK(edited.text == before.source.text);
  }
  const Configuration configuration = shipped();
  for (const Table& table : configuration.tables) {
    const SourceFile* source = find_source(configuration.sources, table.at.file);
    REQUIRE(source != nullptr);
    SourceFile edited;
    Diagnostics diagnostics;
    REQUIRE(edit_table(*source, table, limits(table.architecture), {}, {}, kWhere, edited, diagnostics));
    CHECK(edited.text == source->text);
  }
}

TEST_CASE("rows that measurements back say so, and keep what people wrote of them", "[edit]") {
  const Read before = read_case("edit-before.yaml");
  const TableRow& remarked = before.table->rows[1];  // d 64: a comment before it and one behind it
  REQUIRE(remarked.when.head_dim == 64);
  const MeasuredProblem measured = duel(64, 512, remarked.use, kWide);
  const std::vector<RowEvidence> evidence = evidence_of(*before.table, {}, {80, 108, 166912}, std::span(&measured, 1));
  REQUIRE(evidence[1].backing == Backing::backed);
  SourceFile edited;
  Diagnostics diagnostics;
  const std::optional<Table> after =
      edit_table(before.source, *before.table, limits(Architecture::sm80), {}, evidence, kWhere, edited, diagnostics);
  INFO(render_text(diagnostics, {edited}, false));
  REQUIRE(after);
  check_expected(edited.text, tuner_cases() / "edit-measured.yaml");
  CHECK(after->rows[1].provenance == ProvenanceKind::measured);
  CHECK(after->rows[1].derived == remarked.derived);
  CHECK(after->rows[0].provenance == ProvenanceKind::derived);

  // Measured again, it says the new times and is no longer than before.
  MeasuredProblem later = measured;
  for (MeasuredTile& tile : later.tiles) tile.cold.ms *= 2;
  const std::vector<RowEvidence> anew = evidence_of(*after, {}, {80, 108, 166912}, std::span(&later, 1));
  SourceFile again;
  REQUIRE(edit_table(edited, *after, limits(Architecture::sm80), {}, anew, kWhere, again, diagnostics));
  CHECK(again.text.find("ms: 2.125,") != std::string::npos);
  CHECK(again.text.find("ms: 1.062,") == std::string::npos);
  CHECK(std::ranges::count(again.text, '\n') == std::ranges::count(before.source.text, '\n'));
}

TEST_CASE("what stands behind a row that is measured stays, whatever braces and quotes are in it", "[edit]") {
  struct Text {
    const char *yaml, *derived;
  };
  for (const Text& one : {Text{R"("two \"}\" 'share' {a} \\")", R"(two "}" 'share' {a} \)"},
                          Text{R"('it''s "}')", R"(it's "})"}, Text{R"(it's "two")", R"(it's "two")"}}) {
    Read before = read_case("edit-before.yaml");
    const std::string text = "derived: \"two share a multiprocessor\"}  # and one behind it";
    const std::size_t at = before.source.text.find(text);
    REQUIRE(at != std::string::npos);
    before.source.text.replace(at, text.size(), "derived: " + std::string(one.yaml) + R"(}  # {one} "behind" it's)");
    Diagnostics diagnostics;
    before.table = read_table(before.source, diagnostics);
    REQUIRE(before.table);
    const MeasuredProblem measured = duel(64, 512, before.table->rows[1].use, kWide);
    SourceFile edited;
    const std::optional<Table> after = edit_table(
        before.source, *before.table, limits(Architecture::sm80), {},
        evidence_of(*before.table, {}, {80, 108, 166912}, std::span(&measured, 1)), kWhere, edited, diagnostics);
    INFO(render_text(diagnostics, {edited}, false));
    REQUIRE(after);
    CHECK(after->rows[1].derived == one.derived);
    CHECK(edited.text.find("worst_regret_percent: 0}}  # {one} \"behind\" it's\n") != std::string::npos);
  }
}

TEST_CASE("a row that the tuned ones leave nothing to decide is taken out", "[edit]") {
  const Read before = read_case("edit-after.yaml");
  const MeasuredProblem again = duel(128, 1024, kWide, kNarrow);
  When wider = short_ones(128);
  wider.seqlen_q = {256, 4096};
  const TunedRow rows[] = {row_for(again, wider)};
  SourceFile edited;
  Diagnostics diagnostics;
  const std::optional<Table> after =
      edit_table(before.source, *before.table, limits(Architecture::sm80), rows, {}, kWhere, edited, diagnostics);
  INFO(render_text(diagnostics, {edited}, false));
  REQUIRE(after);
  CHECK(after->rows.size() == before.table->rows.size());
  for (const TableRow& row : after->rows) CHECK(row.when != short_ones(128));
}

TEST_CASE("the edited text of every shipped table is one that the generator takes", "[edit]") {
  const Configuration configuration = shipped();
  const Table& table = table_of(configuration, Architecture::sm90);
  const std::vector<Row> rows = rows_of(table);
  const std::vector<MeasuredProblem> measured =
      measure(configuration, dense_problems(128, 256, 32768, {1, 16, 64}), 11);
  const std::vector<TunedRow> tuned = merge(rows, Architecture::sm90, kDevice, measured);
  REQUIRE(tuned.size() > 1);
  SourceFile edited;
  Diagnostics diagnostics;
  const std::optional<Table> after = edit_table(*find_source(configuration.sources, table.at.file), table,
                                                limits(Architecture::sm90), tuned, {}, kWhere, edited, diagnostics);
  INFO(render_text(diagnostics, {edited}, false));
  REQUIRE(after);
  std::size_t added = 0;
  for (const TableRow& row : after->rows) {
    if (std::ranges::find(table.rows, row.provenance_text, &TableRow::provenance_text) != table.rows.end()) continue;
    ++added;
    CHECK(row.provenance == ProvenanceKind::measured);
    CHECK(row.provenance_text.find("132 SMs, CUDA 13.0, driver 580.159.04, 2025-11-22, commit 0123456789ab, ") !=
          std::string::npos);
    CHECK(row.provenance_text.find(", spread ") != std::string::npos);
  }
  CHECK(added == tuned.size());
}

TEST_CASE("rows that the table would be refused for are not written", "[edit]") {
  const Read before = read_case("edit-before.yaml");
  TileConfig too_large = kWide;
  too_large.block_m = 128;
  const MeasuredProblem measured = duel(256, 1024, too_large, kWide);
  const TunedRow rows[] = {row_for(measured, short_ones(256))};
  SourceFile edited;
  Diagnostics diagnostics;
  CHECK_FALSE(
      edit_table(before.source, *before.table, limits(Architecture::sm80), rows, {}, kWhere, edited, diagnostics));
  CHECK(render_text(diagnostics, {edited}, false).find("[shared-memory]") != std::string::npos);
}

}  // namespace flashdma_bwd::generator::test
