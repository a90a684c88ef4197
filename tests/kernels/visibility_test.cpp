// Which query tiles a key tile is planned with, against counting pairs one by one.
#include "common/visibility.hpp"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "support/catch.hpp"

namespace {

using namespace flashdma_bwd;

bool sees(std::int64_t query, std::int64_t key, std::int64_t delta, std::int64_t left, std::int64_t right) {
  const std::int64_t middle = query + delta;
  return (left == kNoWindow || key >= middle - left) && (right == kNoWindow || key <= middle + right);
}

TEST_CASE("a key tile is planned with the query tiles that see it, and whole ones have no masked pair") {
  std::mt19937 generator(7);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator); };
  int with_tiles = 0;
  int with_whole_tiles = 0;
  for (int round = 0; round < 4000; ++round) {
    BackwardParameters p;
    p.batch = 1;
    p.seqlen_q = draw(1, 200);
    p.seqlen_k = draw(1, 200);
    p.position_delta = draw(0, 2) == 0 ? draw(-250, 250) : 0;
    p.delta_from_lengths = draw(0, 1) == 0;
    p.window_left = draw(0, 1) == 0 ? kNoWindow : draw(0, 150);
    p.window_right = draw(0, 1) == 0 ? kNoWindow : draw(0, 150);
    const int block_m = 32 << draw(0, 2);
    const SequenceRows sequence = sequence_of(p, 0);
    const Limits limits = limits_of(p, sequence);
    const int first = draw(0, p.seqlen_k - 1);
    const int last = draw(first, p.seqlen_k - 1);
    const std::int64_t delta = p.position_delta + (p.delta_from_lengths ? p.seqlen_k - p.seqlen_q : 0);

    const TileRange seen = visible_query_tiles(limits, p.seqlen_q, first, last, block_m);
    const TileRange whole = whole_query_tiles(limits, p.seqlen_q, first, last, block_m);
    INFO("sq " << p.seqlen_q << " keys " << first << " ... " << last << " delta " << delta << " left " << p.window_left
               << " right " << p.window_right << " block_m " << block_m);
    for (int tile = 0; tile * block_m < p.seqlen_q; ++tile) {
      bool any = false;
      bool all = true;
      for (int query = tile * block_m; query < std::min((tile + 1) * block_m, p.seqlen_q); ++query)
        for (int key = first; key <= last; ++key) {
          const bool visible = sees(query, key, delta, p.window_left, p.window_right);
          any |= visible;
          all &= visible;
        }
      const bool planned = tile >= seen.begin && tile < seen.end;
      // No tile with a visible pair is left out. One between two that are seen may be planned for nothing, but no more.
      if (any) REQUIRE(planned);
      if (planned) REQUIRE(tile < (p.seqlen_q + block_m - 1) / block_m);
      REQUIRE((tile >= whole.begin && tile < whole.end) == all);
      const MaskClass pairs = class_by_limits(limits, p.seqlen_q, first, last, tile, block_m);
      REQUIRE(pairs == (all ? MaskClass::full : planned ? MaskClass::partial : MaskClass::empty));
      REQUIRE(class_by_limits(limits, p.seqlen_q, first, first - 1, tile, block_m) == MaskClass::empty);
      with_tiles += planned ? 1 : 0;
      with_whole_tiles += all ? 1 : 0;
    }
  }
  CHECK(with_tiles > 1000);
  CHECK(with_whole_tiles > 1000);
}

TEST_CASE("limits saturate instead of overflowing") {
  BackwardParameters p;
  p.batch = 1;
  p.seqlen_q = p.seqlen_k = 300;
  p.window_left = p.window_right = std::int64_t{1} << 40;
  const Limits wide = limits_of(p, sequence_of(p, 0));
  CHECK(wide.low == -kUnlimited);
  CHECK(wide.high == kUnlimited);
  // A shard far behind a finite window sees nothing to its left.
  p.position_delta = std::int64_t{1} << 42;
  const Limits far = limits_of(p, sequence_of(p, 0));
  CHECK(far.low == kUnlimited);
  CHECK(visible_query_tiles(far, 300, 0, 127, 64).end == visible_query_tiles(far, 300, 0, 127, 64).begin);
}

TEST_CASE("packed sequences' scratch rows start at tiles and do not overlap") {
  const std::vector<std::int32_t> q = {0, 1, 1, 130, 258, 600};
  const std::vector<std::int32_t> k = {0, 7, 7, 8, 300, 300};
  BackwardParameters p;
  p.batch = static_cast<int>(q.size()) - 1;
  p.cu_seqlens_q = q.data();
  p.cu_seqlens_k = k.data();
  std::int64_t end = 0;
  for (int b = 0; b < p.batch; ++b) {
    const SequenceRows s = sequence_of(p, b);
    const auto i = static_cast<std::size_t>(b);
    CHECK(s.length_q == q[i + 1] - q[i]);
    CHECK(s.length_k == k[i + 1] - k[i]);
    CHECK(s.row_q == q[i]);
    CHECK(s.row_k == k[i]);
    CHECK(s.scratch_row % kScratchRowAlignment == 0);
    CHECK(s.scratch_row >= end);
    end = s.scratch_row + padded_rows(s.length_q);
  }
  CHECK(end <= padded_rows(q.back() + std::int64_t{p.batch} * kScratchRowAlignment));
}

TEST_CASE("the active keys of a short sequence are a prefix") {
  const std::vector<std::int32_t> active = {0, 3, 9, 10, 40, 41};
  const std::int32_t count = static_cast<std::int32_t>(active.size());
  const std::int32_t offsets[] = {0, 64};
  BackwardParameters p;
  p.seqlen_k = 64;
  p.active_keys = active.data();
  p.active_counts = &count;
  SequenceRows s;
  for (s.length_k = 0; s.length_k <= 64; ++s.length_k) {
    p.cu_seqlens_k = nullptr;
    CHECK(keys_of(p, 0, 0, s).count == count);
    p.cu_seqlens_k = offsets;
    CHECK(keys_of(p, 0, 0, s).count ==
          std::count_if(active.begin(), active.end(), [&](std::int32_t key) { return key < s.length_k; }));
  }
}

}  // namespace
