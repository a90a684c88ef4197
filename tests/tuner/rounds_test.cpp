// Rounds of timings: medians, spreads, who stops, and who does not.
#include "tune/measure/rounds.hpp"

#include <set>

#include "support/catch.hpp"

namespace flashdma_bwd::tune::test {

TEST_CASE("the median and the distance of the quartiles", "[rounds]") {
  CHECK(time_of({3}) == generator::Time{3, 0});
  CHECK(time_of({5, 1, 4, 2, 3}) == generator::Time{3, 2});
  CHECK(time_of({4, 1, 2, 3}) == generator::Time{2.5, 1.5});
}

TEST_CASE("candidates that cannot win stop, the first one never", "[rounds]") {
  std::vector<int> calls(4);
  const double ms[] = {2.0, 1.0, 1.05, 1.2};
  const std::vector<RoundTimes> times = time_in_rounds(4, {10, 0.1}, [&](std::size_t i) {
    ++calls[i];
    return Sample{ms[i] + 0.001 * calls[i], ms[i] / 2, {}};
  });
  CHECK(calls == std::vector<int>{10, 10, 10, 3});
  CHECK_FALSE(times[0].stopped);
  CHECK_FALSE(times[2].stopped);
  CHECK(times[3].stopped);
  CHECK(times[3].rounds == 3);
  CHECK(times[1].rounds == 10);
  CHECK(times[1].cold.ms > 1.0);
  CHECK(times[1].warm == generator::Time{0.5, 0});
}

TEST_CASE("one slow round does not stop a candidate", "[rounds]") {
  int calls = 0;
  const std::vector<RoundTimes> times = time_in_rounds(2, {9, 0.1}, [&](std::size_t i) {
    if (i == 0) return Sample{1, 1, {}};
    return Sample{++calls <= 2 ? 5.0 : 1.01, 1, {}};
  });
  CHECK_FALSE(times[1].stopped);
  CHECK(times[1].cold.ms == 1.01);
}

TEST_CASE("a failure ends a candidate alone", "[rounds]") {
  int calls = 0;
  const std::vector<RoundTimes> times = time_in_rounds(2, {5, 0.1}, [&](std::size_t i) {
    if (i == 0 && ++calls == 2) return Sample{0, 0, "lost"};
    return Sample{1, 1, {}};
  });
  CHECK(times[0].failure == "lost");
  CHECK(calls == 2);
  CHECK(times[1].failure.empty());
  CHECK(times[1].rounds == 5);
}

TEST_CASE("rounds are interleaved and begin at different candidates", "[rounds]") {
  std::vector<std::size_t> order;
  time_in_rounds(3, {3, 1}, [&](std::size_t i) {
    order.push_back(i);
    return Sample{1, 1, {}};
  });
  CHECK(order == std::vector<std::size_t>{0, 1, 2, 1, 2, 0, 2, 0, 1});
}

}  // namespace flashdma_bwd::tune::test
