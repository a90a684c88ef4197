// What a CTA of the Ampere family knows of its item and of the query head at work.
//
// It lives in shared memory. In registers it would stay alive through the loop, where the accumulators need every one
// of them.
#pragma once

#include "common/item.cuh"

namespace flashdma_bwd::ampere {

struct Item : KeyItem, HeadWalk {
  bool bias_masks;  ///< some bias of the tile is -inf
  const std::uint16_t* q;
  const std::uint16_t* d_out;
  std::int64_t d_q_row;  ///< of the head's first query in the scratch of dQ and the statistics
};

/// Fills the parts of the h-th of the item's heads.
__device__ inline void start_head(Item& item, const BackwardParameters& p, int h, int block_m, int block_n) {
  find_head(item, item, p, h, block_m, block_n);
  const int head = item.head;
  item.bias_masks = false;
  const bool packed = p.cu_seqlens_q != nullptr;
  const SequenceRows& s = item.sequence;
  item.q = static_cast<const std::uint16_t*>(p.q.data) + (packed ? 0 : item.batch * p.q.stride_batch) +
           s.row_q * p.q.stride_row + head * p.q.stride_head;
  item.d_out = static_cast<const std::uint16_t*>(p.d_out.data) + (packed ? 0 : item.batch * p.d_out.stride_batch) +
               s.row_q * p.d_out.stride_row + head * p.d_out.stride_head;
  item.d_q_row = scratch_row_of(item, p, head);
}

}  // namespace flashdma_bwd::ampere
