// The main function of every test executable that needs no options of its own.
#include "support/run_tests.hpp"

int main(int argc, char** argv) {
  return flashdma_bwd::testing::run_tests(argc, argv);
}
