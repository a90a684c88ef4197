// Records that could be, and texts of files.
#pragma once

#include <string>

#include "support/temporary_folder.hpp"
#include "tables.hpp"
#include "tune_cache/cache_record.hpp"

namespace flashdma_bwd::testing {

/// Of an H100 and the pretended build.
CacheEnvironment sample_environment();

/// A record of `problem` in which every member is given; the table of sm90 has its kernel.
CacheRecord sample_record(const Problem& problem);

/// The ordinary problem with this batch.
Problem problem_of_batch(std::int64_t batch);

void write_text(const std::string& path, const std::string& text);
std::string read_text(const std::string& path);

}  // namespace flashdma_bwd::testing
