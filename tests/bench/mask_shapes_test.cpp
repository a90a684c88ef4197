// The benchmark's masks hold what their names say.
#include "mask_shapes.hpp"

#include <algorithm>
#include <string>

#include "support/catch.hpp"

using namespace flashdma_bwd::bench;

namespace {

Problem parsed(const std::string& text) {
  Problem problem;
  std::string error;
  REQUIRE(parse_problem(text, problem, error));
  return problem;
}

}  // namespace

TEST_CASE("a top-w mask keeps the w best-scored of the visible keys") {
  for (const char* text : {"b=2 h=4 hk=2 d=64 sq=20 sk=33 causal mask=topw:7", "b=1 h=1 d=64 s=16 mask=topw:5"}) {
    const Problem problem = parsed(text);
    const std::vector<float> scores = random_scores(problem, 3);
    const HostMask mask = make_mask(problem, scores, 3);
    double active = 0;
    for (std::int64_t group = 0; group < problem.batch * problem.heads_kv; ++group)
      for (std::int64_t row = 0; row < problem.seqlen_q; ++row) {
        const std::int64_t visible = problem.causal ? row + 1 + problem.seqlen_k - problem.seqlen_q : problem.seqlen_k;
        const float* score = scores.data() + group * problem.seqlen_k;
        const std::uint8_t* keep = mask.keep.data() + (group * problem.seqlen_q + row) * problem.seqlen_k;
        float worst_kept = 1e30f, best_dropped = -1e30f;
        std::int64_t kept = 0;
        for (std::int64_t key = 0; key < visible; ++key) {
          kept += keep[key];
          if (keep[key] != 0)
            worst_kept = std::min(worst_kept, score[key]);
          else
            best_dropped = std::max(best_dropped, score[key]);
        }
        CHECK(kept == std::min(visible, problem.top_w));
        CHECK(worst_kept > best_dropped);
        CHECK(std::count(keep + visible, keep + problem.seqlen_k, std::uint8_t{0}) == problem.seqlen_k - visible);
        active += static_cast<double>(kept);
      }
    const double pairs = static_cast<double>(problem.batch * problem.heads_kv * problem.seqlen_q * problem.seqlen_k);
    CHECK(mask.active_fraction == active / pairs);
  }
}

TEST_CASE("random masks keep about their share") {
  const Problem problem = parsed("b=1 h=2 d=64 s=512 mask=random:0.01");
  const HostMask mask = make_mask(problem, {}, 5);
  CHECK(mask.rows == problem.seqlen_q);
  CHECK(mask.active_fraction > 0.9 * problem.keep_probability);
  CHECK(mask.active_fraction < 1.1 * problem.keep_probability);
}

TEST_CASE("masks of keys keep as many of each head, at other places") {
  const HostMask mask = make_mask(parsed("b=1 h=2 d=64 s=1000 mask=keys:0.2504"), {}, 5);
  CHECK(mask.rows == 1);
  REQUIRE(mask.keep.size() == 2000);
  for (const std::ptrdiff_t head : {0, 1000})
    CHECK(std::count(mask.keep.begin() + head, mask.keep.begin() + head + 1000, std::uint8_t{1}) == 250);
  CHECK_FALSE(std::equal(mask.keep.begin(), mask.keep.begin() + 1000, mask.keep.begin() + 1000));
  CHECK(mask.active_fraction == 0.25);
}

TEST_CASE("windows, documents and blocks keep what their names say") {
  const HostMask window = make_mask(parsed("b=1 h=2 hk=1 d=64 s=64 causal mask=window:8"), {}, 1);
  const HostMask documents = make_mask(parsed("b=1 h=1 d=64 s=64 mask=documents:24"), {}, 1);
  for (std::size_t row = 0; row < 64; ++row)
    for (std::size_t key = 0; key < 64; ++key) {
      CHECK(window.keep[row * 64 + key] == (key <= row && (key + 8 > row || key < 4) ? 1 : 0));
      CHECK(documents.keep[row * 64 + key] == (row / 24 == key / 24 ? 1 : 0));
    }
  CHECK(documents.active_fraction == (24 * 24 + 24 * 24 + 16 * 16) / 4096.0);

  const HostMask blocks = make_mask(parsed("b=1 h=2 d=64 sq=1024 sk=4096 mask=blocks:0.25"), {}, 1);
  CHECK(blocks.active_fraction > 0.2);
  CHECK(blocks.active_fraction < 0.3);
  const auto byte = [&](std::size_t head, std::size_t row, std::size_t key) {
    return blocks.keep[(head * 1024 + row) * 4096 + key];
  };
  for (std::size_t head = 0; head < 2; ++head)
    for (std::size_t row = 0; row < 1024; row += 31)
      for (std::size_t key = 0; key < 4096; key += 31)
        CHECK(byte(head, row, key) == byte(head, row / 128 * 128, key / 128 * 128));
}

TEST_CASE("without a mask causality alone decides") {
  const HostMask mask = make_mask(parsed("b=1 h=1 d=64 s=4 causal"), {}, 0);
  CHECK(mask.keep.empty());
  CHECK(mask.active_fraction == (1 + 2 + 3 + 4) / 16.0);
}
