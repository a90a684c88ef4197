// The one file that includes the generated dispatch table.
//
// The build says which architectures it compiles: FLASHDMA_BWD_WITH_SM80=1 or 0 and so on. FLASHDMA_BWD_ALSO_NATIVE is
// a compute capability for which every set was compiled, if there is one.
#include "dispatch_table.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

#if !defined(FLASHDMA_BWD_WITH_SM80) || !defined(FLASHDMA_BWD_WITH_SM86) || !defined(FLASHDMA_BWD_WITH_SM89) || \
    !defined(FLASHDMA_BWD_WITH_SM90)
#error "the build must define FLASHDMA_BWD_WITH_SM80, _SM86, _SM89 and _SM90 as 1 or 0"
#endif
#ifndef FLASHDMA_BWD_ALSO_NATIVE
#define FLASHDMA_BWD_ALSO_NATIVE 0
#endif

#include "dispatch_table.inc"

namespace flashdma_bwd {
namespace {

constexpr std::span<const KernelEntry> kCompiledKernels(generated::kKernels, generated::kKernelCount);

static_assert(std::is_sorted(kCompiledKernels.begin(), kCompiledKernels.end(),
                             [](const KernelEntry& a, const KernelEntry& b) { return a.name < b.name; }),
              "kernels are looked up by binary search");

constexpr ArchitectureSet architectures_of(std::span<const KernelEntry> kernels) {
  ArchitectureSet set{0};
  for (const KernelEntry& kernel : kernels)
    set.bits |= std::uint32_t{1} << static_cast<unsigned>(kernel.config.architecture);
  return set;
}

constexpr DispatchTable kTable{{generated::kRows, generated::kRowCount},
                               kCompiledKernels,
                               architectures_of(kCompiledKernels),
                               FLASHDMA_BWD_ALSO_NATIVE,
                               generated::kProfile,
                               generated::kTableHash};

}  // namespace

const DispatchTable& dispatch_table() {
  return kTable;
}

}  // namespace flashdma_bwd
