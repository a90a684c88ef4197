// Files are written whole or not at all.
#include "report/write_file.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

using flashdma_bwd::bench::write_file;
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
