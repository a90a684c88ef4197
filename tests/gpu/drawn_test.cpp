// Problems drawn from all that the library computes, on every compiled kernel that serves them. The other groups vary
// one thing or two at a time and know what they look for; these meet what nobody thought of.
//
// FLASHDMA_BWD_DRAWN_FIRST=<seed> and FLASHDMA_BWD_DRAWN_COUNT=<n> choose other problems, or, with a count of 1, the
// one that a failure names by its seed.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "gpu/check.hpp"
#include "gpu/drawn_problem.hpp"
#include "gpu/kernels_under_test.hpp"
#include "support/catch.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

/// A gradient of fewer pairs is rounded as dS and as itself, together up to more than the bar; those of more average.
constexpr double kFewPairs = 4096;

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::stoull(text);
}

bool is_under_test(const ProblemSpec& spec) {
  static const std::vector<KernelName> kernels = kernels_under_test();
  const int bucket = spec.head_dim <= 128 ? (spec.head_dim + 31) / 32 * 32 : (spec.head_dim + 63) / 64 * 64;
  return std::any_of(kernels.begin(), kernels.end(), [&](const KernelName& kernel) {
    const ProblemSpec served = problem_for(kernel);
    return served.data_type == spec.data_type && served.head_dim == bucket;
  });
}

}  // namespace

TEST_CASE("drawn problems", "[drawn]") {
  const std::uint64_t first = number_from_environment("FLASHDMA_BWD_DRAWN_FIRST", 1);
  const std::uint64_t count = number_from_environment("FLASHDMA_BWD_DRAWN_COUNT", 200);
  std::uint64_t compared = 0;
  std::uint64_t with_few_pairs = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const ProblemSpec spec = drawn_problem(seed);
    // Without queries and keys no kernel is chosen.
    if (!is_under_test(spec) || (spec.seqlen_q == 0 && spec.seqlen_k == 0)) continue;
    Problem problem(spec);
    const flashdma_bwd_arguments& a = problem.arguments();
    const double pairs = static_cast<double>(a.batch * a.heads) * static_cast<double>(a.seqlen_q * a.seqlen_k);
    const double active = problem.density() * pairs;
    if (active > 0 && active < kFewPairs) {
      ++with_few_pairs;
      continue;
    }
    INFO("FLASHDMA_BWD_DRAWN_FIRST=" << seed << " FLASHDMA_BWD_DRAWN_COUNT=1 repeats it");
    check_prepared_problem(problem);
    ++compared;
  }
  INFO(compared << " problems compared, " << with_few_pairs << " left out for their few pairs");
  CHECK((compared > 0 || count < 20));
  CHECK(with_few_pairs <= compared / 2 + 2);
}
