// Comparison, staging, renaming.
#include "output/output_tree.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

namespace flashdma_bwd::generator {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStagedSuffix = ".flashdma-gen-staged";

std::optional<std::string> read_text(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  if (stream && stream.peek() != std::ifstream::traits_type::eof()) text << stream.rdbuf();
  return stream.bad() || text.bad() ? std::nullopt : std::optional(text.str());
}

/// The banner is in the first lines of every emitted file.
bool is_ours(const fs::path& path) {
  constexpr std::streamsize kHead = 200;
  std::ifstream stream(path, std::ios::binary);
  std::string head(static_cast<std::size_t>(kHead), '\0');
  stream.read(head.data(), kHead);
  head.resize(static_cast<std::size_t>(stream.gcount()));
  return head.find(kBannerMark) != std::string::npos;
}

fs::path staged(const fs::path& target) {
  return fs::path(target).concat(kStagedSuffix);
}

std::string failure(const std::string& what, const fs::path& path, const std::string& why) {
  return what + ' ' + path.generic_string() + ": " + why;
}

std::string write_file(const fs::path& path, const std::string& text) {
  // Not what a link leads to.
  std::error_code ignored;
  if (fs::is_symlink(path, ignored)) fs::remove(path, ignored);
  errno = 0;
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream.write(text.data(), static_cast<std::streamsize>(text.size()));
  stream.close();
  if (stream) return {};
  return errno != 0 ? std::strerror(errno) : "writing failed";
}

std::string rename_file(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  return error ? error.message() : std::string();
}

/// Of these folders, outermost first, those that hold nothing.
void remove_empty(const std::vector<fs::path>& folders) {
  std::error_code ignored;
  for (auto it = folders.rbegin(); it != folders.rend(); ++it) fs::remove(*it, ignored);
}

/// Folders that the write needs, outermost first, which were not there.
class CreatedFolders {
 public:
  std::string create(const fs::path& folder) {
    std::vector<fs::path> absent;
    std::error_code error;
    for (fs::path at = folder; !at.empty() && !fs::exists(at, error); at = at.parent_path()) absent.push_back(at);
    for (auto it = absent.rbegin(); it != absent.rend(); ++it) {
      if (!fs::create_directory(*it, error) && error) return failure("cannot create the folder", *it, error.message());
      created_.push_back(*it);
    }
    if (!fs::is_directory(folder, error)) return failure("cannot create the folder", folder, "a file is in its place");
    return {};
  }
  const std::vector<fs::path>& all() const { return created_; }
  void remove() const { remove_empty(created_); }

 private:
  std::vector<fs::path> created_;
};

}  // namespace

TreeLock::TreeLock(const fs::path& root) {
  const auto is_still_there = [&] {
    struct stat opened = {}, named = {};
    return fstat(folder_, &opened) == 0 && stat(root.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
  };
  // Whoever has failed meanwhile has removed the folder that this one waited for. A file system that numbers a folder
  // anew each time must not be asked for ever.
  constexpr int kMostAttempts = 100;
  for (int attempt = 0; attempt == 0 || (attempt < kMostAttempts && !is_still_there()); ++attempt) {
    if (folder_ >= 0) close(std::exchange(folder_, -1));
    CreatedFolders folders;
    const bool there = folders.create(root).empty();
    created_.insert(created_.end(), folders.all().begin(), folders.all().end());
    if (!there) return;  // which whoever writes is told, too
    folder_ = open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_ < 0 || flock(folder_, LOCK_EX) != 0) return;
  }
}

TreeLock::~TreeLock() {
  remove_empty(created_);
  if (folder_ >= 0) close(folder_);
}

FileOperations disk_operations() {
  return {write_file, rename_file};
}

TreeComparison compare_tree(const fs::path& root, const std::vector<EmittedFile>& files) {
  TreeComparison comparison;
  std::set<std::string> emitted;
  std::error_code error;
  for (const EmittedFile& file : files) {
    emitted.insert(file.path);
    const fs::path path = root / file.path;
    if (!fs::exists(path, error))
      comparison.missing.push_back(file.path);
    else
      (read_text(path) == file.text ? comparison.current : comparison.changed).push_back(file.path);
  }
  fs::path at = root;
  const auto look_at = [&](const fs::directory_entry& entry) {
    std::error_code ignored;
    at = entry.path();
    if (!entry.is_regular_file(ignored)) return;
    const std::string path = entry.path().lexically_relative(root).generic_string();
    if (!emitted.contains(path) && (path.ends_with(kStagedSuffix) || is_ours(entry.path())))
      comparison.orphaned.push_back(path);
  };
  // Of what lies behind an entry that cannot be read nobody knows whether it is ours.
  const auto note = [&] {
    const bool absent = error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
    if (error && !absent) comparison.unreadable = failure("cannot read what lies in or behind", at, error.message());
    error.clear();
  };
  // Only where files are emitted to: whatever else lies below the root is not ours to judge.
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) look_at(*it);
  note();
  at = root / "kernels";
  constexpr auto kLinksToo = fs::directory_options::follow_directory_symlink;
  for (fs::recursive_directory_iterator it(at, kLinksToo, error), end; !error && it != end; it.increment(error))
    look_at(*it);
  note();
  for (auto* list : {&comparison.missing, &comparison.changed, &comparison.orphaned, &comparison.current})
    std::sort(list->begin(), list->end());
  return comparison;
}

std::string update_tree(const fs::path& root, const std::vector<EmittedFile>& files, const TreeComparison& comparison,
                        const FileOperations& operations) {
  std::set<std::string> stale(comparison.missing.begin(), comparison.missing.end());
  stale.insert(comparison.changed.begin(), comparison.changed.end());

  CreatedFolders folders;
  std::vector<fs::path> targets;
  const auto give_up = [&](std::string why) {
    std::error_code ignored;
    for (const fs::path& target : targets) fs::remove(staged(target), ignored);
    folders.remove();
    return why;
  };
  for (const EmittedFile& file : files) {
    if (!stale.contains(file.path)) continue;
    const fs::path target = root / file.path;
    if (std::string why = folders.create(target.parent_path()); !why.empty()) return give_up(std::move(why));
    std::error_code error;
    if (fs::is_directory(target, error)) return give_up(failure("cannot write", target, "a folder is in its place"));
    targets.push_back(target);
    if (const std::string why = operations.write(staged(target), file.text); !why.empty())
      return give_up(failure("cannot write", target, why));
  }
  for (const fs::path& target : targets)
    if (const std::string why = operations.rename(staged(target), target); !why.empty())
      return give_up(failure("cannot replace", target, why) + "; run `flashdma-gen generate` again");

  for (const std::string& orphan : comparison.orphaned) {
    std::error_code error;
    fs::remove(root / orphan, error);
    if (error) return failure("cannot remove", root / orphan, error.message());
    // A folder that holds nothing any more goes too.
    for (fs::path folder = (root / orphan).parent_path(); folder != root && fs::is_empty(folder, error) && !error;
         folder = folder.parent_path())
      fs::remove(folder, error);
  }
  return {};
}

}  // namespace flashdma_bwd::generator
