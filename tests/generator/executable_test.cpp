// The program itself: streams, exit codes, colour.
#include <fcntl.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "generator/files.hpp"
#include "support/catch.hpp"

namespace flashdma_bwd::generator::test {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  int code = -1;
  std::string out, err;
};

/// Runs flashdma-gen through a shell, in `folder`.
Outcome run(const fs::path& folder, const std::string& arguments) {
  const std::string command =
      "cd '" + folder.string() + "' && '" FLASHDMA_BWD_GENERATOR "' " + arguments + " > out.txt 2> err.txt";
  const int status = std::system(command.c_str());
  REQUIRE(WIFEXITED(status));
  return {WEXITSTATUS(status), read(folder / "out.txt"), read(folder / "err.txt")};
}

/// What flashdma-gen prints on a terminal.
std::string run_on_terminal(const fs::path& folder, const char* no_color) {
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  REQUIRE(child >= 0);
  if (child == 0) {
    if (no_color != nullptr)
      setenv("NO_COLOR", no_color, 1);
    else
      unsetenv("NO_COLOR");
    if (chdir(folder.c_str()) == 0) execl(FLASHDMA_BWD_GENERATOR, "flashdma-gen", "check", static_cast<char*>(nullptr));
    _exit(127);
  }
  std::string text;
  char buffer[4096];
  for (ssize_t count; (count = ::read(terminal, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(count));
  close(terminal);
  int status = 0;
  waitpid(child, &status, 0);
  INFO(text);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 1);
  return text;
}

void copy_base(const fs::path& folder) {
  fs::copy(cases_dir() / "base", folder, fs::copy_options::recursive);
}

void spoil(const fs::path& folder) {
  write(folder / "configs/tables/sm80.yaml", "architecture: sm80\nrows: none\n");
}

}  // namespace

TEST_CASE("data goes to standard output, findings to standard error", "[executable]") {
  const TemporaryFolder folder;
  copy_base(folder.path());
  const Outcome fine = run(folder.path(), "list");
  CHECK(fine.code == 0);
  CHECK(fine.err.empty());
  CHECK(fine.out.find("bwd_sm80_d128_bf16_") != std::string::npos);

  spoil(folder.path());
  const Outcome findings = run(folder.path(), "list");
  CHECK(findings.code == 1);
  CHECK(findings.out.empty());
  CHECK(findings.err.find("[wrong-type]") != std::string::npos);
}

TEST_CASE("bad input writes nothing", "[executable]") {
  const TemporaryFolder folder;
  copy_base(folder.path());
  REQUIRE(run(folder.path(), "generate").code == 0);
  const auto before = read_tree(folder.path() / "generated");
  CHECK_FALSE(before.empty());
  spoil(folder.path());
  CHECK(run(folder.path(), "generate").code == 1);
  CHECK(read_tree(folder.path() / "generated") == before);
  CHECK(run(folder.path(), "generate --output fresh").code == 1);
  CHECK_FALSE(fs::exists(folder.path() / "fresh"));
}

TEST_CASE("the row that the README adds to a table is one that the tables take", "[executable]") {
  const std::string readme = read(source_dir() / "README.md");
  const std::size_t begin = readme.find("    - {when: ");
  REQUIRE(begin != std::string::npos);
  const std::string row = readme.substr(begin + 4, readme.find('\n', begin) + 1 - (begin + 4));
  const TemporaryFolder folder;
  fs::copy(source_dir() / "configs", folder.path() / "configs", fs::copy_options::recursive);
  const fs::path table = folder.path() / "configs/tables/sm90.yaml";
  std::string text = read(table);
  const std::string rows = "\nrows:\n";
  REQUIRE(text.find(rows) != std::string::npos);
  write(table, text.insert(text.find(rows) + rows.size(), row));
  const Outcome outcome = run(folder.path(), "generate");
  INFO(row << outcome.err);
  CHECK(outcome.code == 0);
}

