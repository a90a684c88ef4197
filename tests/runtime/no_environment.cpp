// The environment of these tests: no variable is set. What variables do is tested by reading them, and by
// environment_probe.
#include "environment.hpp"

namespace flashdma_bwd {

const Environment& environment() {
  static const Environment empty;
  return empty;
}

}  // namespace flashdma_bwd
