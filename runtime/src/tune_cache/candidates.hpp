// The configurations among which the first use of a problem may choose.
#pragma once

#include <vector>

#include "resolve.hpp"

namespace flashdma_bwd {

struct Candidate {
  const KernelEntry* kernel = nullptr;
  CodeForm form = CodeForm::native;
  int tier = 0;
};

/// The compiled kernels that serve the problem on this GPU, the table's choice first. The others have machine code for
/// the GPU as the table's choice has; where that is PTX, they are of its architecture, because the driver compiles PTX
/// for seconds. Of two that differ in their architecture alone the one nearer to the GPU is enough.
std::vector<Candidate> candidates_for(const DispatchTable& table, const Request& request, const Resolution& by_table);

}  // namespace flashdma_bwd
