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

/// The compiled kernels whose names hold the text in the environment variable FLASHDMA_BWD_TEST_KERNELS; all where it
/// is not set. For runs that are too slow for all of them at once, such as those under compute-sanitizer.
std::vector<KernelName> kernels_under_test();

/// The table's choice first, then every other compiled kernel of any architecture that serves the same problems, as far
/// as this GPU has shown that it can run that architecture's and they are under test. Throws std::runtime_error if
/// selection fails.
std::vector<KernelName> kernels_for(const Arguments& arguments);

/// Whether a status says that a kernel has no code for this GPU, which is right only if its architecture is not the one
/// that was selected.
bool not_runnable_here(const Status& status);

}  // namespace flashdma_bwd::testing
