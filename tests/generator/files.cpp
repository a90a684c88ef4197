// Files of the tests.
#include "generator/files.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "support/catch.hpp"

namespace flashdma_bwd::generator::test {

namespace fs = std::filesystem;

fs::path source_dir() {
  return FLASHDMA_BWD_SOURCE_DIR;
}
fs::path cases_dir() {
  return source_dir() / "tests/generator/cases";
}

std::string read(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  INFO(path.string());
  REQUIRE(stream.good());
  return {std::istreambuf_iterator<char>(stream), {}};
}

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream stream(path, std::ios::binary);
  stream << text;
  stream.close();
  INFO(path.string());
  REQUIRE(stream.good());
}

std::map<std::string, std::string> read_tree(const fs::path& root) {
  std::map<std::string, std::string> files;
  if (fs::exists(root))
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root))
      if (entry.is_regular_file()) files[entry.path().lexically_relative(root).generic_string()] = read(entry.path());
  return files;
}

std::vector<fs::path> files_ending(const fs::path& folder, std::string_view ending) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().string().ends_with(ending)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  INFO(ending);
  REQUIRE_FALSE(files.empty());
  return files;
}

fs::path expected_of(const fs::path& file) {
  const std::string name = file.filename().string();
  return file.parent_path() / (name.substr(0, name.find('.')) + ".expected");
}

void check_expected(const std::string& actual, const fs::path& expected) {
  const char* update = std::getenv("FLASHDMA_BWD_UPDATE_EXPECTED");
  if (update != nullptr && std::string(update) == "1") {
    write(expected, actual);
    return;
  }
  INFO("FLASHDMA_BWD_UPDATE_EXPECTED=1 rewrites " << expected.string());
  CHECK(actual == read(expected));
}

}  // namespace flashdma_bwd::generator::test
