// Characters by their leading byte.
#include "config/utf8.hpp"

namespace flashdma_bwd::generator {

std::size_t utf8_character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return 1;
  const std::size_t size = byte(0) >= 0xc2 && byte(0) < 0xe0   ? 2
                           : byte(0) >= 0xe0 && byte(0) < 0xf0 ? 3
                           : byte(0) >= 0xf0 && byte(0) < 0xf5 ? 4
                                                               : 0;
  if (size == 0 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const bool shorter = (byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xf0 && byte(1) < 0x90);
  const bool surrogate = byte(0) == 0xed && byte(1) >= 0xa0;
  const bool beyond = byte(0) == 0xf4 && byte(1) >= 0x90;
  return shorter || surrogate || beyond ? 0 : size;
}

}  // namespace flashdma_bwd::generator
