// Where the tiles of a step lie in the tensors that the copy engine reads.
#pragma once

#include "common/item.cuh"

namespace flashdma_bwd::hopper {

/// Where a step's tile of Q or dO lies. It is found before the tile's buffer is waited for, and in registers: what is
/// read from shared memory between the wait and the copies keeps the consumers waiting (NOTES.md).
struct TilePlace {
  int row;      ///< of the first query, with as many before the sequence's first as it is shorter than the longest
  int end_row;  ///< of the sequence
  int statistics_row;
  int head;
  int batch;
};

__device__ __forceinline__ TilePlace place_of_queries(const BackwardParameters& p, const KeyItem& item, int first_query,
                                                      int head) {
  const SequenceRows& s = item.sequence;
  return {.row = p.seqlen_q - s.length_q + first_query,
          .end_row = static_cast<int>(s.row_q) + s.length_q,
          .statistics_row = static_cast<int>(s.scratch_row) + first_query,
          .head = head,
          .batch = p.cu_seqlens_q != nullptr ? 0 : item.batch};
}

}  // namespace flashdma_bwd::hopper
