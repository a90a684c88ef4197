// The file of the cache: lines of every kind, adding to it, and files that cannot be read or written.
#include "tune_cache/cache_file.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "cache_samples.hpp"
#include "support/catch.hpp"
#include "support/in_child.hpp"

namespace flashdma_bwd::testing {
namespace {

std::string line_of_batch(std::int64_t batch) {
  return record_text(sample_record(problem_of_batch(batch)));
}

std::vector<CacheRecord> records_of_batches(std::int64_t first, std::int64_t last) {
  std::vector<CacheRecord> records;
  for (std::int64_t batch = first; batch <= last; ++batch) records.push_back(sample_record(problem_of_batch(batch)));
  return records;
}

void check_refused(const std::string& path, const std::string& reason) {
  const auto read = read_cache(path);
  INFO(path << ": " << read.error);
  CHECK_FALSE(read);
  CHECK(read.error.find(reason) != std::string::npos);
}

}  // namespace

TEST_CASE("each line is a record, of another version, or damaged, and keeps its number") {
  const auto lines = parse_cache(line_of_batch(1) + "\n\n" + R"({"version":9,"future":[]})" + "\r\n" +
                                 line_of_batch(2).substr(0, 90) + "\n" + line_of_batch(3));
  REQUIRE(lines.size() == 4);
  CHECK(lines[0].number == 1);
  CHECK(lines[0].kind == LineKind::record);
  CHECK(lines[1].number == 3);
  CHECK(lines[1].kind == LineKind::other_version);
  CHECK(lines[1].why == "a record of version 9, and this library reads version 1");
  CHECK(lines[2].number == 4);
  CHECK(lines[2].kind == LineKind::damaged);
  CHECK(lines[2].why.find("column 91: ") == 0);
  CHECK(lines[3].number == 5);
  CHECK(lines[3].record.problem.batch == 3);
}

TEST_CASE("records are added behind what is there, and those that are there already are not") {
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  CHECK(read_cache(path).value->empty());
  CHECK(*append_to_cache(path, records_of_batches(1, 2)).value == std::vector<int>{1, 2});
  CHECK(*append_to_cache(path, records_of_batches(2, 3)).value == std::vector<int>{2, 3});
  CHECK(read_text(path) == line_of_batch(1) + '\n' + line_of_batch(2) + '\n' + line_of_batch(3) + '\n');
  // Another kernel of the same problem is another choice, which stands behind.
  CacheRecord other = sample_record(problem_of_batch(1));
  std::swap(other.kernel, other.runner_up);
  CHECK(*append_to_cache(path, {&other, 1}).value == std::vector<int>{4});
  CHECK_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST_CASE("nothing that is in the file is ever lost, whatever it is") {
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  const std::string before = "{\"damaged\n\n" + line_of_batch(1) + "\n{\"version\":2}\nno record, without a newline";
  write_text(path, before);
  const auto records = records_of_batches(2, 2);
  CHECK(*append_to_cache(path, records).value == std::vector<int>{6});
  CHECK(read_text(path) == before + '\n' + line_of_batch(2) + '\n');
}

TEST_CASE("permissions and symbolic links stay") {
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  const std::string link = folder.path("link.jsonl");
  write_text(path, line_of_batch(1) + '\n');
  REQUIRE(chmod(path.c_str(), 0640) == 0);
  std::filesystem::create_symlink(path, link);
  REQUIRE(append_to_cache(link, records_of_batches(2, 2)));
  CHECK(std::filesystem::is_symlink(link));
  CHECK(read_cache(path).value->size() == 2);
  struct stat status {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0640);
}

TEST_CASE("what cannot be a cache is refused") {
  const TemporaryFolder folder;
  check_refused(folder.path(""), "is no regular file");
  REQUIRE(mkfifo(folder.path("pipe").c_str(), 0600) == 0);
  check_refused(folder.path("pipe"), "is no regular file");
  check_refused("/dev/zero", "is no regular file");
  write_text(folder.path("letter"), "Dear reader,\n");
  check_refused(folder.path("letter"), "is no cache: no line of it begins with `{`");
  check_refused(folder.path("letter/cache.jsonl"), "cannot be opened: Not a directory");
  write_text(folder.path("empty"), "\n\n");
  CHECK(read_cache(folder.path("empty")).value->empty());
}

TEST_CASE("a folder that is not there or cannot be written is told of") {
  const TemporaryFolder folder;
  const auto records = records_of_batches(1, 1);
  const auto missing = append_to_cache(folder.path("no/such/cache.jsonl"), records);
  CHECK_FALSE(missing);
  CHECK(missing.error.find("no/such/cache.jsonl.lock cannot be created: No such file or directory") !=
        std::string::npos);
  std::filesystem::create_directory(folder.path("cache.jsonl.tmp"));
  const auto blocked = append_to_cache(folder.path("cache.jsonl"), records);
  CHECK_FALSE(blocked);
  CHECK(blocked.error.find("cache.jsonl.tmp cannot be created: Is a directory") != std::string::npos);
}

TEST_CASE("in a folder that cannot be written a cache is read, and stays as it was") {
  if (!testing::somebody_may_not_write()) return;
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  const std::string before = line_of_batch(1) + '\n';
  write_text(path, before);
  std::filesystem::permissions(path, std::filesystem::perms{0666});
  const auto attempt = [&](const std::string& file) {
    return said_in_unwritable_folder(folder.path(),
                                     [&] { return append_to_cache(file, records_of_batches(2, 2)).error; });
  };
  CHECK(attempt(path) == path + ".lock cannot be created: Permission denied");
  CHECK(attempt(folder.path("new.jsonl")) == folder.path("new.jsonl") + ".lock cannot be created: Permission denied");
  // Somebody who may write here has added to the cache before, and everybody may lock it.
  write_text(path + ".lock", "");
  std::filesystem::permissions(path + ".lock", std::filesystem::perms{0666});
  CHECK(attempt(path) == path + ".tmp cannot be created: Permission denied");
  CHECK(read_text(path) == before);
  CHECK(said_in_unwritable_folder(folder.path(), [&] { return std::to_string(read_cache(path).value->size()); }) ==
        "1");
  CHECK_FALSE(std::filesystem::exists(folder.path("new.jsonl")));
}

TEST_CASE("on a full disk the file stays as it was") {
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  REQUIRE(append_to_cache(path, records_of_batches(1, 3)));
  const std::string before = read_text(path);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // Files of this process cannot grow beyond what is there and a little.
    const rlimit limit{before.size() + 10, before.size() + 10};
    std::signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    const auto added = append_to_cache(path, records_of_batches(4, 9));
    _exit(!added && added.error.find("File too large") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(WIFEXITED(status));
  CHECK(read_text(path) == before);
  CHECK_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST_CASE("whatever happens to a file, its lines are read or refused") {
  ProblemSource source(17);
  std::string whole;
  for (std::int64_t batch = 1; batch <= 20; ++batch) whole += line_of_batch(batch) + '\n';
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  int damaged = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = whole;
    const auto size = static_cast<std::int64_t>(text.size());
    if (round % 2 == 0) text.resize(static_cast<std::size_t>(source.below(size)));
    for (std::int64_t flips = source.below(6); flips > 0 && !text.empty(); --flips)
      text[static_cast<std::size_t>(source.below(static_cast<std::int64_t>(text.size())))] ^=
          static_cast<char>(1 << source.below(8));
    for (const CacheLine& line : parse_cache(text)) {
      CHECK(line.number > 0);
      if (line.kind == LineKind::record) {
        const Parsed<CacheRecord> again = parse_record(record_text(line.record));
        REQUIRE(again);
        CHECK(*again.value == line.record);
      } else {
        CHECK_FALSE(line.why.empty());
        ++damaged;
      }
    }
    if (round % 100 != 0) continue;
    write_text(path, text);
    const auto added = append_to_cache(path, records_of_batches(21, 21));
    INFO(added.error);
    REQUIRE(added);
    CHECK(read_text(path).find(text) == 0);
    CHECK(read_text(path).ends_with(line_of_batch(21) + '\n'));
  }
  CHECK(damaged > 1000);
}

}  // namespace flashdma_bwd::testing
