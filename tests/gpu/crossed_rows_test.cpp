// Every compiled kernel over every mask structure at every length of queries, at and off the tiles: all of one with all
// of the other, and with lengths of keys that take turns.
//
// rows_test.cpp has fewer problems for each kernel, for runs under compute-sanitizer.
#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "gpu/check.hpp"
#include "gpu/kernels_under_test.hpp"
#include "gpu/masked_problems.hpp"
#include "support/catch.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

constexpr std::int64_t kLengths[] = {1, 7, 63, 65, 127, 333, 1000};
constexpr std::size_t kLengthCount = std::size(kLengths);

/// A mask structure, or none, and the lengths. `turn` is the structure's number.
ProblemSpec crossed_problem(const KernelName& kernel, const MaskSpec& mask, std::size_t turn, std::size_t length) {
  ProblemSpec spec = problem_for(kernel);
  spec.name = "crossed";
  spec.seqlen_q = kLengths[length];
  spec.seqlen_k = kLengths[(length + turn) % kLengthCount];
  // The largest take most of the time: they come up with a quarter of the structures.
  if (spec.seqlen_q * spec.seqlen_k > 300 * 300 && turn % 4 != 0) spec.seqlen_k = 65;
  // A gradient of a few pairs is rounded as dS and as itself, together up to more than the bar; those of many average.
  constexpr std::int64_t kManyPairs = 256;
  const std::int64_t pairs = spec.seqlen_q * spec.seqlen_k;
  if (mask.structure == MaskStructure::single_pair)
    spec.heads = pairs < 400 * 400 ? kManyPairs / 2 : kManyPairs / 8;
  else
    spec.heads = pairs < 1000 ? kManyPairs / 2 : pairs < 128 * 128 ? 32 : 2;
  spec.heads_kv = spec.heads / 2;
  spec.mask = mask;
  spec.mask.probability = std::min(
      std::max(mask.probability, static_cast<double>(kManyPairs) / static_cast<double>(spec.heads * pairs)), 1.0);
  spec.mask.shape.heads = std::array{PairHeads::one, PairHeads::kv, PairHeads::query}[(length + turn) % 3];
  // Not where so few keys leave nearly all queries none.
  spec.causal = (length + turn) % 2 == 0 && spec.seqlen_k * 4 >= spec.seqlen_q;
  spec.deterministic = (length / 2 + turn) % 3 == 0;
  // dS of rows that see few keys cancels unless O is not of this forward.
  spec.random_out = has_single_keys(mask) || spec.mask.probability < 0.1 || std::min(spec.seqlen_q, spec.seqlen_k) < 64;
  return spec;
}

/// The same for kernels that move the bias by tensor copies: dBias has rows of whole copies or is not wanted.
ProblemSpec movable(ProblemSpec spec, std::size_t turn) {
  spec.bias.gradient = turn % 2 == 0;
  if (spec.bias.gradient) spec.seqlen_k = (spec.seqlen_k + 7) / 8 * 8;
  make_bias_movable(spec);
  return spec;
}

std::vector<MaskSpec> structures() {
  std::vector<MaskSpec> all{{.structure = MaskStructure::none}};
  all.insert(all.end(), std::begin(kMasks), std::end(kMasks));
  return all;
}

}  // namespace

TEST_CASE("every compiled kernel, every length and every mask structure", "[crossed]") {
  using Served = std::tuple<std::string, std::string, std::string, bool, bool>;
  std::set<Served> crossed;
  std::set<std::string> asked_for;
  const std::vector<MaskSpec> masks = structures();
  for (const KernelName& kernel : kernels_under_test()) {
    // A problem asks for all kernels that serve it.
    const bool copies = kernel.copies_bias();
    if (!crossed.emplace(kernel.head_dim, kernel.data_type, kernel.bias, kernel.softcap, copies).second) continue;
    for (std::size_t turn = 0; turn < masks.size(); ++turn)
      for (std::size_t length = 0; length < kLengthCount; ++length) {
        ProblemSpec spec = crossed_problem(kernel, masks[turn], turn, length);
        if (copies) spec = movable(std::move(spec), turn + length);
        for (const std::string& name : check_problem(spec, Kernels::every, Inputs::plain, Plans::of_the_call))
          asked_for.insert(name);
      }
  }
  for (const KernelName& kernel : kernels_under_test()) {
    INFO(kernel.text);
    CHECK(asked_for.count(kernel.text) == 1);
  }
  CHECK(!asked_for.empty());
}
