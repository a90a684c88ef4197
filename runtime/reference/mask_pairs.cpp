// Each encoding of a mask as the C header says it, with what has no sense passed over.
#include "reference/mask_pairs.hpp"

#include <algorithm>

namespace flashdma_bwd {

MaskPairs::MaskPairs(const flashdma_bwd_arguments& arguments)
    : mask_(arguments.mask),
      address_(arguments.mask, arguments.heads),
      queries_(arguments.seqlen_q),
      keys_(arguments.seqlen_k),
      block_q_(arguments.mask_block_q),
      block_k_(arguments.mask_block_k),
      heads_per_head_(heads_per_head(mask_, arguments.heads)) {
  if (!present() || mask_.encoding != FLASHDMA_BWD_ENCODING_KEY_LIST) return;
  listed_.resize(static_cast<std::size_t>(mask_.batch * mask_.heads * keys_));
  for (std::int64_t b = 0; b < mask_.batch; ++b)
    for (std::int64_t h = 0; h < mask_.heads; ++h) {
      const std::int32_t* list =
          static_cast<const std::int32_t*>(mask_.data) + address_.row_start(b, h * heads_per_head_, 0);
      for (std::int64_t i = 0; i < mask_.columns; ++i) {
        const std::int64_t key = list[i * address_.column_stride()];
        if (key >= 0 && key < keys_) listed_[static_cast<std::size_t>((b * mask_.heads + h) * keys_ + key)] = true;
      }
    }
}

bool MaskPairs::interval_has(std::int64_t head_start, std::int64_t query, std::int64_t key) const {
  const std::int32_t* interval =
      static_cast<const std::int32_t*>(mask_.data) + head_start + key * address_.column_stride();
  return query >= interval[0] && query < std::min<std::int64_t>(interval[mask_.stride_row], queries_);
}

bool MaskPairs::keeps(std::int64_t batch, std::int64_t query_head, std::int64_t query, std::int64_t key) const {
  const auto* bytes = static_cast<const std::uint8_t*>(mask_.data);
  switch (mask_.encoding) {
    case FLASHDMA_BWD_ENCODING_BITS: {
      const std::int64_t bit = mask_.columns > 1 ? key : 0;
      return (bytes[address_.row_start(batch, query_head, query) + bit / 8] >> (bit % 8) & 1) != 0;
    }
    case FLASHDMA_BWD_ENCODING_KEY_LIST: {
      const std::int64_t list = (mask_.batch > 1 ? batch : 0) * mask_.heads + query_head / heads_per_head_;
      return listed_[static_cast<std::size_t>(list * keys_ + key)];
    }
    case FLASHDMA_BWD_ENCODING_INTERVALS:
      return interval_has(address_.row_start(batch, query_head, 0), query, key);
    case FLASHDMA_BWD_ENCODING_BLOCKS:
      return bytes[address_.row_start(batch, query_head, query / block_q_) +
                   key / block_k_ * address_.column_stride()] != 0;
    default:
      return bytes[address_.row_start(batch, query_head, query) + key * address_.column_stride()] != 0;
  }
}

}  // namespace flashdma_bwd
