// A bool mask in every encoding that the library reads, with what has no sense strewn in.
#pragma once

#include <flashdma_bwd/flashdma_bwd.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace flashdma_bwd::testing {

inline constexpr flashdma_bwd_mask_encoding kMaskEncodings[] = {
    FLASHDMA_BWD_ENCODING_BYTES, FLASHDMA_BWD_ENCODING_BITS, FLASHDMA_BWD_ENCODING_KEY_LIST,
    FLASHDMA_BWD_ENCODING_INTERVALS, FLASHDMA_BWD_ENCODING_BLOCKS};

const char* encoding_name(flashdma_bwd_mask_encoding encoding);

/// The pairs that a mask keeps.
struct BoolMask {
  std::int64_t batch = 1, heads = 1, rows = 1, columns = 1;  ///< rows and columns may be 1: broadcast
  std::int64_t seqlen_q = 1, seqlen_k = 1;
  std::vector<bool> kept = {};  ///< [batch][heads][rows][columns]

  bool keeps(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t column) const {
    return kept[static_cast<std::size_t>(((b * heads + h) * rows + row) * columns + column)];
  }
};

struct EncodingSpec {
  flashdma_bwd_mask_encoding encoding = FLASHDMA_BWD_ENCODING_BYTES;
  std::uint16_t block_q = 64, block_k = 64;  ///< of FLASHDMA_BWD_ENCODING_BLOCKS
  /// Keys that there are not, keys that stand twice, unsorted lists, reversed intervals, intervals that reach too far,
  /// bits past the last column. Without it everything is in order.
  bool garbage = false;
  std::int64_t row_padding = 0;  ///< elements between rows; of intervals: between keys
};

struct EncodedMask {
  flashdma_bwd_pair_tensor tensor{};  ///< data is NULL
  std::int64_t element_bytes = 1;
  std::vector<std::byte> bytes;      ///< from the first element to the last row's padding
  std::vector<unsigned char> owned;  ///< one for each byte: whether it belongs to an element
};

/// The mask in an encoding; nothing if it has pairs that the encoding cannot tell apart.
std::optional<EncodedMask> encode_mask(const BoolMask& mask, const EncodingSpec& spec, std::uint64_t seed);

}  // namespace flashdma_bwd::testing
