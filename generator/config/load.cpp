// Files to model.
#include "config/load.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>

#include "config/fields.hpp"
#include "config/read.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd::generator {
namespace {

namespace fs = std::filesystem;

std::optional<SourceFile> read_file(const fs::path& path, std::string name, Diagnostics& diagnostics) {
  std::error_code ignored;
  const bool folder = fs::is_directory(path, ignored);
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  if (stream && !folder) text << stream.rdbuf();
  const bool empty = stream && !folder && text.str().empty();
  if (!stream || folder || (text.fail() && !empty)) {
    const std::string why = folder ? "it is a folder" : errno != 0 ? std::strerror(errno) : "reading failed";
    diagnostics.add(Rule::file_unreadable, {path.generic_string()}, "the file cannot be read: " + why);
    return std::nullopt;
  }
  return SourceFile{path.generic_string(), std::move(name), text.str()};
}

/// The .yaml files of a folder, in the order of their names.
std::vector<fs::path> yaml_files(const fs::path& folder, Diagnostics& diagnostics) {
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".yaml") {
      // Reading would wait for a pipe; what is wrong with a link it finds out.
      std::error_code ignored;
      if (const fs::file_status status = it->status(ignored); fs::is_other(status) || fs::is_fifo(status))
        diagnostics.add(Rule::file_unreadable, {it->path().generic_string()},
                        "the file cannot be read: it is no regular file");
      else
        files.push_back(it->path());
    }
  if (error)
    diagnostics.add(Rule::file_unreadable, {folder.generic_string()}, "the folder cannot be read: " + error.message(),
                    {"--configs names the folder that holds architectures/, tables/ and profiles/"});
  std::sort(files.begin(), files.end());
  return files;
}

template <class Item, class Reader>
void read_folder(const fs::path& configs, const std::string& kind, Reader read, std::vector<Item>& items,
                 Configuration& configuration, Diagnostics& diagnostics, auto&& name_of) {
  for (const fs::path& path : yaml_files(configs / kind, diagnostics)) {
    std::optional<SourceFile> source =
        read_file(path, "configs/" + kind + '/' + path.filename().generic_string(), diagnostics);
    if (!source) continue;
    configuration.sources.push_back(*std::move(source));
    std::optional<Item> item = read(configuration.sources.back(), diagnostics);
    if (!item) continue;
    const std::string name(name_of(*item));
    if (name != path.stem().generic_string())
      diagnostics.add(Rule::name_mismatch, item->at,
                      "this file describes `" + name + "` but is named " + path.filename().generic_string(),
                      {"the file of `" + name + "` is " + name + ".yaml"});
    for (const Item& other : items)
      if (name_of(other) == name)
        diagnostics.add(Rule::duplicate_name, item->at, "`" + name + "` is described twice",
                        {"also in " + other.at.file});
    items.push_back(*std::move(item));
  }
}

void sort_tables(Configuration& configuration) {
  const auto by_architecture = [](const auto& a, const auto& b) { return a.architecture < b.architecture; };
  std::stable_sort(configuration.architectures.begin(), configuration.architectures.end(), by_architecture);
  std::stable_sort(configuration.tables.begin(), configuration.tables.end(), by_architecture);
}

void read_tables(const fs::path& folder, Configuration& configuration, Diagnostics& diagnostics) {
  read_folder(folder, "tables", read_table, configuration.tables, configuration, diagnostics,
              [](const Table& t) { return word(t.architecture); });
}

}  // namespace

Configuration load_configuration(const fs::path& folder, Diagnostics& diagnostics) {
  Configuration configuration;
  read_folder(folder, "architectures", read_architecture, configuration.architectures, configuration, diagnostics,
              [](const ArchitectureSpec& spec) { return word(spec.architecture); });
  read_tables(folder, configuration, diagnostics);
  read_folder(folder, "profiles", read_profile, configuration.profiles, configuration, diagnostics,
              [](const Profile& profile) { return std::string_view(profile.name); });
  sort_tables(configuration);
  return configuration;
}

Configuration load_tables(const fs::path& path, Diagnostics& diagnostics) {
  Configuration configuration;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    read_tables(path, configuration, diagnostics);
  } else if (std::optional<SourceFile> source =
                 read_file(path, "configs/tables/" + path.filename().generic_string(), diagnostics)) {
    configuration.sources.push_back(*std::move(source));
    if (std::optional<Table> table = read_table(configuration.sources.back(), diagnostics))
      configuration.tables.push_back(*std::move(table));
  }
  sort_tables(configuration);
  return configuration;
}

}  // namespace flashdma_bwd::generator
