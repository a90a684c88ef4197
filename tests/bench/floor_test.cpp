// Work and floors: operations and bytes against counts over each tensor's elements, and which bound binds.
#include "floor.hpp"

#include <string>

#include "active_pairs.hpp"
#include "mask_encodings.hpp"
#include "mask_shapes.hpp"
#include "results_of.hpp"
#include "support/catch.hpp"

using namespace flashdma_bwd::bench;
using test::problem_of;

namespace {

double fraction(const Problem& problem) {
  return active_pairs(problem) / static_cast<double>(problem.seqlen_q * problem.seqlen_k);
}

/// Multiplications and additions of five products over the active pairs, counted one by one.
double counted_flops(const Problem& problem) {
  const HostMask mask = make_mask(problem, random_scores(problem, 3), 3);
  double flops = 0;
  for (std::int64_t head = 0; head < problem.batch * problem.heads; ++head) {
    const std::int64_t group = head / (problem.heads / problem.heads_kv);
    for (std::int64_t i = 0; i < problem.seqlen_q; ++i)
      for (std::int64_t j = 0; j < problem.seqlen_k; ++j) {
        if (problem.causal && j > i + problem.seqlen_k - problem.seqlen_q) continue;
        const std::int64_t row = mask.rows > 1 ? i : 0;
        const auto at = static_cast<std::size_t>((group * mask.rows + row) * problem.seqlen_k + j);
        if (!mask.keep.empty() && mask.keep[at] == 0) continue;
        for (int matrix_product = 0; matrix_product < 5; ++matrix_product)
          flops += 2 * static_cast<double>(problem.head_dim);
      }
  }
  return flops;
}

}  // namespace

TEST_CASE("floating-point operations are those of five products over the active pairs") {
  for (const char* text : {"b=2 h=4 hk=2 d=16 sq=20 sk=33", "b=1 h=2 d=8 s=40 causal",
                           "b=1 h=4 hk=1 d=8 s=64 causal bias=key mask=topw:9", "b=1 h=2 d=8 s=64 mask=documents:11"}) {
    const Problem problem = problem_of(text);
    INFO(text);
    CHECK(work_of(problem, fraction(problem), PlanUse::built).flops == Approx(counted_flops(problem)));
  }
}

TEST_CASE("a dense problem's operations are the usual convention's but for the diagonal") {
  const Problem causal = problem_of("b=1 h=16 d=128 s=8192 causal");
  const Problem full = problem_of("b=1 h=16 d=128 s=8192");
  CHECK(work_of(full, 1, PlanUse::built).flops == full.dense_flops());
  CHECK(work_of(causal, fraction(causal), PlanUse::built).flops == Approx(causal.dense_flops()).epsilon(2e-4));
}

TEST_CASE("bytes are those of every tensor once") {
  // Five tensors of the queries' heads and of the keys' are read, three written: 4 of each kind together.
  const Problem plain = problem_of("b=2 h=4 hk=2 d=16 sq=20 sk=33");
  const Traffic bytes = work_of(plain, 1, PlanUse::built).bytes;
  CHECK(bytes.tensors == 2 * 4 * (2 * 20 * 4 * 16 + 2 * 33 * 2 * 16));
  CHECK(bytes.lse == 4 * 2 * 4 * 20);
  CHECK(bytes.bias == 0);
  CHECK(bytes.mask == 0);
  CHECK(bytes.plan == 0);
  CHECK(bytes.total() == bytes.tensors + bytes.lse);

  const Problem key = problem_of("b=2 h=4 hk=2 d=16 sq=20 sk=33 bias=key");
  CHECK(work_of(key, 1, PlanUse::built).bytes.bias == 2 * 2 * (2 * 2 * 33));
  const Problem tile = problem_of("b=2 h=4 hk=2 d=16 s=32 causal bias=tile");
  CHECK(work_of(tile, fraction(tile), PlanUse::built).bytes.bias == 2 * 2 * 2 * (32 * 33 / 2 + 32 * 32));
}

