// The choices of a run-time cache, see tune_cache/cache_record.hpp: read, printed, and as measured problems. Pure.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <optional>
#include <string>
#include <vector>

#include "diagnostics/diagnostic.hpp"
#include "diagnostics/source_file.hpp"
#include "tune_cache/cache_file.hpp"
#include "tuning/measured_problem.hpp"

namespace flashdma_bwd::tune {

/// What a cache says.
struct CacheContents {
  std::vector<CacheLine> records;              ///< in the order of the file
  std::vector<CacheEnvironment> environments;  ///< of the records, in the order of their first lines
  std::string warning;                         ///< about records of another version, which are passed over; or empty
};

/// Reports every damaged line.
CacheContents read_choices(const generator::SourceFile& source, generator::Diagnostics& diagnostics);

/// "compute capability 9.0"
std::string gpu_text(int compute_capability);
/// "compute capability 9.0, 132 SMs, CUDA 13.0, tables 0123456789abcdef"
std::string environment_text(const CacheEnvironment& environment);
/// A line for each environment with its number from 1 and how many records it has.
std::string environments_text(const CacheContents& contents);
std::string choices_text(const CacheContents& contents);
std::string choices_json(const CacheContents& contents);

/// The two times of a record, as times of kernels of `architecture`. `incumbent` is what its table chooses for the
/// problem, if anything. `was_raced`: the record was measured with that table, so that the incumbent was measured, too.
/// Where it is neither the fastest nor the next, it is slower than the fastest beyond the noise, and no faster than the
/// next: its time is at least that, and so its regret is at least what comes out.
generator::MeasuredProblem measured_problem(const CacheRecord& record, Architecture architecture,
                                            const std::optional<TileConfig>& incumbent, bool was_raced);

}  // namespace flashdma_bwd::tune
