// What the emulated driver writes into the 128 bytes of a CUtensorMap.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace flashdma_bwd::emulated {

inline constexpr std::uint32_t kMapMark = 0x7e450a11;

struct TensorMap {
  std::uint32_t mark;
  std::uint8_t dimensions;
  std::uint8_t element_bytes;
  std::uint16_t swizzle_bytes;  ///< 128, 64, 32, or 0: none
  std::byte* data;
  std::array<std::uint64_t, 5> sizes;
  std::array<std::uint64_t, 4> strides;  ///< in bytes, from dimension 1 on
  std::array<std::uint32_t, 5> box;
};
static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap));

/// Where a swizzle leaves the 16 bytes whose address would be this without it.
constexpr std::uint32_t swizzled(std::uint32_t address, std::uint32_t swizzle_bytes) {
  return swizzle_bytes == 0 ? address : address ^ ((address >> 7 & (swizzle_bytes / 16 - 1)) << 4);
}

}  // namespace flashdma_bwd::emulated
