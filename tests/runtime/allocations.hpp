// How often this thread has allocated with operator new.
#pragma once

#include <cstddef>

namespace flashdma_bwd::testing {

std::size_t allocations();

}  // namespace flashdma_bwd::testing
