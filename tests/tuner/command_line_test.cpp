// The verbs from end to end, with a device that is none: a table is tuned, interrupted, resumed, refused.
#include "tune/commands/command_line.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "config/load.hpp"
#include "generator/files.hpp"
#include "plan/plan.hpp"
#include "selection/configuration_name.hpp"
#include "selection/problem_text.hpp"
#include "support/catch.hpp"
#include "support/in_child.hpp"
#include "support/temporary_folder.hpp"
#include "tuner/fake_device.hpp"
#include "tuner/timing_model.hpp"
#include "validation/validate.hpp"

namespace flashdma_bwd::tune::test {
namespace {

namespace fs = std::filesystem;
using generator::test::read;
using generator::test::source_dir;
using generator::test::write;
using testing::TemporaryFolder;

struct Outcome {
  int code = -1;
  std::string out, err;
};

/// A copy of configs/, problems, and a GPU that has the kernels of the tables and some more.
struct Workshop {
  TemporaryFolder folder;
  FakeGpu gpu;
  double now = 0;
  std::vector<std::vector<std::string>> commands;  ///< that were to be run
  std::function<int(const std::vector<std::string>&)> run = [](const std::vector<std::string>&) { return 0; };

  Workshop() {
    fs::copy(source_dir() / "configs", folder.path() / "configs", fs::copy_options::recursive);
    std::string text = std::string(kProblemFileHeader) + "\n# of a test\n";
    for (const Problem& problem : generator::test::dense_problems(128, 512, 8192, {4, 64}))
      text += problem_text(problem) + '\n';
    write(path("problems.txt"), text);
    const generator::Configuration configuration = generator::test::shipped();
    const Problem problem = generator::test::dense_problems(128, 512, 512, {4}).front();
    for (const Problem& p : {problem, generator::test::dense_problems(128, 512, 512, {4}).back()})
      for (const Task& task : make_tasks(configuration, Architecture::sm90, generator::test::kDevice,
                                         std::vector<Problem>{p}, LoopOptions{}))
        gpu.kernels.insert(gpu.kernels.end(), task.kernels.begin(), task.kernels.end());
    std::ranges::sort(gpu.kernels);
  }
  std::string path(const std::string& name) const { return (folder.path() / name).string(); }
  std::string table() const { return path("configs/tables/sm90.yaml"); }

  Outcome run_line(std::vector<std::string> arguments) {
    std::ostringstream out, err;
    const Surroundings surroundings{out,
                                    err,
                                    false,
                                    false,
                                    "/where/programs/lie",
                                    [this](const std::string&) { return std::make_unique<FakeDevice>(gpu); },
                                    [this](const std::vector<std::string>& command, const fs::path&) {
                                      commands.push_back(command);
                                      return run(command);
                                    },
                                    [this] { return now += 1; },
                                    [] { return std::string("2025-11-22"); }};
    const int code = run_command_line(std::move(arguments), surroundings);
    return {code, out.str(), err.str()};
  }
  Outcome tune(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"tune",      "--problems",    path("problems.txt"), "--store",  path("m.jsonl"),
                                       "--configs", path("configs"), "--compiled-only",    "--commit", "0123456789ab"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_line(arguments);
  }
};

constexpr std::size_t kProblems = 40;  // of the workshop's file

bool is_valid(const fs::path& configs) {
  generator::Diagnostics diagnostics;
  validate(generator::load_configuration(configs, diagnostics), diagnostics);
  return diagnostics.empty();
}

/// The rows that people wrote, without what the tuner wrote into them, and all other lines.
std::string by_people(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t measured = line.find(", measured: {");
    if (measured == std::string::npos)
      result += line + '\n';
    else if (line.find(", derived: \"") != std::string::npos)
      result += line.substr(0, measured) + "}\n";
  }
  return result;
}

}  // namespace

