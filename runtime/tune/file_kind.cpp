// Keys of records.
#include "file_kind.hpp"

#include <algorithm>
#include <array>

#include "selection/line_text.hpp"

namespace flashdma_bwd::tune {
namespace {

// In a text of JSON the quotes of a value are escaped, so that these are found as keys, or values, only.
constexpr std::array<std::string_view, 2> kStoreKeys = {"\"environment\"", "\"candidates\""};
constexpr std::array<std::string_view, 3> kCacheKeys = {"\"compute_capability\"", "\"table_hash\"", "\"kernel\""};

bool has_any(std::string_view line, const auto& keys) {
  return std::ranges::any_of(keys, [&](std::string_view key) { return line.find(key) != std::string_view::npos; });
}

}  // namespace

FileKind file_kind(std::string_view text) {
  FileKind kind = FileKind::empty;
  while (!text.empty()) {
    const std::string_view line = take_until(text, '\n');
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    kind = FileKind::neither;
    if (!line.starts_with('{')) continue;
    // A store's environment has keys of a cache's record in it.
    if (has_any(line, kStoreKeys)) return FileKind::store;
    if (has_any(line, kCacheKeys)) return FileKind::cache;
  }
  return kind;
}

std::string neither_text(const std::string& path) {
  return path +
         " is neither a store of flashdma-tune, whose lines begin like "
         "`{\"version\":1,\"problem\":\"...\",\"date\":\"...\",\"environment\":{`, nor a run-time cache of the "
         "library, whose lines begin like `{\"version\":1,\"compute_capability\":90,\"sm_count\":132,`: name the file "
         "of "
         "--store or of FLASHDMA_BWD_TUNE_CACHE";
}

}  // namespace flashdma_bwd::tune
