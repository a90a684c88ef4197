// A problem against given ceilings, word by word.
#include "roofline.hpp"

#include "results_of.hpp"

using namespace flashdma_bwd::bench;
using namespace flashdma_bwd::bench::test;

TEST_CASE("a problem without a mask has one floor") {
  const RooflineTimes times{"bwd_x", "t.yaml:7", "", 1, 2, 0};
  CHECK(roofline_text(problem_of("b=1 h=8 d=64 s=4096"), times, {100, 1000, "", ""}) ==
        "b=1 h=8 d=64 s=4096\n"
        "  kernel      bwd_x (t.yaml:7)\n"
        "  operations  85.90 GFLOP of 100.00 % of all pairs\n"
        "  backward\n"
        "    bytes     33.69 MB: tensors 33.55, lse 0.13\n"
        "    floor     0.8590 ms; compute 0.8590 ms at 100.0 TFLOP/s, memory 0.0337 ms at 1000 GB/s\n"
        "    bound     compute: the other is 3.9 % of it\n"
        "    measured  2.0000 ms, 42.9 TFLOP/s of the active pairs, 42.9 % of the floor's speed\n");
}

TEST_CASE("a mask has a floor with its plan built and one with it given") {
  const RooflineTimes times{"bwd_x", "t.yaml:7", "", 0.0078125, 0.5, 0.25};
  CHECK(roofline_text(problem_of("b=1 h=8 hk=2 d=64 s=4096 bias=key mask=topw:32"), times, {500, 1000, "", ""}) ==
        "b=1 h=8 hk=2 d=64 s=4096 bias=key mask=topw:32\n"
        "  kernel      bwd_x (t.yaml:7)\n"
        "  operations  0.67 GFLOP of 0.78 % of all pairs\n"
        "  backward, the mask's plan built\n"
        "    bytes     54.69 MB: tensors 20.97, lse 0.13, bias 0.03, mask 33.55\n"
        "    floor     0.0547 ms; compute 0.0013 ms at 500.0 TFLOP/s, memory 0.0547 ms at 1000 GB/s\n"
        "    bound     memory: the other is 2.5 % of it\n"
        "    measured  0.5000 ms, 1.3 TFLOP/s of the active pairs, 10.9 % of the floor's speed\n"
        "  backward, the mask's plan given\n"
        "    bytes     21.17 MB: tensors 20.97, lse 0.13, bias 0.03, plan 0.03\n"
        "    floor     0.0212 ms; compute 0.0013 ms at 500.0 TFLOP/s, memory 0.0212 ms at 1000 GB/s\n"
        "    bound     memory: the other is 6.3 % of it\n"
        "    measured  0.2500 ms, 2.7 TFLOP/s of the active pairs, 8.5 % of the floor's speed\n");
}

TEST_CASE("what no ceiling was measured for is said to be unknown") {
  const RooflineTimes times{"bwd_x", "t.yaml:7", "", 1, 2, 0};
  const std::string none = roofline_text(problem_of("b=1 h=8 d=64 s=4096"), times, {});
  CHECK(contains(none, "floor     not known: no ceiling was measured\n    bound     unknown\n"));
  CHECK_FALSE(contains(none, "of the floor's speed"));
  const std::string one = roofline_text(problem_of("b=1 h=8 d=64 s=4096"), times, {0, 1000, "", ""});
  CHECK(contains(one, "compute not known, memory 0.0337 ms"));
  CHECK(contains(one, "bound     memory, of the one that is known\n"));
}

TEST_CASE("ceilings are printed with their sources") {
  CHECK(ceilings_text({575.04, 4100, "this library", "a copy"}) ==
        "dense ceiling: 575.0 TFLOP/s, this library\ncopy bandwidth: 4100 GB/s, a copy\n");
  CHECK(ceilings_text({}) == "dense ceiling: not known\ncopy bandwidth: not known\n");
}
