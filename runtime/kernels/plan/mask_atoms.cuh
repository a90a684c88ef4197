// The atoms of a mask in registers, whatever its encoding: what the passes over a whole mask read.
#pragma once

#include "common/transpose_quad.cuh"
#include "plan/bit_matrix.cuh"
#include "plan/mask_bytes.cuh"
#include "plan/mask_plan.hpp"

namespace flashdma_bwd {

/// An encoding, and whether memory lets it be read in large loads. Key lists become bits first.
enum class AtomSource : std::uint8_t { bytes, aligned_bytes, bits, aligned_bits, blocks, intervals };

inline AtomSource atom_source(const MaskView& mask) {
  const auto aligned_to = [&mask](std::int64_t bytes) {
    return reinterpret_cast<std::uintptr_t>(mask.data) % static_cast<std::uintptr_t>(bytes) == 0 &&
           mask.stride_batch % bytes == 0 && mask.stride_head % bytes == 0 && mask.stride_row % bytes == 0;
  };
  switch (mask.encoding) {
    case MaskEncoding::bits:
    case MaskEncoding::key_list:
      return aligned_to(8) && mask.columns > 1 ? AtomSource::aligned_bits : AtomSource::bits;
    case MaskEncoding::intervals:
      return AtomSource::intervals;
    case MaskEncoding::blocks:
      return AtomSource::blocks;
    case MaskEncoding::bytes:
      break;
  }
  return mask.stride_column == 1 && aligned_to(kBytesPerLoad) ? AtomSource::aligned_bytes : AtomSource::bytes;
}

/// The first element of a mask of the batch x heads.
template <class Element>
__device__ __forceinline__ const Element* mask_head(const MaskView& mask, int mask_index) {
  return static_cast<const Element*>(mask.data) + mask_index / mask.heads * mask.stride_batch +
         mask_index % mask.heads * mask.stride_head;
}

/// The first `count` of 64 bits; none or all where it is outside of 0 ... 64.
__device__ __forceinline__ std::uint64_t first_bits(int count) {
  return count >= kMaskAtom ? ~std::uint64_t{0} : count <= 0 ? 0 : (std::uint64_t{1} << count) - 1;
}

/// The bits of keys first ... first + 63 of a row of bits, those that lie in it.
template <AtomSource kSource>
__device__ __forceinline__ std::uint64_t load_word(const MaskView& mask, const std::uint8_t* row, int first) {
  const std::uint64_t inside = first_bits(mask.keys - first);
  if (kSource == AtomSource::bits && mask.columns == 1) return (__ldg(row) & 1u) != 0 ? inside : 0;
  if (kSource == AtomSource::aligned_bits && first + kMaskAtom <= mask.keys)
    return __ldg(reinterpret_cast<const unsigned long long*>(row + first / 8));
  std::uint64_t word = 0;
#pragma unroll
  for (int byte = 0; byte < kMaskAtom / 8; ++byte)
    if (first + byte * 8 < mask.keys) word |= std::uint64_t{__ldg(row + first / 8 + byte)} << (byte * 8);
  return word & inside;
}

/// Whether a mask of blocks keeps the pairs of an atom whose first query and key are given.
__device__ __forceinline__ bool block_keeps(const MaskView& mask, const std::uint8_t* head, int query, int key) {
  return __ldg(head + query / mask.block_queries * mask.stride_row + key / mask.block_keys * mask.stride_column) != 0;
}

/// The queries first ... first + 63 that a key's interval has, those that there are.
__device__ __forceinline__ std::uint64_t interval_word(const MaskView& mask, const std::int32_t* head, int key,
                                                       int first) {
  const std::int32_t* interval = head + key * mask.stride_column;
  const int begin = max(__ldg(interval), 0);
  const int end = min(max(__ldg(interval + mask.stride_row), 0), mask.queries);
  return first_bits(end - first) & ~first_bits(begin - first);
}

/// Whether an encoding gives an atom as rows of keys.
template <AtomSource kSource>
inline constexpr bool kComesByKey = kSource == AtomSource::intervals;

/// Clears the bits of pairs that the limits hide, of rows of queries, or of keys.
template <bool kByKey>
__device__ __forceinline__ void hide_beyond_limits(BitRows& rows, const Limits& limits, int first_query, int first_key,
                                                   int lane) {
  // None if the atom's corners see each other.
  if (first_key >= first_query + kMaskAtom - 1 + limits.low && first_key + kMaskAtom - 1 <= first_query + limits.high)
    return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = BitRows::row(lane, half);
    const int begin = kByKey ? first_key + row - limits.high - first_query : first_query + row + limits.low - first_key;
    const int end = kByKey ? first_key + row - limits.low - first_query : first_query + row + limits.high - first_key;
    rows.set(half, rows.word(half) & first_bits(end + 1) & ~first_bits(begin));
  }
}

