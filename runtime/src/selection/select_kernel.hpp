// The choice of a kernel: the first row of the best architecture whose condition holds and whose kernel fits the GPU.
//
// A pure function of its arguments, without allocation or lock, that needs no GPU: the library and the generator's
// `explain` call it alike.
#pragma once

#include <cstdint>
#include <flashdma_bwd/kernel_table.hpp>
#include <span>

#include "selection/architecture_chain.hpp"

namespace flashdma_bwd {

enum class SelectionStatus : std::uint8_t {
  ok,
  unsupported_head_dim,      ///< not a multiple of 8 in 8 ... 256
  unsupported_architecture,  ///< none of the compiled architectures runs on this GPU
  no_row,                    ///< of the architectures that run on this GPU, no row admits the problem and fits
};

struct SelectionResult {
  SelectionStatus status = SelectionStatus::no_row;
  const Row* row = nullptr;  ///< of the given span
  KernelConfig config;
  int tier = 0;  ///< 0: the GPU's own table; 1, 2 ...: an older one
  CodeForm form = CodeForm::native;
};

/// What a row asks of a problem and a device, in the order in which it is checked.
enum class Condition : std::uint8_t {
  none,
  head_dim,
  data_type,
  bias,
  layout,
  bias_copies,
  softcap,
  causal,
  deterministic,
  masked,
  seqlen_q,
  seqlen_k,
  work_items_per_sm,
  mask_density,
  shared_memory,
};

/// The first condition of `row` that does not hold, or Condition::none. Architectures are not compared.
Condition first_failed_condition(const Row& row, const Problem& problem, const DeviceTraits& device);

/// The configuration that `row` gives `problem`.
KernelConfig configuration_of(const Row& row, const Problem& problem);

/// Whether a head dim has a bucket: a multiple of 8 in 8 ... 256.
constexpr bool is_supported_head_dim(int head_dim) {
  return head_dim >= 8 && head_dim <= kMaxHeadDim && head_dim % 8 == 0;
}

/// `compiled`: the architectures to choose from; all of them if left out.
SelectionResult select_kernel(const DeviceTraits& device, const Problem& problem, std::span<const Row> rows,
                              ArchitectureSet compiled = {});

/// The same among the rows of one architecture, whatever the fallback chain says.
SelectionResult select_among(Architecture architecture, const DeviceTraits& device, const Problem& problem,
                             std::span<const Row> rows);

}  // namespace flashdma_bwd
