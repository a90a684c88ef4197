// The rules of flashdma_bwd_arguments, and the problem that selection sees in them.
//
// Rules come in two groups. Those of the problem concern sizes, types, flags and which pointers are given: they are all
// that the size queries need, and all that selection needs but for tile biases. Those of the memory concern addresses
// and strides.
#pragma once

#include <flashdma_bwd/flashdma_bwd.h>

#include <flashdma_bwd/kernel_table.hpp>
#include <optional>

#include "failure.hpp"
#include "selection/key_layout.hpp"

namespace flashdma_bwd {

/// The first violated rule of the problem.
Check check_problem(const flashdma_bwd_arguments* arguments);

/// The first violated rule of the memory. The problem's rules hold.
Check check_memory(const flashdma_bwd_arguments& arguments);
/// The same for the mask alone.
Check check_mask_memory(const flashdma_bwd_arguments& arguments);
/// The offsets themselves, which must lie in host memory.
Check check_host_offsets(const flashdma_bwd_arguments& arguments);
/// The numbers of a mask of key lists or of intervals, which must lie in host memory.
Check check_host_mask(const flashdma_bwd_arguments& arguments);

/// Checks the problem of arguments as the caller gave them, and makes them those that all else takes.
Check take_problem(const flashdma_bwd_arguments* given, flashdma_bwd_arguments& arguments);

/// Whether there are neither queries nor keys, so that no output has an element, but for a bias's gradient that is
/// broadcast over what there is none of.
bool has_no_rows(const flashdma_bwd_arguments& arguments);

/// The arguments without what cannot matter when there are no pairs: a mask, a plan and the order of additions; and
/// without a bias's gradient that has no elements. The kernels need not know of masks and gradients without elements.
flashdma_bwd_arguments without_idle_parts(const flashdma_bwd_arguments& arguments);

/// The layout of a flashdma_bwd_mask_layout; nothing where the library chooses.
std::optional<KeyLayout> layout_asked_for(std::int32_t mask_layout);

KeyLayout layout_of_plan(const flashdma_bwd_mask_plan& plan);

/// The layout of the plan that is made of the call's mask, which there is, and the rule that decides it.
LayoutChoice layout_choice_of(const flashdma_bwd_arguments& arguments);

/// The layout of the call's plan, given or made of its mask. There is one of them.
KeyLayout key_layout_of(const flashdma_bwd_arguments& arguments);

/// What selection knows about a call. The problem's rules hold.
Problem problem_of(const flashdma_bwd_arguments& arguments);

/// Whether tensor copies can move the tiles of a tile bias and of its gradient, as far as addresses and strides go into
/// it. `whatever_memory`: as far as the problem's sizes and types do.
bool is_copied_bias(const flashdma_bwd_arguments& arguments, bool whatever_memory);

/// Whether a bias is one value per key.
bool is_key_vector(const flashdma_bwd_pair_tensor& bias, std::int64_t seqlen_k);

}  // namespace flashdma_bwd
