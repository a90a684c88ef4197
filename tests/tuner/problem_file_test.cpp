// Problem files as the tuner reads them: all that is wrong is a finding with its place, and nothing torn is tuned for.
#include <sys/wait.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "diagnostics/render.hpp"
#include "generator/files.hpp"
#include "selection/problem_text.hpp"
#include "support/catch.hpp"
#include "support/temporary_folder.hpp"
#include "tune/commands/command_line.hpp"
#include "tune/problem_sources.hpp"

namespace flashdma_bwd::tune::test {
namespace {

using generator::test::read;
using generator::test::source_dir;
using generator::test::write;
using testing::TemporaryFolder;

const std::string kHeader = std::string(kProblemFileHeader) + '\n';
const std::string kDense = "bf16 d=64 b=1 h=16 sq=1024 sk=1024";

/// Three bad lines among good ones: a number, a word and a part that is missing.
std::string three_bad() {
  return read(source_dir() / "tests/tuner/cases/problem-file.problems.txt");
}

struct Read {
  std::vector<Problem> problems;
  std::vector<generator::Diagnostic> findings;
  std::string shown;  ///< with the file's path left out
};

Read read_text(const std::string& text) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "bad.txt").string();
  write(path, text);
  Read result;
  generator::Diagnostics diagnostics;
  std::vector<generator::SourceFile> sources;
  add_problem_file(path, result.problems, diagnostics, sources);
  result.findings = diagnostics.sorted();
  result.shown = generator::render_text(diagnostics, sources, false);
  const std::string folder_text = folder.path().string() + '/';
  for (std::size_t at = 0; (at = result.shown.find(folder_text, at)) != std::string::npos;)
    result.shown.erase(at, folder_text.size());
  return result;
}

/// One finding in the second line, which is `line`: the rule, and the text that the caret and its tail underline.
void check_finding(const std::string& line, const std::string& rule, const std::string& underlined) {
  const Read result = read_text(kHeader + line + '\n');
  INFO(result.shown);
  REQUIRE(result.findings.size() == 1);
  const generator::Diagnostic& finding = result.findings[0];
  CHECK(rule_id(finding.rule) == rule);
  CHECK(finding.location.line == 2);
  REQUIRE(finding.location.column >= 1);
  CHECK(line.substr(static_cast<std::size_t>(finding.location.column) - 1,
                    static_cast<std::size_t>(finding.location.length)) == underlined);
}

}  // namespace

TEST_CASE("a good problem file gives its problems and no findings", "[problem-file]") {
  const Read result = read_text(kHeader + "# of a test\r\n\n" + kDense + "\r\n" + kDense + " causal\n");
  INFO(result.shown);
  CHECK(result.findings.empty());
  REQUIRE(result.problems.size() == 2);
  CHECK(problem_text(result.problems[0]) == kDense);
  CHECK(problem_text(result.problems[1]) == kDense + " causal");
  CHECK(read_text(kHeader).findings.empty());
}

TEST_CASE("every bad line of a problem file is a finding", "[problem-file]") {
  const Read result = read_text(three_bad());
  REQUIRE(result.findings.size() == 3);
  const int places[][2] = {{4, 20}, {5, 36}, {8, 1}};
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(result.findings[i].location.line == places[i][0]);
    CHECK(result.findings[i].location.column == places[i][1]);
  }
  CHECK(result.problems.size() == 2);
}

