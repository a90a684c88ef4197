// Problem files that processes append to, and what becomes of those that cannot be written.
#include "monitoring/problem_capture.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "captured_stderr.hpp"
#include "monitoring/monitored_launch.hpp"
#include "monitoring/problem_file.hpp"
#include "support/catch.hpp"
#include "support/in_child.hpp"
#include "tables.hpp"

namespace flashdma_bwd::testing {
namespace {

const std::string kHeaderLine = std::string(kProblemFileHeader) + '\n';

/// A folder that lives as long as this.
class Folder {
 public:
  Folder() { std::filesystem::create_directories(path_); }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("problem_capture_test_" + std::to_string(getpid()));
};

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// How often each problem stands in a file, which is well formed.
std::map<std::string, int> problems_in(const std::string& path) {
  const auto parsed = parse_problem_file(text_of(path), path);
  INFO(parsed.error);
  REQUIRE(parsed);
  std::map<std::string, int> counts;
  for (const Problem& problem : *parsed.value) ++counts[problem_text(problem)];
  return counts;
}

Problem problem_with_batch(std::int64_t batch) {
  Problem problem = ordinary_problem();
  problem.batch = batch;
  return problem;
}

std::string line(std::int64_t batch) {
  return problem_text(problem_with_batch(batch));
}

std::string add(ProblemCapture& capture, const Problem& problem) {
  return capture.add(problem, problem_text(problem));
}

/// Files cannot grow beyond so many bytes while this lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

std::string append_limited(const std::string& path, const std::string& text, rlim_t bytes) {
  const FileSizeLimit limit(bytes);
  return append_to_problem_file(path, text);
}

}  // namespace

TEST_CASE("a problem file is begun once and grows by lines") {
  const Folder folder;
  const std::string path = folder.file("problems.txt");
  CHECK(append_to_problem_file(path, line(1)) == "");
  CHECK(text_of(path) == kHeaderLine + line(1) + '\n');
  CHECK(append_to_problem_file(path, line(2)) == "");
  CHECK(text_of(path) == kHeaderLine + line(1) + '\n' + line(2) + '\n');
  write_text(folder.file("empty.txt"), "");
  CHECK(append_to_problem_file(folder.file("empty.txt"), line(1)) == "");
  CHECK(text_of(folder.file("empty.txt")) == kHeaderLine + line(1) + '\n');
}

TEST_CASE("a last line that somebody left open is ended first") {
  const Folder folder;
  const std::string path = folder.file("problems.txt");
  for (const std::string& start : {std::string(kProblemFileHeader), kHeaderLine + line(1)}) {
    write_text(path, start);
    CHECK(append_to_problem_file(path, line(2)) == "");
    CHECK(text_of(path) == start + '\n' + line(2) + '\n');
  }
  write_text(path, std::string(kProblemFileHeader) + "\r\n");
  CHECK(append_to_problem_file(path, line(2)) == "");
  CHECK(problems_in(path).size() == 1);
}

TEST_CASE("a file that is no problem file is left as it is") {
  const Folder folder;
  const std::string path = folder.file("notes.txt");
  for (const std::string& text : {std::string("my notes\n"), std::string("flashdma_bwd problems 12\n"),
                                  std::string("flashdma_bwd prob"), "\n" + kHeaderLine}) {
    write_text(path, text);
    CHECK(append_to_problem_file(path, line(1)).find("it is there and no problem file") == 0);
    CHECK(text_of(path) == text);
  }
}

TEST_CASE("what cannot be written says why") {
  const Folder folder;
  CHECK(append_to_problem_file(folder.file("none/problems.txt"), line(1)) ==
        "it cannot be opened: No such file or directory");
  CHECK(append_to_problem_file(folder.file(""), line(1)) == "it cannot be opened: Is a directory");
  REQUIRE(mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  CHECK(append_to_problem_file(folder.file("pipe"), line(1)) == "it is no regular file");
  CHECK(append_to_problem_file("/dev/full", line(1)) == "it is no regular file");
}

TEST_CASE("in a folder that cannot be written nothing is captured, and what is there stays") {
  if (!testing::somebody_may_not_write()) return;
  const Folder folder;
  const std::string path = folder.file("problems.txt"), absent = folder.file("absent.txt");
  REQUIRE(append_to_problem_file(path, line(1)).empty());
  std::filesystem::permissions(path, std::filesystem::perms{0444});
  const auto attempt = [&](const std::string& file) {
    return said_in_unwritable_folder(folder.file(""), [&] { return append_to_problem_file(file, line(2)); });
  };
  CHECK(attempt(path) == "it cannot be opened: Permission denied");
  CHECK(attempt(absent) == "it cannot be opened: Permission denied");
  CHECK(text_of(path) == kHeaderLine + line(1) + '\n');
  CHECK_FALSE(std::filesystem::exists(absent));
  const std::string warning = said_in_unwritable_folder(folder.file(""), [&] {
    ProblemCapture capture(absent);
    return add(capture, problem_with_batch(1)) + add(capture, problem_with_batch(2));
  });
  const std::string start = "FLASHDMA_BWD_CAPTURE names " + absent + ", and it cannot be opened: Permission denied. ";
  CHECK(warning.find(start) == 0);
  CHECK(warning.find("FLASHDMA_BWD_CAPTURE names ", start.size()) == std::string::npos);  // the second add says nothing
}

TEST_CASE("a full disk leaves whole lines") {
  const Folder folder;
  const std::string path = folder.file("problems.txt");
  CHECK(append_limited(path, line(1), 0).find("it cannot be written: ") == 0);
  CHECK(text_of(path).empty());
  CHECK(append_limited(path, line(1), 30) == "the disk is full");
  CHECK(text_of(path).empty());
  REQUIRE(append_to_problem_file(path, line(1)).empty());
  const std::string before = text_of(path);
  CHECK(append_limited(path, line(2), before.size() + 10) == "the disk is full");
  CHECK(text_of(path) == before);
  CHECK(append_to_problem_file(path, line(2)) == "");
  CHECK(text_of(path) == before + line(2) + '\n');
}

TEST_CASE("a file that stays locked is given up") {
  const Folder folder;
  const std::string path = folder.file("problems.txt");
  REQUIRE(append_to_problem_file(path, line(1)).empty());
  const int other = open(path.c_str(), O_RDONLY);
  REQUIRE(flock(other, LOCK_EX) == 0);
  CHECK(append_to_problem_file(path, line(2)) == "another process has kept it locked for a second");
  close(other);
  CHECK(append_to_problem_file(path, line(2)) == "");
}

TEST_CASE("processes append to one file at once") {
  const Folder folder;
  const std::string path = folder.file("problems.txt");
  constexpr int kProcesses = 8;
  constexpr int kLines = 100;
  std::fflush(nullptr);  // what is buffered is the parent's to write
  std::vector<pid_t> processes;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ProblemCapture capture(path);
      bool fine = true;
      for (int i = 1; i <= kLines; ++i) {
        fine = add(capture, problem_with_batch(i)).empty() && fine;                         // as every process does
        fine = add(capture, problem_with_batch(1000 * (process + 1) + i)).empty() && fine;  // its own
      }
      _exit(fine ? 0 : 1);
    }
    processes.push_back(child);
  }
  for (const pid_t child : processes) {
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  const std::map<std::string, int> problems = problems_in(path);
  CHECK(problems.size() == (kProcesses + 1) * kLines);
  for (int i = 1; i <= kLines; ++i) {
    CHECK(problems.at(line(i)) == kProcesses);
    CHECK(problems.at(line(1000 * kProcesses + i)) == 1);
  }
}

TEST_CASE("a capture has each problem of a process once") {
  const Folder folder;
  const std::string path = folder.file("problems.txt");
  ProblemCapture capture(path);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int batch = 1; batch <= 50; ++batch) add(capture, problem_with_batch(batch));
    });
  for (std::thread& thread : threads) thread.join();
  const std::map<std::string, int> problems = problems_in(path);
  CHECK(problems.size() == 50);
  for (const auto& [text, count] : problems) {
    INFO(text);
    CHECK(count == 1);
  }
}

