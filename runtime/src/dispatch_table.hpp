// The tables and kernels of this build: the generated dispatch table, which one file includes, as a value.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <span>
#include <string_view>

#include "common/kernel_entry.hpp"
#include "selection/architecture_chain.hpp"

namespace flashdma_bwd {

struct DispatchTable {
  std::span<const Row> rows;             ///< of all tables, in order
  std::span<const KernelEntry> kernels;  ///< compiled, sorted by name
  ArchitectureSet compiled;              ///< architectures that have a kernel
  int also_native = 0;                   ///< a compute capability for which every set was compiled; 0: none
  std::string_view profile;
  std::string_view hash;  ///< of the rows
};

/// The table of this build.
const DispatchTable& dispatch_table();

/// The entry of a configuration, or nullptr if it is not compiled in.
const KernelEntry* find_kernel(std::span<const KernelEntry> kernels, const KernelConfig& config);
/// The entry of a name, or nullptr.
const KernelEntry* find_kernel(std::span<const KernelEntry> kernels, std::string_view name);

}  // namespace flashdma_bwd
