// The process's environment, read once.
#include <cstdlib>

#include "dispatch_table.hpp"
#include "environment.hpp"

namespace flashdma_bwd {

const Environment& environment() {
  static const Environment* const read = [] {
    auto* fresh = new Environment;  // kept for the library's lifetime: rows point into it
    read_environment(
        *fresh, [](const char* name) -> const char* { return std::getenv(name); }, dispatch_table().rows);
    return fresh;
  }();
  return *read;
}

}  // namespace flashdma_bwd
