// Catch2's own code, where it is a header: the one file that defines CATCH_CONFIG_RUNNER.
#define CATCH_CONFIG_RUNNER
#include "support/run_tests.hpp"

#include "support/catch.hpp"

namespace flashdma_bwd::testing {

int run_tests(int argc, char** argv) {
  return Catch::Session().run(argc, argv);
}

}  // namespace flashdma_bwd::testing
