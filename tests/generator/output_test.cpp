// The tree on the disk: what is written, what is left alone, and that a failure leaves the tree as it was.
#include "generator/files.hpp"
#include "output/output_tree.hpp"
#include "support/catch.hpp"

namespace flashdma_bwd::generator::test {
namespace {

namespace fs = std::filesystem;

const std::string kBanner = "// " + std::string(kBannerMark) + "\n";

std::vector<EmittedFile> first_tree() {
  return {{"dispatch_table.inc", kBanner + "1\n"},
          {"kernels/sm80/a.cu", kBanner + "a\n"},
          {"kernels/sm80/b.cu", kBanner + "b\n"},
          {"kernels/sm90/c.cu", kBanner + "c\n"}};
}

/// Without c, with another b and a new d.
std::vector<EmittedFile> second_tree() {
  return {{"dispatch_table.inc", kBanner + "2\n"},
          {"kernels/sm80/a.cu", kBanner + "a\n"},
          {"kernels/sm80/b.cu", kBanner + "other\n"},
          {"kernels/sm86/d.cu", kBanner + "d\n"}};
}

std::string update(const fs::path& root, const std::vector<EmittedFile>& files,
                   const FileOperations& operations = disk_operations()) {
  return update_tree(root, files, compare_tree(root, files), operations);
}

std::map<std::string, std::string> as_map(const std::vector<EmittedFile>& files) {
  std::map<std::string, std::string> map;
  for (const EmittedFile& file : files) map[file.path] = file.text;
  return map;
}

}  // namespace

TEST_CASE("a tree is brought up to date, orphans and their folders go", "[output]") {
  const TemporaryFolder folder;
  const fs::path root = folder.path() / "deep/generated";
  REQUIRE(update(root, first_tree()).empty());
  CHECK(read_tree(root) == as_map(first_tree()));

  const TreeComparison comparison = compare_tree(root, second_tree());
  CHECK(comparison.missing == std::vector<std::string>{"kernels/sm86/d.cu"});
  CHECK(comparison.changed == std::vector<std::string>{"dispatch_table.inc", "kernels/sm80/b.cu"});
  CHECK(comparison.orphaned == std::vector<std::string>{"kernels/sm90/c.cu"});
  CHECK(comparison.current == std::vector<std::string>{"kernels/sm80/a.cu"});

  REQUIRE(update(root, second_tree()).empty());
  CHECK(read_tree(root) == as_map(second_tree()));
  CHECK_FALSE(fs::exists(root / "kernels/sm90"));
  CHECK(compare_tree(root, second_tree()).up_to_date());
}

TEST_CASE("a file that is current is not touched", "[output]") {
  const TemporaryFolder folder;
  REQUIRE(update(folder.path(), first_tree()).empty());
  const fs::path kept = folder.path() / "kernels/sm80/a.cu", changed = folder.path() / "kernels/sm80/b.cu";
  const fs::file_time_type long_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(kept, long_ago);
  fs::last_write_time(changed, long_ago);
  REQUIRE(update(folder.path(), second_tree()).empty());
  CHECK(fs::last_write_time(kept) == long_ago);
  CHECK(fs::last_write_time(changed) != long_ago);
}

TEST_CASE("what others put into the tree stays", "[output]") {
  const TemporaryFolder folder;
  REQUIRE(update(folder.path(), first_tree()).empty());
  write(folder.path() / "README", "notes\n");
  write(folder.path() / "kernels/sm90/mine.cu", "// by hand\n");
  write(folder.path() / "elsewhere/copy.cu", kBanner + "not where files are emitted to\n");
  REQUIRE(update(folder.path(), second_tree()).empty());
  CHECK(fs::exists(folder.path() / "README"));
  CHECK(fs::exists(folder.path() / "kernels/sm90/mine.cu"));
  CHECK(fs::exists(folder.path() / "elsewhere/copy.cu"));
  CHECK_FALSE(fs::exists(folder.path() / "kernels/sm90/c.cu"));
}

TEST_CASE("a disk that fills up at any file leaves the tree as it was", "[output]") {
  for (int successes = 0; successes < 3; ++successes) {
    const TemporaryFolder folder;
    REQUIRE(update(folder.path(), first_tree()).empty());
    FileOperations operations = disk_operations();
    int left = successes;
    operations.write = [&](const fs::path& path, const std::string& text) {
      if (left-- > 0) return disk_operations().write(path, text);
      write(path, text.substr(0, text.size() / 2));  // what a full disk leaves behind
      return std::string("No space left on device");
    };
    const std::string why = update(folder.path(), second_tree(), operations);
    CHECK(why.find("No space left on device") != std::string::npos);
    CHECK(read_tree(folder.path()) == as_map(first_tree()));
    CHECK_FALSE(fs::exists(folder.path() / "kernels/sm86"));
  }
}

TEST_CASE("a device that is full is noticed when the file is closed", "[output]") {
  if (!fs::exists("/dev/full")) return;
  CHECK_FALSE(disk_operations().write("/dev/full", "text").empty());
}

TEST_CASE("when replacing fails, no staged file is left and the next run mends the tree", "[output]") {
  const TemporaryFolder folder;
  REQUIRE(update(folder.path(), first_tree()).empty());
  FileOperations operations = disk_operations();
  int left = 1;
  operations.rename = [&](const fs::path& from, const fs::path& to) {
    return left-- > 0 ? disk_operations().rename(from, to) : std::string("Operation not permitted");
  };
  CHECK(update(folder.path(), second_tree(), operations).find("generate` again") != std::string::npos);
  for (const auto& [path, text] : read_tree(folder.path())) CHECK(path.find("staged") == std::string::npos);
  REQUIRE(update(folder.path(), second_tree()).empty());
  CHECK(read_tree(folder.path()) == as_map(second_tree()));
}

TEST_CASE("what a killed run left staged is an orphan", "[output]") {
  const TemporaryFolder folder;
  REQUIRE(update(folder.path(), first_tree()).empty());
  write(folder.path() / "kernels/sm80/a.cu.flashdma-gen-staged", "half");
  CHECK(compare_tree(folder.path(), first_tree()).orphaned ==
        std::vector<std::string>{"kernels/sm80/a.cu.flashdma-gen-staged"});
  REQUIRE(update(folder.path(), first_tree()).empty());
  CHECK(read_tree(folder.path()) == as_map(first_tree()));
}

TEST_CASE("a link that lies where a file is staged is not followed", "[output]") {
  const TemporaryFolder folder;
  write(folder.path() / "victim", "mine\n");
  fs::create_symlink(folder.path() / "victim", folder.path() / "staged");
  CHECK(disk_operations().write(folder.path() / "staged", "text").empty());
  CHECK(read(folder.path() / "victim") == "mine\n");
  CHECK(read(folder.path() / "staged") == "text");
}

TEST_CASE("files and folders in the way are named", "[output]") {
  const TemporaryFolder folder;
  write(folder.path() / "file", "text");
  CHECK(update(folder.path() / "file", first_tree()).find("file") != std::string::npos);
  CHECK(read(folder.path() / "file") == "text");

  fs::create_directories(folder.path() / "tree/dispatch_table.inc");
  const std::string why = update(folder.path() / "tree", first_tree());
  CHECK(why.find("a folder is in its place") != std::string::npos);
  CHECK(read_tree(folder.path() / "tree").empty());
}

}  // namespace flashdma_bwd::generator::test
