// Which pairs a mask keeps, pair by pair, in every encoding.
#pragma once

#include <flashdma_bwd/flashdma_bwd.h>

#include <cstdint>
#include <vector>

#include "reference/visibility.hpp"

namespace flashdma_bwd {

/// The mask of `arguments`, in host memory, which has been validated.
class MaskPairs {
 public:
  explicit MaskPairs(const flashdma_bwd_arguments& arguments);

  /// Whether there is a mask.
  bool present() const { return mask_.data != nullptr; }
  /// Whether the mask keeps a pair of a query head. `query` and `key` lie in the sequence.
  bool keeps(std::int64_t batch, std::int64_t query_head, std::int64_t query, std::int64_t key) const;

 private:
  bool interval_has(std::int64_t head_start, std::int64_t query, std::int64_t key) const;

  flashdma_bwd_pair_tensor mask_;
  PairAddress address_;
  std::int64_t queries_ = 0, keys_ = 0, block_q_ = 0, block_k_ = 0, heads_per_head_ = 1;
  std::vector<bool> listed_;  ///< of key lists: [mask batch][mask head][seqlen_k]
};

}  // namespace flashdma_bwd