/// An atom as rows of queries, or as rows of keys if it comes so. Bits of pairs that do not exist are 0. All lanes of
/// the warp.
template <AtomSource kSource>
__device__ __forceinline__ BitRows read_whole_atom(const MaskView& mask, int mask_index, int query_atom, int key_atom,
                                                   int lane) {
  const int first_query = query_atom * kMaskAtom;
  const int first_key = key_atom * kMaskAtom;
  BitRows rows;
  if constexpr (kSource == AtomSource::bytes || kSource == AtomSource::aligned_bytes) {
    // Four lanes read a row, eight rows at a time, and trade.
    const int piece = lane % 4;
    const std::uint8_t* corner = mask_head<std::uint8_t>(mask, mask_index) + first_query * mask.stride_row;
    std::uint32_t bits[kMaskAtom / 8];
    if (kSource == AtomSource::aligned_bytes && first_key + kMaskAtom <= mask.keys) {
      uint4 bytes[kMaskAtom / 8];  // so that all loads are in flight together
#pragma unroll
      for (int pass = 0; pass < kMaskAtom / 8; ++pass) {
        const int row = pass * 8 + lane / 4;
        const std::uint8_t* from = corner + row * mask.stride_row + first_key + piece * kBytesPerLoad;
        bytes[pass] = first_query + row < mask.queries ? __ldg(reinterpret_cast<const uint4*>(from)) : uint4{};
      }
#pragma unroll
      for (int pass = 0; pass < kMaskAtom / 8; ++pass) bits[pass] = bits_of_bytes(bytes[pass]);
    } else {
#pragma unroll
      for (int pass = 0; pass < kMaskAtom / 8; ++pass) {
        const int row = pass * 8 + lane / 4;
        bits[pass] = first_query + row < mask.queries
                         ? load_bits<false>(corner + row * mask.stride_row, mask.stride_column,
                                            first_key + piece * kBytesPerLoad, mask.keys)
                         : 0;
      }
    }
    std::uint32_t units[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) units[i] = bits[i * 2] | bits[i * 2 + 1] << 16;
    // From 16 columns of sixteen rows to all columns of two, those that BitRows gives to the lane.
    transpose_quad(units, lane);
    rows.low[0] = (units[0] & 0xffffu) | units[1] << 16;
    rows.low[1] = units[0] >> 16 | (units[1] & 0xffff0000u);
    rows.high[0] = (units[2] & 0xffffu) | units[3] << 16;
    rows.high[1] = units[2] >> 16 | (units[3] & 0xffff0000u);
  } else if constexpr (kSource == AtomSource::bits || kSource == AtomSource::aligned_bits) {
    const std::uint8_t* head = mask_head<std::uint8_t>(mask, mask_index);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_query + BitRows::row(lane, half);
      rows.set(half, query < mask.queries ? load_word<kSource>(mask, head + query * mask.stride_row, first_key) : 0);
    }
  } else if constexpr (kSource == AtomSource::intervals) {
    const std::int32_t* head = mask_head<std::int32_t>(mask, mask_index);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int key = first_key + BitRows::row(lane, half);
      rows.set(half, key < mask.keys ? interval_word(mask, head, key, first_query) : 0);
    }
  } else {
    const bool inside = first_query < mask.queries && first_key < mask.keys;
    const bool kept = inside && block_keeps(mask, mask_head<std::uint8_t>(mask, mask_index), first_query, first_key);
    const std::uint64_t word = kept ? first_bits(mask.keys - first_key) : 0;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      rows.set(half, first_query + BitRows::row(lane, half) < mask.queries ? word : 0);
  }
  return rows;
}

/// The same, without the pairs that the mask's limits hide.
template <AtomSource kSource>
__device__ __forceinline__ BitRows read_atom(const MaskView& mask, int mask_index, int query_atom, int key_atom,
                                             int lane) {
  BitRows rows = read_whole_atom<kSource>(mask, mask_index, query_atom, key_atom, lane);
  hide_beyond_limits<kComesByKey<kSource>>(rows, mask.limits, query_atom * kMaskAtom, key_atom * kMaskAtom, lane);
  return rows;
}

/// The bits of keys first ... first + 15 of a mask with one row; first is a multiple of 16.
template <AtomSource kSource>
__device__ __forceinline__ std::uint32_t load_row_bits(const MaskView& mask, const std::uint8_t* row, int first) {
  if constexpr (kSource == AtomSource::bits || kSource == AtomSource::aligned_bits) {
    const int atom = first / kMaskAtom * kMaskAtom;
    return static_cast<std::uint32_t>(load_word<kSource>(mask, row, atom) >> (first - atom)) & 0xffffu;
  } else if constexpr (kSource == AtomSource::blocks) {
    return block_keeps(mask, row, 0, first) ? static_cast<std::uint32_t>(first_bits(mask.keys - first)) & 0xffffu : 0;
  } else {
    return load_bits<kSource == AtomSource::aligned_bytes>(row, mask.stride_column, first, mask.keys);
  }
}

}  // namespace flashdma_bwd
