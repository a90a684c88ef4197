// Counts by replacing operator new of the whole program. AddressSanitizer has replaced it already and keeps it: nothing
// is counted there.
#include "allocations.hpp"

#include <cstdlib>
#include <new>

namespace {
thread_local std::size_t count = 0;
}  // namespace

namespace flashdma_bwd::testing {
std::size_t allocations() {
  return count;
}
}  // namespace flashdma_bwd::testing

#ifndef __SANITIZE_ADDRESS__
void* operator new(std::size_t size) {
  ++count;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
#endif
