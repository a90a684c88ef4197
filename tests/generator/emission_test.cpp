// The emitted texts: golden files, and that they depend on nothing but the tables.
#include <algorithm>
#include <clocale>
#include <iostream>
#include <locale>
#include <optional>
#include <string>

#include "config/load.hpp"
#include "config/read.hpp"
#include "emit/emit.hpp"
#include "generator/files.hpp"
#include "support/catch.hpp"

namespace flashdma_bwd::generator::test {
namespace {

std::vector<EmittedFile> emit_from(const std::filesystem::path& configs, const char* profile) {
  Diagnostics diagnostics;
  const Configuration configuration = load_configuration(configs, diagnostics);
  REQUIRE(diagnostics.empty());
  return emit(make_plan(configuration, *find_profile(configuration, profile)));
}

bool same(const std::vector<EmittedFile>& a, const std::vector<EmittedFile>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const EmittedFile& x, const EmittedFile& y) { return x.path == y.path && x.text == y.text; });
}

/// Digits in groups, as in many languages' locales.
struct Grouping : std::numpunct<char> {
  char do_thousands_sep() const override { return '.'; }
  char do_decimal_point() const override { return ','; }
  std::string do_grouping() const override { return "\1"; }
};

}  // namespace

TEST_CASE("the emitted files are the golden ones", "[emit]") {
  for (const char* tree : {"base", "hopper"}) {
    const std::filesystem::path golden = source_dir() / "tests/generator/golden" / tree;
    const std::vector<EmittedFile> files = emit_from(cases_dir() / tree / "configs", "small");
    for (const EmittedFile& file : files) {
      INFO(tree << ": " << file.path);
      check_expected(file.text, golden / file.path);
    }
    CHECK(read_tree(golden).size() == files.size());
  }
}

TEST_CASE("the output does not depend on the locale or on where the tables lie", "[emit]") {
  const std::vector<EmittedFile> usual = emit_from(source_dir() / "configs", "full");
  const TemporaryFolder folder;
  std::filesystem::copy(source_dir() / "configs", folder.path() / "elsewhere",
                        std::filesystem::copy_options::recursive);
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Grouping));
  const std::vector<EmittedFile> other = emit_from(folder.path() / "elsewhere", "full");
  std::locale::global(before);
  CHECK(same(usual, other));
}

TEST_CASE("texts have no carriage returns, trailing blanks or paths of a machine, and end in a newline", "[emit]") {
  for (const EmittedFile& file : emit_from(source_dir() / "configs", "full")) {
    INFO(file.path);
    CHECK(file.text.find('\r') == std::string::npos);
    CHECK(file.text.find(" \n") == std::string::npos);
    CHECK(file.text.find(source_dir().string()) == std::string::npos);
    CHECK(file.text.ends_with('\n'));
    CHECK(file.text.find(kBannerMark) < 100);
  }
}

TEST_CASE("a text that ends in a backslash ends its comment", "[emit]") {
  std::string text = read(source_dir() / "configs/tables/sm80.yaml");
  const std::string quote = "derived: \"";
  const std::size_t begin = text.find(quote) + quote.size();
  text.replace(begin, text.find('"', begin) - begin, "from C:\\\\ ");  // in YAML's double quotes, two are one
  Diagnostics diagnostics;
  Configuration configuration = load_configuration(source_dir() / "configs", diagnostics);
  const std::optional<Table> table = read_table({"sm80.yaml", "sm80.yaml", text}, diagnostics);
  REQUIRE(diagnostics.empty());
  configuration.tables = {*table};
  int mentions = 0;
  for (const EmittedFile& file : emit(make_plan(configuration, *find_profile(configuration, "full")))) {
    INFO(file.path);
    if (!file.path.ends_with(".cu")) continue;
    for (const char* joined : {"\\\n", "\\ \n"}) CHECK(file.text.find(joined) == std::string::npos);
    mentions += file.text.find("from C:\\") != std::string::npos;
  }
  CHECK(mentions > 0);
}

TEST_CASE("files and kernels are sorted by name", "[emit]") {
  Diagnostics diagnostics;
  const Configuration configuration = load_configuration(source_dir() / "configs", diagnostics);
  const Plan plan = make_plan(configuration, *find_profile(configuration, "full"));
  std::vector<std::string> names, paths;
  for (const TranslationUnit& unit : plan.units)
    for (const PlannedKernel& kernel : unit.kernels) names.push_back(kernel.name);
  for (const EmittedFile& file : emit(plan)) paths.push_back(file.path);
  CHECK(std::is_sorted(names.begin(), names.end()));
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  CHECK(std::is_sorted(paths.begin(), paths.end()));
}

}  // namespace flashdma_bwd::generator::test
