// Many processes and threads write to one cache at once.
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cache_samples.hpp"
#include "support/catch.hpp"
#include "tune_cache/cache_file.hpp"

namespace flashdma_bwd::testing {
namespace {

constexpr int kProcesses = 8;
constexpr int kRecordsEach = 25;

/// Waits for its turn however long the others take, which depends on the machine.
bool append(const std::string& path, std::span<const CacheRecord> records) {
  for (;;) {
    const auto lines = append_to_cache(path, records);
    if (lines || lines.error.find("is locked by another process") == std::string::npos) return bool{lines};
  }
}

/// Adds the records of one process, one by one. Returns how many failed.
int add_records(const std::string& path, int process) {
  int failed = 0;
  for (int i = 0; i < kRecordsEach; ++i) {
    const CacheRecord record = sample_record(problem_of_batch(1 + process * kRecordsEach + i));
    // The others add this one as well.
    const CacheRecord shared = sample_record(problem_of_batch(100000 + i));
    const CacheRecord both[] = {record, shared};
    if (!append(path, both)) ++failed;
  }
  return failed;
}

void check_complete(const std::string& path) {
  const auto lines = read_cache(path);
  REQUIRE(lines);
  std::set<std::int64_t> batches;
  for (const CacheLine& line : *lines.value) {
    REQUIRE(line.kind == LineKind::record);
    CHECK(batches.insert(line.record.problem.batch).second);
  }
  CHECK(batches.size() == (kProcesses + 1) * kRecordsEach);
}

}  // namespace

TEST_CASE("eight processes at once lose no record and write none twice") {
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) _exit(add_records(path, process));
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  check_complete(path);
}

TEST_CASE("eight threads at once lose no record and write none twice") {
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  std::vector<int> failed(kProcesses, -1);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kProcesses; ++i)
    threads.emplace_back([&, i] { failed[i] = add_records(path, static_cast<int>(i)); });
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == std::vector<int>(kProcesses, 0));
  check_complete(path);
}

TEST_CASE("a process that is killed while it writes leaves a whole file and no lock") {
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  ProblemSource source(23);
  for (int round = 0; round < 10; ++round) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0)
      for (std::int64_t batch = 1 + 1000 * round;; ++batch) {
        const CacheRecord record = sample_record(problem_of_batch(batch));
        if (!append_to_cache(path, {&record, 1})) _exit(1);
      }
    usleep(static_cast<useconds_t>(1000 + source.below(20000)));
    REQUIRE(kill(child, SIGKILL) == 0);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    const auto lines = read_cache(path);
    REQUIRE(lines);
    for (const CacheLine& line : *lines.value) CHECK(line.kind == LineKind::record);
    const CacheRecord last = sample_record(problem_of_batch(500 + 1000 * round + 200000));
    CHECK(append_to_cache(path, {&last, 1}));
  }
}

TEST_CASE("a lock that another process does not give back is told of") {
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  write_text(path + ".lock", "");
  std::FILE* lock = std::fopen((path + ".lock").c_str(), "r");
  REQUIRE(lock != nullptr);
  REQUIRE(flock(fileno(lock), LOCK_EX) == 0);
  const CacheRecord record = sample_record(ordinary_problem());
  const auto added = append_to_cache(path, {&record, 1});
  std::fclose(lock);
  CHECK_FALSE(added);
  CHECK(added.error == path + ".lock is locked by another process for too long");
  CHECK_FALSE(std::filesystem::exists(path));
}

}  // namespace flashdma_bwd::testing
