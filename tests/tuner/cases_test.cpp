// A case for every rule of measurements and of the edit of a table: cases/NAME.KIND, and NAME.expected.
//
// NAME.store.jsonl is read as a store of measurements, NAME.cache.jsonl as a run-time cache, NAME.problems.txt as a
// problem file; NAME.table.yaml is a table in order that is edited. Expected are the findings as text. Other files,
// without a KIND, belong to the test that names them.
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/read.hpp"
#include "diagnostics/render.hpp"
#include "generator/files.hpp"
#include "support/catch.hpp"
#include "tune/cache_choices.hpp"
#include "tune/problem_sources.hpp"
#include "tune/store.hpp"
#include "tuner/timing_model.hpp"
#include "tuning/edit_table.hpp"

namespace flashdma_bwd::tune::test {
namespace {

namespace fs = std::filesystem;
using generator::Diagnostics;
using generator::SourceFile;
using generator::test::check_expected;
using generator::test::expected_of;
using generator::test::files_ending;
using generator::test::read;
using generator::test::source_dir;

constexpr std::string_view kKinds[] = {".store.jsonl", ".cache.jsonl", ".problems.txt", ".table.yaml"};

/// Without a row to put in. What is found is in the text that comes out.
SourceFile edited_table(const SourceFile& source, Diagnostics& diagnostics) {
  const std::optional<generator::Table> table = read_table(source, diagnostics);
  REQUIRE(table);
  REQUIRE(diagnostics.empty());
  const generator::Configuration shipped = generator::test::shipped();
  SourceFile edited;
  CHECK_FALSE(
      edit_table(source, *table, *find_architecture(shipped, table->architecture), {}, {}, {}, edited, diagnostics));
  return edited;
}

std::string findings_of(const fs::path& file) {
  const std::string name = file.filename().string();
  SourceFile source{name, name, read(file)};
  Diagnostics diagnostics;
  if (name.ends_with(".store.jsonl")) {
    read_store(source, diagnostics);
  } else if (name.ends_with(".cache.jsonl")) {
    CHECK(read_choices(source, diagnostics).records.empty());
  } else if (name.ends_with(".problems.txt")) {
    const fs::path home = fs::current_path();
    fs::current_path(file.parent_path());  // so that findings name the file alone
    std::vector<Problem> problems;
    std::vector<SourceFile> sources;
    add_problem_file(name, problems, diagnostics, sources);
    fs::current_path(home);
  } else {
    source = edited_table(source, diagnostics);
  }
  return render_text(diagnostics, {source}, false);
}

}  // namespace

TEST_CASE("files with mistakes are diagnosed as expected", "[cases]") {
  const fs::path folder = source_dir() / "tests/tuner/cases";
  std::set<fs::path> expected;
  for (const std::string_view kind : kKinds)
    for (const fs::path& file : files_ending(folder, kind)) {
      INFO(file.filename().string());
      const std::string findings = findings_of(file);
      CHECK_FALSE(findings.empty());
      check_expected(findings, expected_of(file));
      CHECK(expected.insert(expected_of(file)).second);
    }
  for (const fs::path& file : files_ending(folder, ".expected")) {
    INFO(file.filename().string() << " belongs to a case");
    CHECK(expected.contains(file));
  }
}

}  // namespace flashdma_bwd::tune::test
