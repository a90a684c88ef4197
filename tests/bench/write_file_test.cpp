// Files are written whole or not at all.
#include "report/write_file.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/catch.hpp"
#include "support/in_child.hpp"
#include "support/temporary_folder.hpp"

using flashdma_bwd::bench::write_file;
using flashdma_bwd::testing::said_in_unwritable_folder;
using flashdma_bwd::testing::said_on_full_disk;
using flashdma_bwd::testing::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

std::ptrdiff_t files_in(const fs::path& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

std::string contents(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("a file is replaced and nothing is left beside it") {
  const TemporaryFolder folder;
  const std::string path = folder.path("report.html");
  CHECK(write_file(path, "first").empty());
  CHECK(contents(path) == "first");
  CHECK(write_file(path, std::string(300000, 'x')).empty());
  CHECK(contents(path).size() == 300000);
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("what cannot be written is named, and what was there stays") {
  const TemporaryFolder folder;
  fs::create_directory(folder.path("folder"));
  CHECK(write_file(folder.path("folder"), "x") ==
        "cannot write " + folder.path("folder") + ": a folder is in its place");
  CHECK(write_file(folder.path("none/report.html"), "x") ==
        "cannot write " + folder.path("none/report.html") + ": No such file or directory");
  CHECK(write_file("/dev/full", "x") == "cannot write /dev/full: No space left on device");
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("a link leads to the file that is replaced") {
  const TemporaryFolder folder;
  CHECK(write_file(folder.path("target"), "old").empty());
  fs::create_symlink("target", folder.path("link"));
  CHECK(write_file(folder.path("link"), "new").empty());
  CHECK(fs::is_symlink(folder.path("link")));
  CHECK(contents(folder.path("target")) == "new");
}

TEST_CASE("a file that is replaced keeps its permissions") {
  const TemporaryFolder folder;
  const std::string path = folder.path("table.yaml");
  CHECK(write_file(path, "old").empty());
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_write);
  const fs::perms before = fs::status(path).permissions();
  CHECK(write_file(path, "new").empty());
  CHECK(fs::status(path).permissions() == before);
}

TEST_CASE("on a full disk a file that is there stays, and nothing is left beside it") {
  const TemporaryFolder folder;
  const std::string path = folder.path("table.yaml"), before = std::string(700, 'o') + "ld\n";
  REQUIRE(write_file(path, before).empty());
  constexpr rlim_t kRoom = 1000;
  const auto attempt = [](const std::string& file) {
    return said_on_full_disk(kRoom, [&] { return write_file(file, std::string(5 * kRoom, 'x')); });
  };
  CHECK(attempt(path) == "cannot write " + path + ": File too large");
  CHECK(contents(path) == before);
  CHECK(attempt(folder.path("new.yaml")) == "cannot write " + folder.path("new.yaml") + ": File too large");
  CHECK(said_on_full_disk(0, [&] { return write_file(path, "x"); }) == "cannot write " + path + ": File too large");
  CHECK(contents(path) == before);
  CHECK(files_in(folder.path()) == 1);
  // What has room is written there.
  CHECK(said_on_full_disk(kRoom, [&] { return write_file(path, std::string(kRoom, 'x')); }).empty());
  CHECK(contents(path) == std::string(kRoom, 'x'));
}

TEST_CASE("in a folder that cannot be written a file stays, though it itself could be") {
  if (!flashdma_bwd::testing::somebody_may_not_write()) return;
  const TemporaryFolder folder;
  const std::string path = folder.path("table.yaml");
  REQUIRE(write_file(path, "old").empty());
  fs::permissions(path, fs::perms{0666});
  const auto attempt = [&](const std::string& file) {
    return said_in_unwritable_folder(folder.path(), [&] { return write_file(file, "new"); });
  };
  CHECK(attempt(path) == "cannot write " + path + ": Permission denied");
  CHECK(attempt(folder.path("new.yaml")) == "cannot write " + folder.path("new.yaml") + ": Permission denied");
  CHECK(contents(path) == "old");
  CHECK(files_in(folder.path()) == 1);
}