TEST_CASE("a capture leaves out problems without queries or keys") {
  const Folder folder;
  ProblemCapture capture(folder.file("problems.txt"));
  Problem problem = ordinary_problem();
  problem.seqlen_q = 0;
  CHECK(add(capture, problem) == "");
  CHECK_FALSE(std::filesystem::exists(folder.file("problems.txt")));
}

TEST_CASE("a capture ends with one warning") {
  const Folder folder;
  ProblemCapture capture(folder.file("none/problems.txt"));
  const std::string warning = add(capture, problem_with_batch(1));
  CHECK(warning.find("FLASHDMA_BWD_CAPTURE names " + folder.file("none/problems.txt") +
                     ", and it cannot be opened: No such file or directory. ") == 0);
  std::filesystem::create_directories(folder.file("none"));
  CHECK(add(capture, problem_with_batch(2)) == "");
  CHECK_FALSE(std::filesystem::exists(folder.file("none/problems.txt")));
}

TEST_CASE("a launch whose capture fails is launched, and the next is not captured") {
  read_switches();
  monitoring_switches.fetch_or(kMonitorCapture);
  CallDescription description;
  description.problem = ordinary_problem();
  description.kernel = description.row_file = "";
  LaunchResult result;
  const auto launch = [&] {
    result = monitored_launch([&] { return description; }, [] { return LaunchResult{cudaSuccess, nullptr, 7}; });
  };
  const std::string said = captured_stderr(launch);  // these tests have no environment, and so no file
  CHECK(said.find("flashdma_bwd: warning: FLASHDMA_BWD_CAPTURE names ") == 0);
  CHECK(result.kernels == 7);
  CHECK(monitoring_switches.load() == 0);
  CHECK(captured_stderr(launch).empty());
}

}  // namespace flashdma_bwd::testing