TEST_CASE("a wrong command line is usage, a disk that refuses is internal", "[executable]") {
  const TemporaryFolder folder;
  copy_base(folder.path());
  const Outcome usage = run(folder.path(), "generate --no-such-option");
  CHECK(usage.code == 2);
  CHECK(usage.out.empty());
  CHECK(usage.err.find("--no-such-option") != std::string::npos);
  CHECK(run(folder.path(), "--help").code == 0);

  write(folder.path() / "file", "in the way\n");
  const Outcome refused = run(folder.path(), "generate --output file");
  CHECK(refused.code == 3);
  CHECK(refused.out.empty());
  CHECK(refused.err.find("file") != std::string::npos);
}

TEST_CASE("what standard output does not take is no success", "[executable]") {
  if (!fs::exists("/dev/full")) return;
  const TemporaryFolder folder;
  copy_base(folder.path());
  const std::string command = "cd '" + folder.path().string() +
                              "' && '" FLASHDMA_BWD_GENERATOR "' list rows --format table > /dev/full 2> err.txt";
  const int status = std::system(command.c_str());
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 3);
  CHECK(read(folder.path() / "err.txt").find("standard output cannot be written") != std::string::npos);
}

TEST_CASE("runs at the same time leave the tree of the last", "[executable]") {
  const TemporaryFolder folder;
  copy_base(folder.path());
  const std::string program = "'" FLASHDMA_BWD_GENERATOR "' generate --output new/tree > /dev/null 2>> err.txt";
  const std::string command = "cd '" + folder.path().string() + "' && { (" + program + "; echo $? >> codes) & (" +
                              program + "; echo $? >> codes) & (" + program +
                              " --filter sm80; echo $? >> codes); wait; }";
  for (int i = 0; i < 5; ++i) {
    fs::remove_all(folder.path() / "new");
    REQUIRE(std::system(command.c_str()) == 0);
    INFO(read(folder.path() / "err.txt"));
    const Outcome whole = run(folder.path(), "check --output new/tree");
    const Outcome part = run(folder.path(), "check --output new/tree --filter sm80");
    CHECK((whole.code == 0 || part.code == 0));
  }
  CHECK(read(folder.path() / "codes").find_first_not_of("0\n") == std::string::npos);
}

TEST_CASE("pipes and links to nowhere among the tables are named", "[executable]") {
  const TemporaryFolder folder;
  copy_base(folder.path());
  REQUIRE(mkfifo((folder.path() / "configs/tables/pipe.yaml").c_str(), 0600) == 0);
  fs::create_symlink("loop.yaml", folder.path() / "configs/tables/loop.yaml");
  const Outcome outcome = run(folder.path(), "check");
  CHECK(outcome.code == 1);
  CHECK(outcome.err.find("pipe.yaml: error: the file cannot be read: it is no regular file") != std::string::npos);
  CHECK(outcome.err.find("loop.yaml: error: the file cannot be read: ") != std::string::npos);
}

TEST_CASE("two runs in two folders write the same bytes", "[executable]") {
  const TemporaryFolder one, two;
  copy_base(one.path());
  copy_base(two.path());
  REQUIRE(run(one.path(), "generate").code == 0);
  REQUIRE(run(two.path(), "generate --output other").code == 0);
  CHECK(read_tree(one.path() / "generated") == read_tree(two.path() / "other"));
}

TEST_CASE("colour is for terminals, unless NO_COLOR says no", "[executable]") {
  const TemporaryFolder folder;
  copy_base(folder.path());
  spoil(folder.path());
  CHECK(run(folder.path(), "check").err.find("\033[") == std::string::npos);
  CHECK(run_on_terminal(folder.path(), nullptr).find("\033[") != std::string::npos);
  CHECK(run_on_terminal(folder.path(), "").find("\033[") != std::string::npos);
  CHECK(run_on_terminal(folder.path(), "1").find("\033[") == std::string::npos);
}

}  // namespace flashdma_bwd::generator::test