TEST_CASE("a finding of a problem file has its rule and its word", "[problem-file]") {
  check_finding(kDense + "  windows=5 causal", "unknown-key", "windows=5");
  check_finding(kDense + " window=5", "missing-key", "window=5");
  check_finding(kDense + " window=2147483647 causal", "out-of-range", "window=2147483647");
  check_finding(kDense + " sq=4", "duplicate-key", "sq=4");
  check_finding("fp16 " + kDense, "duplicate-key", "bf16");
  check_finding("d=64 b=1 h=16 sq=4 sk=4", "missing-key", "d=64 b=1 h=16 sq=4 sk=4");
  check_finding(kDense + " causal=yes masked", "wrong-type", "causal=yes");
  check_finding(kDense + " masked density", "wrong-type", "density");
  check_finding("bf16 d=60 b=1 h=16 sq=4 sk=4", "out-of-range", "d=60");
  check_finding("bf16 d=64 b= h=16 sq=4 sk=4", "out-of-range", "b=");
  check_finding(kDense + " masked density=1001", "out-of-range", "density=1001");
  check_finding(kDense + " hk=3 causal", "out-of-range", "hk=3");
  const std::string large = "bf16 d=64 b=2147483647 h=2147483647 sq=2147483647 sk=1";
  check_finding(large, "out-of-range", large);
  check_finding(kDense + " bias=row causal", "unknown-value", "bias=row");
  check_finding(kDense + " bias_copies causal", "missing-key", "bias_copies");
  check_finding("layout=reordered " + kDense, "missing-key", "layout=reordered");
}

TEST_CASE("a last line without an end is refused", "[problem-file]") {
  const std::string torn = kDense.substr(0, kDense.size() - 1);  // sk=102 is a problem, but not the one meant
  const Read result = read_text(kHeader + kDense + '\n' + torn);
  INFO(result.shown);
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].location.line == 3);
  CHECK(result.findings[0].location.column == static_cast<int>(torn.size()) + 1);
  CHECK(result.shown.find("bad.txt:3:34: error: the last line has no end, so it may be cut short: complete it with a "
                          "newline, or remove it [file-unreadable]\n") == 0);

  // Where the tear is seen, both are said: the second is why.
  const Read both = read_text(kHeader + "bf16 d=64 b=1 h=16 sq=10");
  REQUIRE(both.findings.size() == 2);
  CHECK(rule_id(both.findings[0].rule) == "missing-key");
  CHECK(rule_id(both.findings[1].rule) == "file-unreadable");

  for (const std::string& text : {std::string(kProblemFileHeader), kHeader + "# a rem", kHeader + kDense + '\r'})
    CHECK(read_text(text).findings.size() == 1);
}

TEST_CASE("another file is refused at its first line", "[problem-file]") {
  for (const std::string text : {"flashdma_bwd problems 2\nanything\n", "\n", "{\"version\":1}"}) {
    const Read result = read_text(text);
    INFO(result.shown);
    REQUIRE(result.findings.size() == 1);
    CHECK(result.shown.find("bad.txt:1:1: error: the first line must be `flashdma_bwd problems 1` [foreign-version]") ==
          0);
  }
  CHECK(read_text("").shown.find("bad.txt:1:1: error: the first line must be `flashdma_bwd problems 1` [file-empty]") ==
        0);
}

TEST_CASE("the program shows all that is wrong with its problem files", "[problem-file]") {
  const TemporaryFolder folder;
  const auto path = [&](const char* name) { return (folder.path() / name).string(); };
  write(path("bad.txt"), three_bad());
  write(path("torn.txt"), kHeader + kDense);
  const int status = std::system(("cd '" + folder.path().string() +
                                  "' && '" FLASHDMA_BWD_TUNE
                                  "' tune --problems bad.txt --problems torn.txt --problems none.txt --store m.jsonl "
                                  "> out 2> err")
                                     .c_str());
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == kFindings);
  CHECK(read(path("out")).empty());
  CHECK_FALSE(std::filesystem::exists(path("m.jsonl")));
  const std::string shown = read(path("err"));
  INFO(shown);
  for (const char* finding :
       {"bad.txt:4:20: error: sq: `x` is no number in 1 ... 2147483647 [out-of-range]\n"
        "  4 | bf16 d=64 b=1 h=16 sq=x sk=1024\n"
        "    |                    ^~~~\n",
        "bad.txt:5:36: error: `casual` is no part of a problem, did you mean `causal`? [unknown-key]\n",
        "bad.txt:8:1: error: `sk=<value>` is missing [missing-key]\n",
        "none.txt: error: the file cannot be read: No such file or directory [file-unreadable]\n",
        "torn.txt:2:35: error: the last line has no end, so it may be cut short: complete it with a newline, or remove "
        "it [file-unreadable]\n",
        "5 errors\n"})
    CHECK(shown.find(finding) != std::string::npos);
}

}  // namespace flashdma_bwd::tune::test
