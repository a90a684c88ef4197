// The walls between the parts of the generator, as include lines.
#include <set>
#include <sstream>
#include <vector>

#include "generator/files.hpp"
#include "support/catch.hpp"

namespace flashdma_bwd::generator::test {
namespace {

/// What the files of the generator include: path to the names between brackets or quotes.
std::map<std::string, std::set<std::string>> includes() {
  std::map<std::string, std::set<std::string>> result;
  for (const auto& [path, text] : read_tree(source_dir() / "generator")) {
    if (!path.ends_with(".cpp") && !path.ends_with(".hpp")) continue;
    std::istringstream lines(text);
    std::set<std::string>& names = result[path];
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("#include ")) names.insert(line.substr(10, line.size() - 11));
  }
  REQUIRE(result.contains("main.cpp"));
  return result;
}

bool includes_any(const std::set<std::string>& names, const std::set<std::string>& beginnings) {
  for (const std::string& name : names)
    for (const std::string& beginning : beginnings)
      if (name.starts_with(beginning)) return true;
  return false;
}

}  // namespace

TEST_CASE("only config knows yaml-cpp, and only its implementation", "[walls]") {
  std::set<std::string> users;
  for (const auto& [path, names] : includes())
    if (includes_any(names, {"yaml-cpp/"})) users.insert(path);
  CHECK(users == std::set<std::string>{"config/document.cpp"});
}

TEST_CASE("only commands and main know the command line", "[walls]") {
  for (const auto& [path, names] : includes()) {
    INFO(path);
    const bool may = path.starts_with("commands/") || path == "main.cpp";
    CHECK((may || !includes_any(names, {"CLI/", "commands/"})));
  }
}

TEST_CASE("validation, plan, tuning and emit touch neither files nor streams nor the environment", "[walls]") {
  for (const auto& [path, names] : includes()) {
    if (!path.starts_with("validation/") && !path.starts_with("plan/") && !path.starts_with("tuning/") &&
        !path.starts_with("emit/"))
      continue;
    INFO(path);
    CHECK_FALSE(includes_any(names, {"filesystem", "fstream", "iostream", "cstdio", "cstdlib", "ctime", "chrono",
                                     "unistd.h", "output/", "config/load.hpp"}));
  }
}

TEST_CASE("the parts depend on each other in one direction", "[walls]") {
  // A part may include those before it.
  const std::vector<std::string> order{"diagnostics/", "config/", "validation/", "plan/",
                                       "tuning/",      "emit/",   "output/",     "commands/"};
  for (const auto& [path, names] : includes())
    for (std::size_t part = 0; part < order.size(); ++part)
      if (path.starts_with(order[part])) {
        INFO(path);
        CHECK_FALSE(includes_any(names, {order.begin() + static_cast<std::ptrdiff_t>(part) + 1, order.end()}));
      }
}

}  // namespace flashdma_bwd::generator::test
