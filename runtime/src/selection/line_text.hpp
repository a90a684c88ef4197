// The parts of a line of text, and how messages quote them.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace flashdma_bwd {

/// The text up to the first `separator`, which is taken off `text` with it; all of it if there is none.
inline std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

inline std::string quoted(std::string_view text) {
  return '`' + std::string(text) + '`';
}

/// "`none`, `key_vector`, `tile`"
inline std::string one_of(std::span<const std::string_view> words) {
  std::string text;
  for (const std::string_view candidate : words) text += (text.empty() ? "" : ", ") + quoted(candidate);
  return text;
}

}  // namespace flashdma_bwd
