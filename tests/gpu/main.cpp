// test_gpu [Catch2 options] [--results FILE] [--check-gpu]
//
// --results FILE  appends a JSON line for each comparison: kernel, problem, errors of dQ, dK, dV and dBias, the bar,
// whether it passed.
//                 The environment variable FLASHDMA_BWD_TEST_RESULTS=FILE does the same.
// --check-gpu     only says whether there is a GPU.
// FLASHDMA_BWD_TESTED_KERNELS=FILE appends a line for each kernel that was compared: its name, the number of its
// comparisons, and their largest error in percent of the bar or the word failed (Results::append_tested_kernels).
// FLASHDMA_BWD_TEST_KERNELS=PART[*PART...] leaves out kernels whose names do not hold the parts in this order.
// Without a GPU it says so and exits with 77, which ctest shows as skipped.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "gpu/results.hpp"
#include "support/run_tests.hpp"

namespace {

constexpr int kSkipped = 77;

bool find_gpu() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    std::printf("skipped: no CUDA device (%s)\n",
                error != cudaSuccess ? cudaGetErrorString(error) : "cudaGetDeviceCount found 0");
    return false;
  }
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major < 8) {
    std::printf("skipped: the kernels need compute capability 8.0 or newer\n");
    return false;
  }
  std::printf("%s, compute capability %d.%d\n", properties.name, properties.major, properties.minor);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  using flashdma_bwd::testing::results;
  bool only_check = false;
  const char* path = std::getenv("FLASHDMA_BWD_TEST_RESULTS");
  std::vector<char*> catch_arguments;
  for (int i = 0; i < argc; ++i) {
    if (std::strcmp(argv[i], "--check-gpu") == 0) {
      only_check = true;
    } else if (std::strcmp(argv[i], "--results") == 0) {
      if (++i == argc) {
        std::fprintf(stderr, "test_gpu: --results needs a file name\n");
        return 2;
      }
      path = argv[i];
    } else {
      catch_arguments.push_back(argv[i]);
    }
  }
  if (!find_gpu()) return kSkipped;
  if (only_check) return 0;
  const int failures =
      flashdma_bwd::testing::run_tests(static_cast<int>(catch_arguments.size()), catch_arguments.data());
  results().print_summary();
  if (path != nullptr && !results().append_lines(path)) return 1;
  if (const char* kernels = std::getenv("FLASHDMA_BWD_TESTED_KERNELS"))
    if (!results().append_tested_kernels(kernels)) return 1;
  return failures;
}
