// A text in place of a file's, all of it or nothing.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace flashdma_bwd::tune {

/// Writes a temporary file beside `path`, makes it durable and renames it. Permissions stay. Returns what went wrong,
/// or an empty text; then the file is as it was and there is no temporary one.
std::string replace_file(const std::filesystem::path& path, std::string_view text);

}  // namespace flashdma_bwd::tune
