// A plan of kernels that no table asks for: the shipped rows, and beside them every kernel that is to be timed. Pure.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <span>

#include "config/model.hpp"
#include "plan/plan.hpp"

namespace flashdma_bwd::generator {

/// Rows, and so the tables' hash and what selection chooses, are the configuration's. Each kernel is a translation unit
/// of its own, so that one that does not fit its registers takes no other with it. `configuration` must be valid and
/// outlive the plan.
Plan candidate_plan(const Configuration& configuration, std::span<const KernelConfig> kernels);

}  // namespace flashdma_bwd::generator
