// Whether a line of the cache holds for a GPU and a build, and if not why.
#pragma once

#include <cstdint>
#include <string>

#include "dispatch_table.hpp"
#include "tune_cache/cache_file.hpp"

namespace flashdma_bwd {

enum class Usability : std::uint8_t {
  usable,
  damaged,
  other_version,
  stale,         ///< measured with other tables or another toolkit
  foreign,       ///< of another kind of GPU
  not_runnable,  ///< its kernel is not in this build, or cannot run
};

struct Usable {
  Usability usability = Usability::damaged;
  std::string why;  ///< of what is not usable
  const KernelEntry* kernel = nullptr;
  CodeForm form = CodeForm::native;
  int tier = 0;
};

/// `environment`: the GPU and the build that ask.
Usable usable_record(const CacheLine& line, const DispatchTable& table, const CacheEnvironment& environment,
                     const DeviceTraits& device);

/// "<path>:<line>: ..." about the first line that is not usable, and how many there are of which kind; empty: all are.
std::string ignored_lines(const std::string& path, const std::vector<CacheLine>& lines,
                          const std::vector<Usable>& usable);

}  // namespace flashdma_bwd
