// The masks that tests use.
#pragma once

#include <cstdint>
#include <functional>

#include "support/problem.hpp"

namespace flashdma_bwd::testing {

/// What a mask's structure depends on, beside its spec.
struct MaskDimensions {
  std::int64_t batch = 1, heads = 1, rows = 1, columns = 1;  ///< of the mask tensor
  std::int64_t seqlen_q = 1, seqlen_k = 1;                   ///< of the problem
};

/// Calls keep(batch, head, row, column) for each pair that the mask keeps, each once. Everything else is masked.
void for_each_kept_pair(const MaskSpec& spec, const MaskDimensions& dimensions, std::uint64_t seed,
                        const std::function<void(std::int64_t, std::int64_t, std::int64_t, std::int64_t)>& keep);

}  // namespace flashdma_bwd::testing
