// A plan without a call: the rules of its struct, where its parts lie, and what it promises.
#pragma once

#include <flashdma_bwd/flashdma_bwd.h>

#include <cstddef>

#include "failure.hpp"

namespace flashdma_bwd {

/// The rules of a plan's struct, whatever call it is given to.
Check check_plan_struct(const flashdma_bwd_mask_plan& plan);
/// The same of its memory, of which `needed` bytes are read: one of none may have no address.
Check check_plan_memory(const flashdma_bwd_mask_plan& plan, std::size_t needed);

/// Fills all of `parts`.
Check view_plan(const flashdma_bwd_mask_plan* plan, flashdma_bwd_plan_parts& parts);

/// Fills all of `summary`. `orders` is in host memory.
Check summarize_plan(const flashdma_bwd_mask_plan* plan, const flashdma_bwd_key_order* orders,
                     flashdma_bwd_plan_summary& summary);

}  // namespace flashdma_bwd