TEST_CASE("a mask's bytes are those of its encoding, without what causality hides") {
  for (const char* text :
       {"b=2 h=4 hk=2 d=16 s=128 mask=topw:9", "b=2 h=4 hk=2 d=16 s=128 mask=topw:9 encoding=bits",
        "b=2 h=4 hk=2 d=16 s=128 mask=topw:9 encoding=intervals", "b=2 h=4 hk=2 d=16 s=128 mask=keys:0.5",
        "b=2 h=4 hk=2 d=16 s=128 mask=keys:0.5 encoding=bits",
        "b=2 h=4 hk=2 d=16 s=256 mask=blocks:0.5 encoding=blocks"}) {
    const Problem problem = problem_of(text);
    const EncodedMask encoded = encode(problem, make_mask(problem, random_scores(problem, 5), 5));
    INFO(text);
    CHECK(work_of(problem, fraction(problem), PlanUse::built).bytes.mask == static_cast<double>(encoded.bytes.size()));
  }
  const Problem causal = problem_of("b=1 h=2 hk=1 d=16 s=128 causal mask=topw:9");
  CHECK(work_of(causal, fraction(causal), PlanUse::built).bytes.mask == 128 * 129 / 2);
  const Problem keys = problem_of("b=1 h=2 hk=1 d=16 s=4096 mask=keys:0.25 encoding=keys");
  CHECK(work_of(keys, fraction(keys), PlanUse::built).bytes.mask == 4 * 1024);
}

TEST_CASE("with a plan given its bytes are counted, and not the mask's") {
  const Problem problem = problem_of("b=2 h=4 hk=2 d=16 s=128 mask=random:0.5");
  const Traffic bytes = work_of(problem, 0.5, PlanUse::given).bytes;
  CHECK(bytes.mask == 0);
  CHECK(bytes.plan == 2 * 2 * 128 * 128 / 2 / 8);
  const Problem keys = problem_of("b=2 h=4 hk=2 d=16 s=128 mask=keys:0.5");
  CHECK(work_of(keys, 0.5, PlanUse::given).bytes.plan == 4 * 2 * 2 * 64);
}

TEST_CASE("a problem as selection sees it has the work that every such call has") {
  flashdma_bwd::Problem captured;
  captured.head_dim = 128;
  captured.batch = 2;
  captured.heads = 16;
  captured.heads_kv = 4;
  captured.seqlen_q = captured.seqlen_k = 1024;
  const Problem same = problem_of("b=2 h=16 hk=4 d=128 s=1024");
  CHECK(work_of(captured).flops == work_of(same, 1, PlanUse::built).flops);
  CHECK(work_of(captured).bytes.total() == work_of(same, 1, PlanUse::built).bytes.total());

  captured.causal = captured.masked = true;
  captured.mask_density = 250;
  captured.bias = flashdma_bwd::BiasKind::tile;
  CHECK(work_of(captured).flops == 10.0 * 2 * 16 * 128 * (1024.0 * 1025 / 2) / 4);
  CHECK(work_of(captured).bytes.bias == 2 * (1024.0 * 1025 / 2) / 4);
  captured.bias = flashdma_bwd::BiasKind::key_vector;
  CHECK(work_of(captured).bytes.bias == 2 * 1024);
  captured.masked = false;  // then the density says nothing
  CHECK(work_of(captured).flops == 10.0 * 2 * 16 * 128 * (1024.0 * 1025 / 2));
}

TEST_CASE("the longer of the two times is the floor and names the bound") {
  Work work;
  work.flops = 500e9;
  work.bytes.tensors = 4e9;
  Floor floor = floor_of(work, {500, 2000, "", ""});
  CHECK(floor.compute_ms == Approx(1.0));
  CHECK(floor.memory_ms == Approx(2.0));
  CHECK(floor.ms == Approx(2.0));
  CHECK(floor.bound == Bound::memory);
  floor = floor_of(work, {500, 8000, "", ""});
  CHECK(floor.ms == Approx(1.0));
  CHECK(floor.bound == Bound::compute);
}

TEST_CASE("what has no ceiling has no floor") {
  Work work;
  work.flops = 500e9;
  work.bytes.tensors = 4e9;
  Floor floor = floor_of(work, {});
  CHECK(floor.ms == 0);
  CHECK(floor.bound == Bound::unknown);
  CHECK(std::string(bound_word(floor.bound)) == "unknown");
  floor = floor_of(work, {0, 2000, "", ""});
  CHECK(floor.compute_ms == 0);
  CHECK(floor.bound == Bound::memory);
}
