// Which of the two files of measurements a text is: the tuner's store, or the run-time cache of the library. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace flashdma_bwd::tune {

enum class FileKind : std::uint8_t {
  empty,  ///< no line but empty ones: either could begin so
  store,
  cache,
  neither,
};

/// By the first line that has a key which only one of them has: damaged lines before it do not matter.
FileKind file_kind(std::string_view text);

/// What to say of a file that is neither.
std::string neither_text(const std::string& path);

}  // namespace flashdma_bwd::tune
