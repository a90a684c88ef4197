// Which pairs causality, windows and sequence ends leave: arithmetic shared by the plan and the main kernels.
#pragma once

#include "common/host_device.hpp"
#include "common/parameters.hpp"
#include "common/tile_step.hpp"

namespace flashdma_bwd {

/// One sequence of the batch.
struct SequenceRows {
  int length_q = 0;
  int length_k = 0;
  std::int64_t row_q = 0;  ///< of the first query in the packed tensors; 0 with fixed length
  std::int64_t row_k = 0;
  std::int64_t scratch_row = 0;  ///< of the first query in the padded scratch
  std::int64_t key_row = 0;      ///< of the first key in the unpadded key scratch
};

FLASHDMA_HOST_DEVICE inline std::int64_t padded_rows(std::int64_t rows) {
  return (rows + kScratchRowAlignment - 1) / kScratchRowAlignment * kScratchRowAlignment;
}

FLASHDMA_HOST_DEVICE inline SequenceRows sequence_of(const BackwardParameters& p, int batch) {
  SequenceRows s;
  if (p.cu_seqlens_q != nullptr) {
    s.row_q = p.cu_seqlens_q[batch];
    s.row_k = p.cu_seqlens_k[batch];
    s.length_q = p.cu_seqlens_q[batch + 1] - static_cast<int>(s.row_q);
    s.length_k = p.cu_seqlens_k[batch + 1] - static_cast<int>(s.row_k);
    s.scratch_row =
        (s.row_q + std::int64_t{batch} * kScratchRowAlignment) / kScratchRowAlignment * kScratchRowAlignment;
    s.key_row = s.row_k;
  } else {
    s.length_q = p.seqlen_q;
    s.length_k = p.seqlen_k;
    s.scratch_row = batch * padded_rows(p.seqlen_q);
    s.key_row = std::int64_t{batch} * p.seqlen_k;
  }
  return s;
}

/// Query i sees the keys in [i + low, i + high].
struct Limits {
  int low = -kUnlimited;
  int high = kUnlimited;
};

FLASHDMA_HOST_DEVICE inline int saturate(std::int64_t value) {
  return static_cast<int>(value > kUnlimited ? kUnlimited : value < -kUnlimited ? -kUnlimited : value);
}

FLASHDMA_HOST_DEVICE inline Limits limits_of(const BackwardParameters& p, const SequenceRows& s) {
  const std::int64_t delta = p.position_delta + (p.delta_from_lengths ? s.length_k - s.length_q : 0);
  return {p.window_left == kNoWindow ? -kUnlimited : saturate(delta - p.window_left),
          p.window_right == kNoWindow ? kUnlimited : saturate(delta + p.window_right)};
}

/// The query tiles [begin, end) that see any key at positions first ... last.
struct TileRange {
  int begin = 0;
  int end = 0;
};

FLASHDMA_HOST_DEVICE inline TileRange visible_query_tiles(const Limits& limits, int length_q, int first, int last,
                                                          int block_m) {
  const int low = first - limits.high;     // the first query whose limit reaches `first`
  const int high = last - limits.low + 1;  // one past the last query whose limit reaches `last`
  TileRange range;
  range.begin = low > 0 ? low / block_m : 0;
  const int stop = high < length_q ? high : length_q;
  range.end = stop > 0 ? (stop + block_m - 1) / block_m : 0;
  if (range.end < range.begin) range.end = range.begin;
  return range;
}

/// The query tiles [begin, end) of which every query sees every key at positions first ... last. Queries past the end
/// do not count against a tile.
FLASHDMA_HOST_DEVICE inline TileRange whole_query_tiles(const Limits& limits, int length_q, int first, int last,
                                                        int block_m) {
  const int low = last - limits.high;       // the first query whose limit reaches `last`
  const int high = first - limits.low + 1;  // one past the last query whose limit reaches `first`
  TileRange range;
  range.begin = low > 0 ? (low + block_m - 1) / block_m : 0;
  range.end = high >= length_q ? (length_q + block_m - 1) / block_m : high > 0 ? high / block_m : 0;
  if (range.end < range.begin) range.end = range.begin;
  return range;
}

/// What limits leave of the pairs of a query tile with the keys at positions first ... last, which may be none.
FLASHDMA_HOST_DEVICE inline MaskClass class_by_limits(const Limits& limits, int length_q, int first, int last, int tile,
                                                      int block_m) {
  if (first > last) return MaskClass::empty;
  const TileRange seen = visible_query_tiles(limits, length_q, first, last, block_m);
  const TileRange whole = whole_query_tiles(limits, length_q, first, last, block_m);
  return tile < seen.begin || tile >= seen.end     ? MaskClass::empty
         : tile >= whole.begin && tile < whole.end ? MaskClass::full
                                                   : MaskClass::partial;
}

/// The keys of a sequence in the order in which tiles take them.
struct KeyList {
  const std::int32_t* keys = nullptr;  ///< nullptr: their own order
  int count = 0;                       ///< some may be kPastEnd in a packed batch
};

/// Active keys of a compacted mask that lie in the sequence. They ascend, so that in a packed batch, whose sequences
/// may be shorter than the mask, they are a prefix.
FLASHDMA_HOST_DEVICE inline int active_keys_in_sequence(const BackwardParameters& p, int count,
                                                        const std::int32_t* active, const SequenceRows& s) {
  if (p.cu_seqlens_k == nullptr) return count;
  int low = 0;
  int high = count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (active[middle] < s.length_k)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/// Where the keys of a mask that has another order, or may have, are listed.
FLASHDMA_HOST_DEVICE inline const std::int32_t* listed_keys(const BackwardParameters& p, int batch, int mask_head) {
  return p.active_keys + (static_cast<std::int64_t>(batch) * p.active_batch_stride + mask_head) * p.seqlen_k;
}

/// `mask_head`: of the heads of the mask, or of the call if it has none.
FLASHDMA_HOST_DEVICE inline KeyList keys_of(const BackwardParameters& p, int batch, int mask_head,
                                            const SequenceRows& s) {
  if (p.active_keys == nullptr) return {nullptr, s.length_k};
  const int mask = batch * p.compact_batch_stride + mask_head;
  const std::int32_t* keys = listed_keys(p, batch, mask_head);
  if (p.key_orders == nullptr) return {keys, active_keys_in_sequence(p, p.active_counts[mask], keys, s)};
  if (p.key_orders[mask].natural != 0) return {nullptr, s.length_k};
  return {keys, p.key_orders[mask].keys};
}

}  // namespace flashdma_bwd
