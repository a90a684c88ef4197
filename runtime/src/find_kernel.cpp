// Look-ups in the sorted kernels.
#include <algorithm>

#include "dispatch_table.hpp"
#include "selection/configuration_name.hpp"

namespace flashdma_bwd {

const KernelEntry* find_kernel(std::span<const KernelEntry> kernels, std::string_view name) {
  const auto found =
      std::lower_bound(kernels.begin(), kernels.end(), name,
                       [](const KernelEntry& entry, std::string_view text) { return entry.name < text; });
  return found != kernels.end() && found->name == name ? &*found : nullptr;
}

const KernelEntry* find_kernel(std::span<const KernelEntry> kernels, const KernelConfig& config) {
  return find_kernel(kernels, NameBuffer(config).view());
}

}  // namespace flashdma_bwd