TEST_CASE("a tuned table is valid, keeps its lines and is within the bound", "[command-line]") {
  Workshop workshop;
  const std::string before = read(workshop.table());
  const Outcome outcome = workshop.tune();
  INFO(outcome.out << outcome.err);
  REQUIRE(outcome.code == kFine);
  CHECK(workshop.gpu.requests.size() == kProblems);
  const std::string after = read(workshop.table());
  CHECK(after != before);
  CHECK(by_people(after) == by_people(before));
  CHECK(outcome.out.find("rows are backed") == std::string::npos);
  CHECK(outcome.out.find(" are backed: within the bound") != std::string::npos);
  CHECK(outcome.out.find(" no measured problem is one of its own\n") != std::string::npos);
  CHECK(is_valid(workshop.path("configs")));
  CHECK(outcome.out.find("cross-validated") != std::string::npos);
  CHECK(outcome.err.find("40 of 40: ") != std::string::npos);

  // The table as it is now needs no row, and nothing is measured again.
  const Outcome again = workshop.tune();
  CHECK(again.code == kFine);
  CHECK(workshop.gpu.requests.size() == kProblems);
  CHECK(again.out.find("no row is asked for") != std::string::npos);
  CHECK(again.err.find("40 of 40 problems are measured already") != std::string::npos);
  CHECK(again.out.find("/sm90.yaml: says all of this already\n") != std::string::npos);
  CHECK(read(workshop.table()) == after);

  const Outcome report = workshop.run_line({"report", workshop.path("m.jsonl"), "--configs", workshop.path("configs")});
  CHECK(report.code == kFine);
  CHECK(report.out.find("no row is asked for") != std::string::npos);
  CHECK(report.out.find(
            "sm90, measured on NVIDIA H200, 132 SMs, CUDA 13.0, driver 580.159.04, commit 0123456789ab\n") == 0);
}

TEST_CASE("an interrupted run goes on where it was", "[command-line]") {
  Workshop workshop;
  workshop.gpu.before = [&](const Request&) -> std::string {
    if (workshop.gpu.requests.size() == 11) throw std::runtime_error("the power went");
    return {};
  };
  CHECK_THROWS(workshop.tune());
  workshop.gpu.before = nullptr;
  const std::string stored = read(workshop.path("m.jsonl"));
  CHECK(std::ranges::count(stored, '\n') == 10);
  write(workshop.path("m.jsonl"), stored + "{\"version\":1,\"prob");
  workshop.gpu.requests.clear();
  const Outcome outcome = workshop.tune();
  INFO(outcome.err);
  CHECK(outcome.code == kFine);
  CHECK(outcome.err.find("m.jsonl:11: warning: the last line has no end") != std::string::npos);
  CHECK(workshop.gpu.requests.size() == kProblems - 10);
  const std::string whole = read(workshop.path("m.jsonl"));
  CHECK(whole.starts_with(stored));
  CHECK(std::ranges::count(whole, '\n') == kProblems);

  Workshop uninterrupted;
  REQUIRE(uninterrupted.tune().code == kFine);
  CHECK(read(uninterrupted.table()) == read(workshop.table()));
}

TEST_CASE("another driver, or a kernel that was not timed, is measured anew", "[command-line]") {
  Workshop workshop;
  REQUIRE(workshop.tune({"--keep-table"}).code == kFine);
  workshop.gpu.requests.clear();
  workshop.gpu.environment.driver = "590.1";
  REQUIRE(workshop.tune({"--keep-table"}).code == kFine);
  CHECK(workshop.gpu.requests.size() == kProblems);
  workshop.gpu.requests.clear();
  workshop.gpu.environment.table_hash = "another";  // the table chooses among kernels, it does not change them
  REQUIRE(workshop.tune({"--keep-table"}).code == kFine);
  CHECK(workshop.gpu.requests.empty());
  const Outcome report = workshop.run_line({"report", workshop.path("m.jsonl"), "--configs", workshop.path("configs")});
  CHECK(report.err.find("40 measurements of another GPU, driver, toolkit or commit") != std::string::npos);
}

TEST_CASE("candidates of several runs are put together", "[command-line]") {
  Workshop workshop;
  REQUIRE(workshop.tune({"--keep-table", "--filter", "items"}).code == kFine);
  REQUIRE(workshop.tune({"--keep-table", "--filter", "_q3_"}).code == kFine);
  CHECK(workshop.gpu.requests.size() == 2 * kProblems);
  const Outcome together =
      workshop.run_line({"report", workshop.path("m.jsonl"), "--configs", workshop.path("configs")});
  Workshop at_once;
  REQUIRE(at_once.tune({"--keep-table", "--filter", "items", "--filter", "_q3_"}).code == kFine);
  CHECK(at_once.gpu.requests.size() == kProblems);
  const Outcome once = at_once.run_line({"report", at_once.path("m.jsonl"), "--configs", at_once.path("configs")});
  CHECK(together.out == once.out);
}

