// The store: what goes in comes out, and nothing that can happen to a file loses what was in it.
#include "tune/store.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "diagnostics/render.hpp"
#include "generator/files.hpp"
#include "selection/configuration_name.hpp"
#include "selection/problem_text.hpp"
#include "support/catch.hpp"
#include "support/in_child.hpp"
#include "support/temporary_folder.hpp"
#include "tune/record_json.hpp"
#include "tuner/fake_device.hpp"

namespace flashdma_bwd::tune::test {
namespace {

using generator::test::read;
using generator::test::write;
using testing::said_in_unwritable_folder;
using testing::TemporaryFolder;

StoreContents contents_of(const std::string& text) {
  const generator::SourceFile source{"m.jsonl", "m.jsonl", text};
  generator::Diagnostics diagnostics;
  StoreContents contents = read_store(source, diagnostics);
  INFO(generator::render_text(diagnostics, {source}, false));
  CHECK(diagnostics.empty());
  return contents;
}

std::string findings_of(const std::string& text) {
  const generator::SourceFile source{"m.jsonl", "m.jsonl", text};
  generator::Diagnostics diagnostics;
  read_store(source, diagnostics);
  return generator::render_text(diagnostics, {source}, false);
}

std::string lines(std::int64_t count) {
  std::string text;
  for (std::int64_t i = 1; i <= count; ++i) text += record_line(test_measurement(128 * i)) + '\n';
  return text;
}

/// The text with one part replaced, which is there.
std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  INFO(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// What a child process's function returns, or 128 and the signal that ended it.
template <class Function>
int in_child(Function function) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(function());
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("records are read as they were written", "[store]") {
  const StoreContents contents = contents_of(lines(3));
  REQUIRE(contents.measurements.size() == 3);
  CHECK(contents.warning.empty());
  CHECK(record_line(contents.measurements[1]) == record_line(test_measurement(256)));
  CHECK(contents.measurements[1].problem == test_measurement(256).problem);
  CHECK(contents.measurements[1].environment == test_environment());
  const generator::MeasuredProblem measured = measured_problem(contents.measurements[1]);
  REQUIRE(measured.tiles.size() == 2);  // the third failed
  CHECK(std::ranges::count(measured.tiles, generator::Time{1.5, 0.01}, &generator::MeasuredTile::cold) == 1);
  CHECK(std::ranges::is_sorted(measured.tiles, {},
                               [](const generator::MeasuredTile& tile) { return tile_name(tile.tile); }));
  CHECK(contents_of("").measurements.empty());
}

TEST_CASE("a torn last line is passed over, with a warning that names it", "[store]") {
  const std::string whole = lines(2), torn = record_line(test_measurement(4096));
  for (std::size_t length = 1; length <= torn.size(); length += 37) {
    const StoreContents contents = contents_of(whole + torn.substr(0, length));
    CHECK(contents.measurements.size() == 2);
    CHECK(contents.whole_bytes == whole.size());
    CHECK(contents.warning.starts_with("m.jsonl:3: warning: "));
  }
}

TEST_CASE("what is no record is a finding with its place", "[store]") {
  const std::string good = record_line(test_measurement(256)) + '\n';
  const auto finds = [&](const std::string& from, const std::string& to, const std::string& finding) {
    const std::string findings = findings_of(good + with(good, from, to));
    INFO(findings);
    CHECK(findings.find("m.jsonl:2:") != std::string::npos);
    CHECK(findings.find(finding) != std::string::npos);
  };
  finds("\"rounds\":15", "\"rounds\":\"many\"", "`rounds` is an integer, not \"many\" [wrong-type]");
  finds("\"rounds\":15", "\"rounds\":0", "[out-of-range]");
  finds("\"rounds\":15", "\"runds\":15", "did you mean `rounds`?");
  finds("\"ms\":1.5", "\"ms\":-1.5", "[out-of-range]");
  finds("\"ms\":1.5", "\"ms\":0", "no call takes 0 ms");
  finds("\"stopped\":false", "\"stopped\":0", "[wrong-type]");
  finds("\"check\":\"smaller\"", "\"check\":\"believed\"", "[unknown-value]");
  finds("\"date\":\"2025-11-22\",", "", "has no `date` [missing-key]");
  finds("\"sm_count\":132", "\"sm_count\":1e300", "[wrong-type]");
  finds("\"sm_count\":132", "\"sm_count\":18446744073709551615", "[out-of-range]");
  finds("\"sm_count\":132", "\"sm_count\":132,\"cores\":4", "`environment` has no key `cores` [unknown-key]");
  finds("d=128", "d=129", "[unknown-value]");
  finds("bwd_sm90_d128_bf16_hopper_m64", "bwd_sm90_d128_bf16_m64", "[unknown-value]");
  CHECK(findings_of("[]\n").find("[wrong-type]") != std::string::npos);
  CHECK(findings_of("{}\n").find("[missing-key]") != std::string::npos);
  CHECK(findings_of(std::string("\0\xff\n", 3)).find("[json-syntax]") != std::string::npos);
}

TEST_CASE("what is appended stays, the torn rest of an interrupted run goes", "[store]") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "m.jsonl";
  write(path, lines(2) + "{\"version\":1,\"pro");
  {
    Store store;
    REQUIRE(store.open(path).empty());
    CHECK(store.source().text == lines(2) + "{\"version\":1,\"pro");
    CHECK(store.append(test_measurement(384)).empty());
    CHECK(read(path) == lines(3));  // before the next one begins
    CHECK(store.append(test_measurement(512)).empty());
  }
  CHECK(read(path) == lines(4));
}

TEST_CASE("a second tuner on the same store is refused, and loses nothing", "[store]") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "m.jsonl";
  Store first;
  REQUIRE(first.open(path).empty());
  REQUIRE(first.append(test_measurement(128)).empty());
  Store second;
  const std::string refusal = second.open(path);
  CHECK(refusal.find(path.generic_string() + ": another flashdma-tune is measuring into this store") == 0);
  CHECK(in_child([&] { return Store().open(path).empty() ? 0 : 7; }) == 7);
  REQUIRE(first.append(test_measurement(256)).empty());
  CHECK(read(path) == lines(2));
}

TEST_CASE("a folder that cannot be written and a folder in the way are said", "[store]") {
  if (!testing::somebody_may_not_write()) return;
  const TemporaryFolder folder;
  Store none;
  CHECK(none.open(folder.path() / "no/such/m.jsonl").find("No such file or directory") != std::string::npos);
  Store in_the_way;
  CHECK(in_the_way.open(folder.path()).find("Is a directory") != std::string::npos);
  const auto refusal = [](const std::filesystem::path& path) {
    return path.generic_string() +
           ": the store cannot be opened: Permission denied; --store names a file in a folder that can be written";
  };
  const auto absent = folder.path() / "m.jsonl", there = folder.path() / "there.jsonl";
  CHECK(said_in_unwritable_folder(folder.path(), [&] { return Store().open(absent); }) == refusal(absent));
  CHECK_FALSE(std::filesystem::exists(absent));
  write(there, lines(2));
  std::filesystem::permissions(there, std::filesystem::perms{0444});
  CHECK(said_in_unwritable_folder(folder.path(), [&] { return Store().open(there); }) == refusal(there));
  CHECK(read(there) == lines(2));
}

TEST_CASE("a full disk keeps what was measured before", "[store]") {
  const TemporaryFolder folder;
  const auto path = folder.path() / "m.jsonl";
  const std::size_t line = record_line(test_measurement(128)).size() + 1;
  const int code = in_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{2 * line + line / 2, 2 * line + line / 2};
    Store store;
    if (!store.open(path).empty() || setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    if (!store.append(test_measurement(128)).empty() || !store.append(test_measurement(256)).empty()) return 2;
    const std::string error = store.append(test_measurement(384));
    return error.find("a measurement cannot be written: File too large") == std::string::npos ? 3 : 0;
  });
  CHECK(code == 0);
  CHECK(read(path) == lines(2));  // the half line went again
  CHECK(contents_of(read(path)).measurements.size() == 2);
  Store next;  // where there is room again, it goes on
  REQUIRE(next.open(path).empty());
  CHECK(next.append(test_measurement(384)).empty());
  CHECK(read(path) == lines(3));
}

