// The file of the cache: JSON Lines, a record a line, shared by any number of processes.
//
// The library only ever adds lines. What it cannot use stays where it is: records of another GPU, table, toolkit or
// version are right elsewhere, and a damaged line is its owner's to mend or to delete. Of two records of one
// environment and problem whose kernels a build has, the first in the file counts.
//
// A file is replaced as a whole, by a rename, while <file>.lock is locked with flock: readers need no lock and see all
// of a line or nothing of it, and no process loses what another wrote.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "selection/parsed.hpp"
#include "tune_cache/cache_record.hpp"

namespace flashdma_bwd {

enum class LineKind : std::uint8_t {
  record,
  other_version,  ///< of another kCacheVersion
  damaged,        ///< anything else
};

struct CacheLine {
  int number = 0;  ///< 1-based
  LineKind kind = LineKind::damaged;
  CacheRecord record;  ///< of a record
  std::string why;     ///< of what is none: what is wrong with it
};

/// The lines of a file's text; empty ones are passed over.
std::vector<CacheLine> parse_cache(std::string_view text);

/// The lines of a file, none if there is no file, or why it cannot be a cache: it cannot be read, it is no regular
/// file, or it has lines of which none begins like a record.
Parsed<std::vector<CacheLine>> read_cache(const std::string& path);

/// Adds the records that the file does not have yet, see `same_choice`, and returns the line number of each. Waits some
/// seconds for the lock at most. If it fails, which the error says why, the file is as it was.
Parsed<std::vector<int>> append_to_cache(const std::string& path, std::span<const CacheRecord> records);

}  // namespace flashdma_bwd