TEST_CASE("options alone are those of tune", "[command-line]") {
  Workshop workshop;
  const Outcome outcome =
      workshop.run_line({"--problems", workshop.path("problems.txt"), "--store", workshop.path("m.jsonl"), "--configs",
                         workshop.path("configs"), "--compiled-only", "--keep-table"});
  CHECK(outcome.code == kFine);
  CHECK(workshop.gpu.requests.size() == kProblems);
  CHECK(workshop.run_line({"--help"}).code == kFine);
}

TEST_CASE("a store's report writes the table that tuning would have written", "[command-line]") {
  Workshop there;
  REQUIRE(there.tune().code == kFine);
  Workshop here;
  REQUIRE(here.tune({"--keep-table"}).code == kFine);
  const std::string before = read(here.table());
  const std::vector<std::string> line{"report", here.path("m.jsonl"), "--configs", here.path("configs")};
  REQUIRE(here.run_line(line).code == kFine);
  CHECK(read(here.table()) == before);
  std::vector<std::string> writing = line;
  writing.emplace_back("--write-table");
  const Outcome outcome = here.run_line(writing);
  INFO(outcome.out << outcome.err);
  CHECK(outcome.code == kFine);
  CHECK(read(here.table()) == read(there.table()));
  CHECK(is_valid(here.path("configs")));

  const Outcome again = here.run_line(writing);
  CHECK(again.code == kFine);
  CHECK(again.out.find("no row is asked for") != std::string::npos);
  CHECK(read(here.table()) == read(there.table()));
}

TEST_CASE("--keep-table and --dry-run leave the table as it is", "[command-line]") {
  Workshop workshop;
  const std::string before = read(workshop.table());
  CHECK(workshop.tune({"--keep-table"}).code == kFine);
  CHECK(read(workshop.table()) == before);
  workshop.gpu.requests.clear();
  fs::remove(workshop.path("m.jsonl"));
  const Outcome compiled = workshop.tune({"--dry-run"});
  CHECK(compiled.code == kFine);
  CHECK(compiled.out.find(" 0 of them not in this build\n") != std::string::npos);
  const Outcome outcome =
      workshop.run_line({"tune", "--problems", workshop.path("problems.txt"), "--store", workshop.path("m.jsonl"),
                         "--configs", workshop.path("configs"), "--candidates", "all", "--dry-run"});
  CHECK(outcome.code == kFine);
  CHECK(outcome.out.find("40 problems, ") == 0);
  CHECK(outcome.out.find(" of one core to build\n") != std::string::npos);
  CHECK(outcome.out.find("  (missing)\n") != std::string::npos);
  CHECK(workshop.gpu.requests.empty());
  CHECK_FALSE(fs::exists(workshop.path("m.jsonl")));
}

TEST_CASE("a kernel with wrong gradients gets no row", "[command-line]") {
  Workshop workshop;
  REQUIRE(workshop.tune({"--keep-table"}).code == kFine);
  const auto generated = generator::test::shipped();
  const generator::Plan plan = make_plan(generated, *find_profile(generated, "full"));
  std::set<std::string> shipped;
  for (const generator::TranslationUnit& unit : plan.units)
    for (const generator::PlannedKernel& kernel : unit.kernels) shipped.insert(kernel.name);
  for (const std::string& kernel : workshop.gpu.kernels)
    if (!shipped.contains(kernel)) workshop.gpu.broken.insert(kernel);
  REQUIRE_FALSE(workshop.gpu.broken.empty());
  fs::remove(workshop.path("m.jsonl"));
  const Outcome outcome = workshop.tune();
  INFO(outcome.out);
  CHECK(outcome.code == kFine);
  CHECK(outcome.err.find(" failed") != std::string::npos);
  generator::Diagnostics diagnostics;
  const generator::Configuration tuned = generator::load_configuration(workshop.path("configs"), diagnostics);
  const std::vector<generator::TableRow>& before = generator::test::table_of(generated, Architecture::sm90).rows;
  for (const generator::TableRow& row : generator::test::table_of(tuned, Architecture::sm90).rows)
    if (row.provenance == ProvenanceKind::measured &&
        std::ranges::find(before, row.provenance_text, &generator::TableRow::provenance_text) == before.end())
      for (const std::string& broken : workshop.gpu.broken)
        CHECK(broken.find('_' + tile_name(row.use) + '_') == std::string::npos);
}