TEST_CASE("a tuner that is killed loses no measurement that it had finished", "[store]") {
  for (int round = 0; round < 5; ++round) {
    const TemporaryFolder folder;
    const auto path = folder.path() / "m.jsonl";
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      Store store;
      if (!store.open(path).empty()) _exit(1);
      for (std::int64_t i = 1;; ++i) {
        if (!store.append(test_measurement(128 * i)).empty()) _exit(1);
        const char done = 1;
        if (::write(ends[1], &done, 1) != 1) _exit(1);
      }
    }
    close(ends[1]);
    std::size_t finished = 0;
    char done = 0;
    while (finished < 5 + static_cast<std::size_t>(round) && ::read(ends[0], &done, 1) == 1) ++finished;
    REQUIRE(kill(child, SIGKILL) == 0);
    REQUIRE(waitpid(child, nullptr, 0) == child);
    while (::read(ends[0], &done, 1) == 1) ++finished;
    close(ends[0]);
    const StoreContents contents = contents_of(read(path));
    REQUIRE(contents.measurements.size() >= finished);
    for (std::size_t i = 0; i < contents.measurements.size(); ++i)
      CHECK(contents.measurements[i].problem.seqlen_q == 128 * static_cast<std::int64_t>(i + 1));
    Store next;  // the lock went with the process
    CHECK(next.open(path).empty());
  }
}

}  // namespace flashdma_bwd::tune::test
