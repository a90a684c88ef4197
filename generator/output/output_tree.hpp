// The generated tree on the disk: compared with what was emitted, and brought up to date with it.
//
// A write either happens as a whole or changes nothing that a build reads: all texts are staged in files beside their
// targets first, and only when every one of them is on the disk are they renamed into place.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "emit/emit.hpp"

namespace flashdma_bwd::generator {

/// Paths relative to the tree, sorted.
struct TreeComparison {
  std::vector<std::string> missing;   ///< emitted, not on the disk
  std::vector<std::string> changed;   ///< emitted, and otherwise on the disk
  std::vector<std::string> orphaned;  ///< on the disk with our banner, not emitted; and what an aborted write left
  std::vector<std::string> current;   ///< as emitted
  std::string unreadable;             ///< what keeps the tree from being compared, or an empty text
  bool up_to_date() const { return missing.empty() && changed.empty() && orphaned.empty(); }
};

/// Holds the tree for one process until it is destroyed; others wait. Creates the folder where there is none, and
/// removes it again if nothing was put into it. Holds nothing where the folder cannot be had or its file system has no
/// locks.
class TreeLock {
 public:
  explicit TreeLock(const std::filesystem::path& root);
  ~TreeLock();
  TreeLock(const TreeLock&) = delete;
  TreeLock& operator=(const TreeLock&) = delete;

 private:
  int folder_ = -1;
  std::vector<std::filesystem::path> created_;
};

/// A file that cannot be read counts as changed.
TreeComparison compare_tree(const std::filesystem::path& root, const std::vector<EmittedFile>& files);

/// How a write reaches the disk; tests put failures here. Each returns what went wrong, or an empty text.
struct FileOperations {
  std::function<std::string(const std::filesystem::path& path, const std::string& text)> write;
  std::function<std::string(const std::filesystem::path& from, const std::filesystem::path& to)> rename;
};
FileOperations disk_operations();

/// Writes what is missing or changed and removes what is orphaned. Returns what went wrong, or an empty text.
/// When staging fails, the tree is as it was.
std::string update_tree(const std::filesystem::path& root, const std::vector<EmittedFile>& files,
                        const TreeComparison& comparison, const FileOperations& operations = disk_operations());

}  // namespace flashdma_bwd::generator
