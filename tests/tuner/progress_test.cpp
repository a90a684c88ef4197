// Lines of progress, on a terminal and elsewhere.
#include "tune/progress.hpp"

#include <sstream>

#include "support/catch.hpp"

namespace flashdma_bwd::tune::test {

TEST_CASE("elsewhere there is a line for each problem and no more", "[progress]") {
  std::ostringstream out;
  Progress progress(out, false, [] { return 0.0; });
  progress.begin(0, 2, "one");
  progress.end(0, 2, "one: 1 ms");
  progress.begin(1, 2, "two");
  progress.end(1, 2, "two: 2 ms");
  CHECK(out.str() == "1 of 2: one: 1 ms\n2 of 2: two: 2 ms\n");
}

TEST_CASE("a terminal sees the time that is left", "[progress]") {
  std::ostringstream out;
  double now = 5;
  Progress progress(out, true, [&] { return now; });
  progress.begin(0, 4, "one");
  CHECK(out.str() == "\r\033[K1 of 4: one");
  now = 25;
  progress.end(0, 4, "one: 1 ms");
  out.str("");
  progress.begin(1, 4, "two");
  CHECK(out.str() == "\r\033[K2 of 4, 60 s left: two");
}

TEST_CASE("durations are short texts", "[progress]") {
  CHECK(duration_text(0) == "0 s");
  CHECK(duration_text(89.2) == "90 s");
  CHECK(duration_text(91) == "2 min");
  CHECK(duration_text(3 * 3600 + 61) == "3 h 2 min");
}

}  // namespace flashdma_bwd::tune::test
