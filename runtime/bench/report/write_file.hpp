// Writing a file whole or not at all.
#pragma once

#include <string>
#include <string_view>

namespace flashdma_bwd::bench {

/// Makes `text` the contents of the file at `path`, by way of a file beside it that takes its place once it is complete
/// and on the disk, with its permissions; a device or pipe at `path` is written to. Returns what failed, or nothing;
/// then the file at `path` is what it was.
std::string write_file(const std::string& path, std::string_view text);

}  // namespace flashdma_bwd::bench
