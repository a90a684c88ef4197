// The choice of a kernel as text: every candidate row in order, with the condition that failed, the value it expects,
// the problem's value, and the row's place in its table.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <span>
#include <string>

#include "selection/architecture_chain.hpp"
#include "selection/select_kernel.hpp"

namespace flashdma_bwd {

/// "bf16, head_dim 128, causal, key_vector bias, ...": the problem as selection sees it.
std::string problem_description(const Problem& problem);

/// "compute capability 8.6, 82 multiprocessors, 101376 bytes of shared memory".
std::string device_text(const DeviceTraits& device);

/// Lines, each ending in a newline, that explain what `select_kernel` returns for the same arguments.
std::string explain_selection(const DeviceTraits& device, const Problem& problem, std::span<const Row> rows,
                              ArchitectureSet compiled = {});

/// The same for `select_among`.
std::string explain_among(Architecture architecture, const DeviceTraits& device, const Problem& problem,
                          std::span<const Row> rows);

/// Why there is no selection: what was asked, what there is, and what to do. Empty if the status is ok.
std::string selection_failure(SelectionStatus status, const DeviceTraits& device, const Problem& problem,
                              ArchitectureSet compiled = {});

/// "sm80, sm90", or "none".
std::string architecture_list(ArchitectureSet set);

}  // namespace flashdma_bwd