TEST_CASE("a problem that cannot be measured is told and passed over", "[command-line]") {
  Workshop workshop;
  workshop.gpu.before = [](const Request& request) -> std::string {
    return request.problem.seqlen_q == 8192 ? "out of memory" : "";
  };
  const Outcome outcome = workshop.tune();
  CHECK(outcome.code == kFine);
  CHECK(outcome.err.find("sq=8192 sk=8192: not measured: out of memory\n") != std::string::npos);
  CHECK(std::ranges::count(read(workshop.path("m.jsonl")), '\n') == kProblems - 8);
  workshop.gpu.before = [](const Request&) -> std::string { return "out of memory"; };
  fs::remove(workshop.path("m.jsonl"));
  const Outcome nothing = workshop.tune();
  CHECK(nothing.code == kFailure);
  CHECK(nothing.err.find("nothing could be measured") != std::string::npos);
}

TEST_CASE("held-back problems are measured and make no rows", "[command-line]") {
  Workshop workshop;
  const Outcome outcome = workshop.tune({"--held-back", "sm90-held-back", "--keep-table"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.code == kFine);
  CHECK(workshop.gpu.requests.size() > kProblems);
  CHECK(outcome.out.find("the table of now, on the problems held back") != std::string::npos);
  const Outcome alone = workshop.tune({"--keep-table"});
  const auto rows = [](const std::string& text) { return text.substr(text.find(" are asked for:\n")); };
  CHECK(rows(outcome.out) == rows(alone.out));
}

TEST_CASE("what is missing is built in a folder of its own", "[command-line]") {
  Workshop workshop;
  const std::vector<std::string> compiled = workshop.gpu.kernels;
  const std::string refused = compiled.front();
  bool first = true;
  workshop.gpu.kernels = {compiled.back()};
  workshop.run = [&](const std::vector<std::string>& command) {
    if (std::ranges::find(command, "flashdma_bwd_kernels_sm90") != command.end()) {
      // Builds all but one, which the ptxas gate refuses.
      const fs::path tree = workshop.folder.path() / "scratch/generated/kernels/sm90";
      for (const fs::directory_entry& unit : fs::directory_iterator(tree))
        if (unit.path().stem() != refused)
          write(workshop.folder.path() / "scratch/build/objects" / (unit.path().filename().string() + ".o"), "");
      return std::exchange(first, false) ? 1 : 0;
    }
    if (std::ranges::find(command, "flashdma-tune-measure") != command.end()) {
      workshop.gpu.kernels = compiled;
      std::erase(workshop.gpu.kernels, refused);
    }
    return 0;
  };
  const Outcome outcome =
      workshop.run_line({"tune", "--problems", workshop.path("problems.txt"), "--store", workshop.path("m.jsonl"),
                         "--configs", workshop.path("configs"), "--build", workshop.path("scratch"), "--keep-table"});
  INFO(outcome.err);
  CHECK(outcome.code == kFine);
  CHECK(outcome.err.find("left out, it does not build: " + refused) != std::string::npos);
  CHECK_FALSE(fs::exists(workshop.folder.path() / "scratch/generated/kernels/sm90" / (refused + ".cu")));
  CHECK(fs::exists(workshop.folder.path() / "scratch/generated/dispatch_table.inc"));
  CHECK(workshop.commands.back().back() == "flashdma-tune-measure");
  for (const Request& request : workshop.gpu.requests)
    CHECK(std::ranges::find(request.kernels, refused) == request.kernels.end());

  workshop.run = [](const std::vector<std::string>& command) { return command.front() == "cmake" ? 1 : 0; };
  workshop.gpu.kernels = {compiled.back()};
  const Outcome failed =
      workshop.run_line({"tune", "--problems", workshop.path("problems.txt"), "--store", workshop.path("m.jsonl"),
                         "--configs", workshop.path("configs"), "--build", workshop.path("scratch")});
  CHECK(failed.code == kFailure);
  CHECK(failed.err.find("the build of the candidates cannot be configured; what was said is in ") != std::string::npos);
}

TEST_CASE("bad input is said and nothing is written", "[command-line]") {
  Workshop workshop;
  const std::string before = read(workshop.table());
  const auto refuses = [&](const Outcome& outcome, int code, const std::string& words) {
    INFO(outcome.err);
    CHECK(outcome.code == code);
    CHECK(outcome.err.find(words) != std::string::npos);
    CHECK(workshop.gpu.requests.empty());
    CHECK(read(workshop.table()) == before);
  };
  refuses(workshop.run_line({"tun"}), kUsage, "did you mean `tune`?");
  refuses(workshop.run_line({"tune", "--no-such"}), kUsage, "--no-such");
  refuses(workshop.run_line({"tune"}), kUsage, "there are no problems to tune");
  refuses(workshop.run_line({"tune", "--grid", "sm99"}), kUsage, "did you mean `sm90`?");
  refuses(workshop.tune({"--bound", "-3"}), kUsage, "--bound");
  refuses(workshop.tune({"--held-back", "nothing"}), kUsage, "--held-back: there is no grid `nothing`");
  refuses(workshop.tune({"--capture", workshop.path("none.txt")}), kFindings, "No such file or directory");
  write(workshop.path("bad.txt"), std::string(kProblemFileHeader) + "\nbf16 d=128 b=1 h=16 sq=-4 sk=4\n");
  refuses(workshop.tune({"--problems", workshop.path("bad.txt")}), kFindings,
          "bad.txt:2:21: error: sq: `-4` is no number in 1 ... 2147483647 [out-of-range]");

  write(workshop.path("m.jsonl"), "{\"version\":1}\n");
  refuses(workshop.tune(), kFindings, "m.jsonl:1:1: error: a record has no `problem` [missing-key]");
  CHECK(read(workshop.path("m.jsonl")) == "{\"version\":1}\n");
  refuses(workshop.run_line({"show", workshop.path("m.jsonl")}), kFindings, "is neither a store of flashdma-tune");
  refuses(workshop.run_line({"report", workshop.path("m.jsonl"), "--configs", workshop.path("configs")}), kFindings,
          "[missing-key]");
  write(workshop.path("m.jsonl"), "{\"version\":1,\"candidates\":[]}\n");
  refuses(workshop.run_line({"show", workshop.path("m.jsonl")}), kFindings, "[missing-key]");
  refuses(workshop.run_line({"show", workshop.path("nothing.jsonl")}), kFindings, "No such file or directory");
  fs::remove(workshop.path("m.jsonl"));
  refuses(
      workshop.run_line({"tune", "--problems", workshop.path("problems.txt"), "--store",
                         workshop.path("no/folder/m.jsonl"), "--configs", workshop.path("configs"), "--compiled-only"}),
      kFailure, "No such file or directory");

  workshop.gpu.environment.compute_capability = 100;
  refuses(workshop.tune(), kFailure, "there is no table for GPUs of compute capability 10.0");
  workshop.gpu.absent = "there is no GPU here";
  refuses(workshop.tune(), kFailure, "there is no GPU here");
}

TEST_CASE("a table that is edited meanwhile, or broken, is left as it is", "[command-line]") {
  Workshop workshop;
  workshop.gpu.before = [&](const Request&) -> std::string {
    if (workshop.gpu.requests.size() == kProblems) write(workshop.table(), read(workshop.table()) + "# a remark\n");
    return {};
  };
  const Outcome outcome = workshop.tune();
  CHECK(outcome.code == kFindings);
  CHECK(outcome.err.find("the table was edited meanwhile") != std::string::npos);
  CHECK(read(workshop.table()).ends_with("# a remark\n"));
  workshop.gpu.requests.clear();
  workshop.gpu.before = nullptr;
  CHECK(workshop.tune().code == kFine);
  CHECK(workshop.gpu.requests.empty());
  CHECK(read(workshop.table()).ends_with("# a remark\n"));

  write(workshop.table(), "architecture: sm90\nrows: none\n");
  const Outcome broken = workshop.tune();
  CHECK(broken.code == kFindings);
  CHECK(broken.err.find("[wrong-type]") != std::string::npos);
}

TEST_CASE("show prints every candidate, and JSON that is an array of records", "[command-line]") {
  Workshop workshop;
  workshop.gpu.broken.insert(workshop.gpu.kernels.front());
  REQUIRE(workshop.tune({"--keep-table"}).code == kFine);
  const Outcome text = workshop.run_line({"show", workshop.path("m.jsonl")});
  CHECK(text.code == kFine);
  for (const std::string& kernel : workshop.gpu.kernels) CHECK(text.out.find(kernel) != std::string::npos);
  CHECK(text.out.find("its gradients are wrong") != std::string::npos);
  const Outcome json = workshop.run_line({"show", workshop.path("m.jsonl"), "--format", "json"});
  CHECK(nlohmann::json::parse(json.out).size() == kProblems);
}

TEST_CASE("the program says what it is and where it finds no GPU", "[command-line]") {
  const TemporaryFolder folder;
  const std::string out = (folder.path() / "out").string(), err = (folder.path() / "err").string();
  const auto run = [&](const std::string& arguments) {
    const int status =
        std::system(("'" FLASHDMA_BWD_TUNE "' " + arguments + " > '" + out + "' 2> '" + err + '\'').c_str());
    REQUIRE(WIFEXITED(status));
    return WEXITSTATUS(status);
  };
  CHECK(run("--help") == kFine);
  CHECK(read(out).find("tune") != std::string::npos);
  CHECK(run("") == kUsage);
  const std::string configs = "--configs '" + (source_dir() / "configs").string() + '\'';
  CHECK(run("tune --grid smoke --measure /no/such " + configs) == kFailure);
  CHECK(read(err) == "flashdma-tune: /no/such: the measuring program cannot be run\n");
}

TEST_CASE("a store that is refused is refused before anything is built", "[command-line]") {
  if (!testing::somebody_may_not_write()) return;
  Workshop workshop;
  workshop.gpu.kernels = {workshop.gpu.kernels.back()};
  const auto tune_into = [&](const std::string& store) {
    return workshop.run_line({"tune", "--problems", workshop.path("problems.txt"), "--store", store, "--configs",
                              workshop.path("configs"), "--build", workshop.path("scratch"), "--keep-table"});
  };
  const auto refuses = [&](const std::string& store, int code, const std::string& words) {
    const Outcome outcome = tune_into(store);
    INFO(outcome.err);
    CHECK(outcome.code == code);
    CHECK(outcome.err.find(words) != std::string::npos);
    CHECK(workshop.commands.empty());
    CHECK_FALSE(fs::exists(workshop.path("scratch")));
  };
  refuses(workshop.path("no/such/m.jsonl"), kFailure, "m.jsonl: the store cannot be opened: No such file or directory");
  write(workshop.path("damaged.jsonl"), "{\"version\":1}\n");
  refuses(workshop.path("damaged.jsonl"), kFindings, "[missing-key]");
  {
    Store other;
    REQUIRE(other.open(workshop.path("m.jsonl")).empty());
    refuses(workshop.path("m.jsonl"), kFailure, "another flashdma-tune is measuring into this store");
  }
  fs::create_directory(workshop.path("shut"));
  fs::permissions(workshop.folder.path(), fs::perms{0755});  // its files can be read by whoever it is
  const std::string refusal = testing::said_in_unwritable_folder(workshop.path("shut"), [&] {
    const Outcome outcome = tune_into(workshop.path("shut/m.jsonl"));
    return std::to_string(outcome.code) + ", " + std::to_string(workshop.commands.size()) + " commands: " + outcome.err;
  });
  INFO(refusal);
  CHECK(refusal.starts_with("3, 0 commands: "));
  CHECK(refusal.find("shut/m.jsonl: the store cannot be opened: Permission denied") != std::string::npos);

  tune_into(workshop.path("m.jsonl"));  // whose lock is free again
  CHECK_FALSE(workshop.commands.empty());
}

TEST_CASE("two tuners do not build into one folder", "[command-line]") {
  Workshop workshop;
  const std::vector<std::string> compiled = workshop.gpu.kernels;
  const std::string scratch = workshop.path("scratch");
  const std::string refusal = scratch +
                              ": another flashdma-tune builds in this folder, or measures what it built there: wait "
                              "for it, or name another folder with --build";
  const auto tune = [&] {
    workshop.gpu.kernels = {compiled.back()};
    return workshop.run_line({"tune", "--problems", workshop.path("problems.txt"), "--store", workshop.path("m.jsonl"),
                              "--configs", workshop.path("configs"), "--build", scratch, "--keep-table"});
  };
  {
    BuildLock other;
    REQUIRE(other.take(scratch).empty());
    CHECK(BuildLock().take(scratch) == refusal);
    CHECK(testing::said_in_child([&] { return BuildLock().take(scratch); }) == refusal);
    CHECK(BuildLock().take(workshop.path("elsewhere")).empty());
    const Outcome outcome = tune();
    CHECK(outcome.code == kFailure);
    CHECK(outcome.err == "flashdma-tune: " + refusal + '\n');
    CHECK(workshop.commands.empty());
    CHECK(workshop.gpu.requests.empty());
    CHECK_FALSE(fs::exists(scratch + "/generated"));
  }
  // The tuner itself holds the folder while it builds and while it measures what it built, and no longer.
  int looks = 0, refusals = 0;
  const auto look = [&] {
    ++looks;
    if (BuildLock().take(scratch) == refusal) ++refusals;
  };
  workshop.run = [&](const std::vector<std::string>& command) {
    look();
    if (command.back() == "flashdma-tune-measure") workshop.gpu.kernels = compiled;
    return 0;
  };
  workshop.gpu.before = [&](const Request&) -> std::string {
    look();
    return {};
  };
  const Outcome outcome = tune();
  INFO(outcome.err);
  CHECK(outcome.code == kFine);
  CHECK(workshop.gpu.requests.size() == kProblems);
  CHECK(static_cast<std::size_t>(looks) == workshop.commands.size() + kProblems);
  CHECK(refusals == looks);
  CHECK(BuildLock().take(scratch).empty());
}

TEST_CASE("a folder that cannot be built in is said", "[command-line]") {
  if (!testing::somebody_may_not_write()) return;
  const TemporaryFolder folder;
  const std::string scratch = folder.path("scratch");
  const std::string what_to_do = "; --build names a folder that can be written";
  const auto take = [&](const std::string& where) {
    return testing::said_in_unwritable_folder(folder.path(), [&] { return BuildLock().take(where); });
  };
  CHECK(take(scratch) == scratch + ": the folder of the build cannot be made: Permission denied" + what_to_do);
  const std::string here = folder.path().string();
  CHECK(take(here) == here + "/tune.lock: the lock of the build cannot be opened: Permission denied" + what_to_do);
  write(scratch, "a file");
  CHECK(BuildLock().take(scratch) ==
        scratch + ": the folder of the build cannot be made: Not a directory" + what_to_do);
}

TEST_CASE("a table that cannot be written loses no measurement", "[command-line]") {
  if (!testing::somebody_may_not_write()) return;
  Workshop workshop;
  const std::string before = read(workshop.table());
  fs::permissions(workshop.folder.path(), fs::perms{0777});  // the store goes there, whoever tunes
  const std::string said = testing::said_in_unwritable_folder(workshop.path("configs/tables"), [&] {
    const Outcome outcome = workshop.tune();
    return std::to_string(outcome.code) + ": " + outcome.err;
  });
  INFO(said);
  CHECK(said.starts_with("3: "));
  CHECK(said.find("sm90.yaml: Permission denied") != std::string::npos);
  CHECK(read(workshop.table()) == before);
  CHECK(std::ranges::count(read(workshop.path("m.jsonl")), '\n') == kProblems);
  CHECK(workshop.tune().code == kFine);
  CHECK(workshop.gpu.requests.empty());  // what the first had measured is there
  CHECK(read(workshop.table()) != before);
}

}  // namespace flashdma_bwd::tune::test
