// What a main kernel leaves of a key bias's gradient: sums of dS, which a kernel behind it adds over the heads that
// share the bias.
#pragma once

#include "common/item.cuh"
#include "common/ptx.cuh"

namespace flashdma_bwd {

/// A key's sum of dS over the steps of a head that the item, or its piece, has; of the head's other keys nothing.
__device__ __forceinline__ void store_bias_sum(const BackwardParameters& p, const KeyItem& item, int head, int key,
                                               float sum) {
  if (p.d_bias_rows == nullptr || key == kPastEnd) return;
  const bool adds = item.pieces > p.bias_pieces;
  const std::int64_t row =
      (static_cast<std::int64_t>(item.batch) * p.heads + head) * p.bias_pieces + (adds ? 0 : item.piece);
  float* const to = p.d_bias_rows + row * p.seqlen_k + key;
  if (adds)
    ptx::red_add(to, sum);
  else
    *to = sum;
}

}  // namespace flashdma_bwd
