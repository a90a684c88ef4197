// A path that stays the same when the program changes its folder.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace flashdma_bwd {

/// Seen from the current folder; an empty path stays empty.
inline std::string absolute_path(const std::string& path) {
  if (path.empty()) return path;
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.string();
}

}  // namespace flashdma_bwd
