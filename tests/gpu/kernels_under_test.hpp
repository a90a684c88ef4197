// Which compiled kernels can serve a problem.
#pragma once

#include <flashdma_bwd/flashdma_bwd.hpp>
#include <string>
#include <vector>

namespace flashdma_bwd::testing {

/// A kernel's canonical name taken apart: bwd_<arch>_d<bucket>_<dtype>_<tile>_<bias>[_softcap].
struct KernelName {
  std::string text, architecture, head_dim, data_type, bias;
  bool softcap = false;

  explicit KernelName(std::string_view name);
  /// Whether it differs from another in its tile or architecture only, so that it serves the same problems.
  bool serves_what(const KernelName& other) const;
};

/// The table's choice first, then every other compiled kernel of any architecture that serves the same problems, as far
/// as this GPU has shown that it can run that architecture's. Throws std::runtime_error if selection fails.
std::vector<KernelName> kernels_for(const Arguments& arguments);

/// Whether a status says that a kernel has no code for this GPU, which is right only if its architecture is not the one
/// that was selected.
bool not_runnable_here(const Status& status);

}  // namespace flashdma_bwd::testing
