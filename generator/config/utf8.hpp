// UTF-8 as RFC 3629 defines it: shortest forms only, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string_view>

namespace flashdma_bwd::generator {

/// Bytes of the character that a text, which is not empty, begins with; 0 where none does.
std::size_t utf8_character_bytes(std::string_view text);

}  // namespace flashdma_bwd::generator
