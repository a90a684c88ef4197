// Files are written whole or not at all.
#include "report/write_file.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/catch.hpp"

using flashdma_bwd::bench::write_file;
namespace fs = std::filesystem;

namespace {

/// A folder that goes with the test.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "flashdma_bwd_write_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  fs::path operator/(const char* name) const { return path_ / name; }
  std::ptrdiff_t files() const { return std::distance(fs::directory_iterator(path_), fs::directory_iterator()); }

 private:
  fs::path path_;
};

std::string contents(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("a file is replaced and nothing is left beside it") {
  const Folder folder;
  const fs::path path = folder / "report.html";
  CHECK(write_file(path.string(), "first").empty());
  CHECK(contents(path) == "first");
  CHECK(write_file(path.string(), std::string(300000, 'x')).empty());
  CHECK(contents(path).size() == 300000);
  CHECK(folder.files() == 1);
}

TEST_CASE("what cannot be written is named, and what was there stays") {
  const Folder folder;
  fs::create_directory(folder / "folder");
  CHECK(write_file((folder / "folder").string(), "x") ==
        "cannot write " + (folder / "folder").string() + ": a folder is in its place");
  CHECK(write_file((folder / "none/report.html").string(), "x") ==
        "cannot write " + (folder / "none/report.html").string() + ": No such file or directory");
  CHECK(write_file("/dev/full", "x") == "cannot write /dev/full: No space left on device");
  CHECK(folder.files() == 1);
}

TEST_CASE("a link leads to the file that is replaced") {
  const Folder folder;
  CHECK(write_file((folder / "target").string(), "old").empty());
  fs::create_symlink("target", folder / "link");
  CHECK(write_file((folder / "link").string(), "new").empty());
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(contents(folder / "target") == "new");
}
