// One case for every rule, and transcripts of the verbs: cases/NAME.KIND.yaml or cases/NAME.case, and NAME.expected.
//
// NAME.table.yaml, NAME.architecture.yaml and NAME.profile.yaml are read and validated; expected are the findings as
// text. NAME.case is a list of edits of a copy of cases/base, or of cases/TREE after `tree TREE`, and of command lines
// to run there; expected is what they print.
#include <algorithm>
#include <set>
#include <sstream>
#include <vector>

#include "commands/command_line.hpp"
#include "config/read.hpp"
#include "diagnostics/render.hpp"
#include "generator/files.hpp"
#include "support/catch.hpp"
#include "validation/validate.hpp"

namespace flashdma_bwd::generator::test {
namespace {

namespace fs = std::filesystem;

/// The limits of sm90, or of sm80 for all others.
ArchitectureSpec limits_of(Architecture architecture) {
  Diagnostics diagnostics;
  const fs::path path = cases_dir() / (architecture == Architecture::sm90 ? "hopper/configs/architectures/sm90.yaml"
                                                                          : "base/configs/architectures/sm80.yaml");
  const std::optional<ArchitectureSpec> spec = read_architecture({"limits", "limits", read(path)}, diagnostics);
  REQUIRE(spec);
  return *spec;
}

std::string findings_of(const fs::path& file) {
  const std::string name = file.filename().string();
  const SourceFile source{name, name, read(file)};
  Diagnostics diagnostics;
  if (name.find(".table.") != std::string::npos) {
    if (const std::optional<Table> table = read_table(source, diagnostics)) {
      validate_resources(*table, limits_of(table->architecture), diagnostics);
      if (table->complete) validate_coverage(*table, diagnostics);
    }
  } else if (name.find(".architecture.") != std::string::npos) {
    read_architecture(source, diagnostics);
  } else {
    read_profile(source, diagnostics);
  }
  return render_text(diagnostics, {source}, false);
}

/// Runs a command line in this process, and in the current folder.
std::string transcript(const std::string& arguments) {
  std::vector<std::string> list;
  std::istringstream words(arguments);
  for (std::string word; words >> word;) list.push_back(word);
  std::ostringstream out, err;
  const int code = run_command_line(list, {out, err, false});
  std::string text = "$ flashdma-gen" + (arguments.empty() ? "" : ' ' + arguments) + '\n';
  if (!out.str().empty()) text += "[standard output]\n" + out.str();
  if (!err.str().empty()) text += "[standard error]\n" + err.str();
  return text + "[exit " + std::to_string(code) + "]\n\n";
}

void replace_in(const fs::path& path, const std::string& from, const std::string& to) {
  std::string text = read(path);
  const std::size_t at = text.find(from);
  INFO("replace " << from);
  REQUIRE(at != std::string::npos);
  write(path, text.replace(at, from.size(), to));
}

/// The first word of a line, which is removed from it.
std::string take_word(std::string& line) {
  const std::size_t space = line.find(' ');
  const std::string word = line.substr(0, space);
  line = space == std::string::npos ? "" : line.substr(space + 1);
  return word;
}

std::string run_case(const fs::path& file) {
  const TemporaryFolder folder;
  fs::copy(cases_dir() / "base", folder.path(), fs::copy_options::recursive);
  const fs::path home = fs::current_path();
  fs::current_path(folder.path());
  std::istringstream lines(read(file));
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    const std::string verb = take_word(line);
    if (verb == "run") {
      text += transcript(line);
      continue;
    }
    const fs::path path = take_word(line);
    if (verb == "tree") {
      fs::remove_all("configs");
      fs::copy(cases_dir() / path, ".", fs::copy_options::recursive);
    } else if (verb == "remove") {
      fs::remove(path);
    } else if (verb == "rename") {
      fs::rename(path, line);
    } else if (verb == "copy") {
      fs::copy(path, line, fs::copy_options::recursive);
    } else if (verb == "folder") {
      fs::create_directories(path);
    } else if (verb == "write") {
      write(path, line + '\n');
    } else if (verb == "append") {
      write(path, read(path) + line + '\n');
    } else if (verb == "replace") {
      const std::size_t arrow = line.find(" => ");
      REQUIRE(arrow != std::string::npos);
      replace_in(path, line.substr(0, arrow), line.substr(arrow + 4));
    } else {
      FAIL(file << " has an unknown line: " << verb);
    }
  }
  fs::current_path(home);
  return text;
}

}  // namespace

TEST_CASE("files with mistakes are diagnosed as expected", "[cases]") {
  for (const fs::path& file : files_ending(cases_dir(), ".yaml")) {
    INFO(file.filename().string());
    const std::string findings = findings_of(file);
    CHECK_FALSE(findings.empty());
    check_expected(findings, expected_of(file));
  }
}

TEST_CASE("command lines print what is expected", "[cases]") {
  for (const fs::path& file : files_ending(cases_dir(), ".case")) {
    INFO(file.filename().string());
    check_expected(run_case(file), expected_of(file));
  }
}

TEST_CASE("every rule has a case file of its name that reports it", "[cases]") {
  for (const RuleDescription& rule : all_rules()) {
    const std::string id(rule.id);
    INFO(id);
    // Rules of measurements and of the edit of a table are the tuner's.
    fs::path folder = cases_dir();
    if (!fs::exists(folder / (id + ".expected"))) folder = source_dir() / "tests/tuner/cases";
    const fs::path expected = folder / (id + ".expected");
    CHECK(read(expected).find('[' + id + ']') != std::string::npos);
    const fs::directory_iterator files(folder);
    CHECK(std::count_if(begin(files), end(files), [&](const fs::directory_entry& entry) {
            return entry.path() != expected && expected_of(entry.path()) == expected;
          }) == 1);
  }
}

TEST_CASE("every expected text belongs to a case", "[cases]") {
  std::set<std::string> cases;
  for (const char* ending : {".yaml", ".case"})
    for (const fs::path& file : files_ending(cases_dir(), ending)) cases.insert(expected_of(file).filename().string());
  for (const fs::path& file : files_ending(cases_dir(), ".expected")) {
    INFO(file.filename().string());
    CHECK(cases.contains(file.filename().string()));
  }
}

TEST_CASE("rule ids are unique and in kebab case", "[rules]") {
  std::set<std::string_view> ids;
  for (const RuleDescription& rule : all_rules()) {
    CHECK(ids.insert(rule.id).second);
    CHECK(rule.id.find_first_not_of("abcdefghijklmnopqrstuvwxyz-") == std::string_view::npos);
    CHECK_FALSE(rule.summary.empty());
  }
}

}  // namespace flashdma_bwd::generator::test
