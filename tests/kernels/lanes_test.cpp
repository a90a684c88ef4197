// The threads of a CTA whose kernel runs on the host: all of them run, they meet, and who waits in vain is told of.
#include "lanes.hpp"

#include <algorithm>
#include <vector>

#include "support/catch.hpp"

namespace {

constexpr unsigned kCount = 64;

}  // namespace

TEST_CASE("lanes see what the others have done before they met") {
  std::vector<unsigned> rounds(kCount);
  std::vector<unsigned> order;
  host_cuda::Barrier barrier(kCount);
  CHECK(host_cuda::run_lanes(kCount, [&] {
    for (unsigned round = 1; round <= 3; ++round) {
      rounds[threadIdx.x] = round;
      if (round == 1) order.push_back(threadIdx.x);
      barrier.arrive_and_wait();
      CHECK(std::count(rounds.begin(), rounds.end(), round) == kCount);
      barrier.arrive_and_wait();
    }
  }));
  CHECK_FALSE(std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  CHECK(std::adjacent_find(order.begin(), order.end()) == order.end());
  CHECK(order.size() == kCount);
}

TEST_CASE("lanes that wait for one that has ended are told of, and the next ones run") {
  host_cuda::Barrier barrier(kCount);
  CHECK_FALSE(host_cuda::run_lanes(kCount, [&] {
    if (threadIdx.x != 5) barrier.arrive_and_wait();
  }));
  unsigned ran = 0;
  CHECK(host_cuda::run_lanes(kCount / 2, [&] { ++ran; }));
  CHECK(ran == kCount / 2);
}
