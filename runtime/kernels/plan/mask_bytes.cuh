// From the bytes of a bool mask to bits.
#pragma once

#include <cstdint>

namespace flashdma_bwd {

inline constexpr int kBytesPerLoad = 16;

/// Bit 7 of each byte: whether the byte is not 0.
__device__ __forceinline__ std::uint32_t flags_of_bytes(std::uint32_t word) {
  return (((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word) & 0x80808080u;
}

/// One bit a byte of 16: set where the byte is not 0.
__device__ __forceinline__ std::uint32_t bits_of_bytes(const uint4& bytes) {
  // A flag is 128: the dot products are 128 times the eight bits of two words.
  const std::uint32_t low =
      __dp4a(flags_of_bytes(bytes.y), 0x80402010u, __dp4a(flags_of_bytes(bytes.x), 0x08040201u, 0u));
  const std::uint32_t high =
      __dp4a(flags_of_bytes(bytes.w), 0x80402010u, __dp4a(flags_of_bytes(bytes.z), 0x08040201u, 0u));
  return (low >> 7) + (high << 1);
}

/// The bits of keys first ... first + 15 of a mask row; keys from `keys` on are 0.
template <bool Vectorised>
__device__ __forceinline__ std::uint32_t load_bits(const std::uint8_t* row, std::int64_t stride_column, int first,
                                                   int keys) {
  if (Vectorised && first + kBytesPerLoad <= keys)
    return bits_of_bytes(__ldg(reinterpret_cast<const uint4*>(row + first)));
  std::uint32_t bits = 0;
  for (int i = 0; i < kBytesPerLoad && first + i < keys; ++i)
    bits |= (__ldg(row + (first + i) * stride_column) != 0 ? 1u : 0u) << i;
  return bits;
}

}  // namespace flashdma_bwd
