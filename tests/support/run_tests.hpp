// Catch2's command line, for main functions.
#pragma once

namespace flashdma_bwd::testing {

/// Runs the tests of this executable that the arguments of its command line name. Returns what its process is to exit
/// with: 0 where all passed.
int run_tests(int argc, char** argv);

}  // namespace flashdma_bwd::testing
