// Every compiled kernel over every mask structure at every length, of queries and of keys, at and off the tiles; and
// over every broadcast of a mask.
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

constexpr std::int64_t kLengths[] = {1, 7, 63, 64, 65, 127, 128, 333, 1000};
constexpr std::size_t kLengthCount = std::size(kLengths);
/// A gradient of a few pairs is rounded as dS and as itself, together up to more than the bar; those of as many
/// average.
constexpr std::int64_t kManyPairs = 1024;
constexpr std::int64_t kMostHeads = 128;

/// No mask, and every structure.
std::vector<MaskSpec> structures() {
  std::vector<MaskSpec> all{{.structure = MaskStructure::none}};
  all.insert(all.end(), std::begin(kMasks), std::end(kMasks));
  return all;
}

/// Pairs of all heads that the mask and causality leave.
std::int64_t active_pairs(const ProblemSpec& spec) {
  const BoolMask mask = bool_mask(spec);
  const std::int64_t last_diagonal = spec.causal ? spec.seqlen_k - spec.seqlen_q : spec.seqlen_k;
  std::int64_t kept = 0;
  for (std::int64_t head = 0; head < mask.heads; ++head)
    for (std::int64_t i = 0; i < mask.rows; ++i)
      for (std::int64_t j = 0; j < mask.columns; ++j)
        if (j <= i + last_diagonal && mask.kept[static_cast<std::size_t>((head * mask.rows + i) * mask.columns + j)])
          ++kept;
  return kept * (spec.heads / mask.heads);
}

/// More heads, where these have so few pairs that their roundings would decide, and more pairs where that is not
/// enough.
void make_pairs_many(ProblemSpec& spec) {
  const std::int64_t pairs = spec.seqlen_q * spec.seqlen_k;
  std::int64_t active = spec.heads * pairs;
  if (spec.mask.structure == MaskStructure::bernoulli) {
    const double least = static_cast<double>(kManyPairs) / static_cast<double>(kMostHeads * pairs);
    spec.mask.probability = std::min(std::max(spec.mask.probability, least), 1.0);
    active = static_cast<std::int64_t>(static_cast<double>(active) * spec.mask.probability);
  } else if (spec.mask.structure != MaskStructure::none) {
    active = active_pairs(spec);
    if (active == 0) return;
  }
  const std::int64_t times = (kManyPairs + active) / std::max<std::int64_t>(active, 1);
  spec.heads = std::min(spec.heads * times, kMostHeads);
  spec.heads_kv = spec.heads / 2;
}

/// A structure at a length of queries. `turn` is the structure's number: lengths of keys, heads of the mask, causality
/// and determinism take turns, so that every structure meets every length of keys, too.
ProblemSpec crossed_problem(const KernelName& kernel, const MaskSpec& mask, std::size_t turn, std::size_t length) {
  ProblemSpec spec = problem_for(kernel);
  spec.name = "crossed";
  spec.heads = 2;
  spec.heads_kv = 1;
  spec.seqlen_q = kLengths[length];
  spec.seqlen_k = kLengths[(length + turn) % kLengthCount];
  spec.mask = mask;
  spec.mask.shape.heads = std::array{PairHeads::one, PairHeads::kv, PairHeads::query}[(length + turn) % 3];
  // Not where so few keys leave nearly all queries none.
  spec.causal = (length + turn) % 2 == 0 && spec.seqlen_k * 4 >= spec.seqlen_q;
  spec.deterministic = (length / 2 + turn) % 3 == 0;
  make_pairs_many(spec);
  // dS of rows that see few keys cancels unless O is not of this forward.
  spec.random_out = has_single_keys(mask) || spec.mask.probability < 0.1 || std::min(spec.seqlen_q, spec.seqlen_k) < 64;
  return spec;
}

/// The same for kernels that move the bias by tensor copies: dBias has rows of whole copies or is not wanted.
ProblemSpec movable(ProblemSpec spec, bool with_gradient) {
  spec.bias.gradient = with_gradient;
  if (with_gradient) spec.seqlen_k = (spec.seqlen_k + 7) / 8 * 8;
  make_bias_movable(spec);
  return spec;
}

/// Calls visit(kernel) with one kernel of those that serve the same problems: a problem asks for all that serve it.
template <class Visit>
void for_each_kind(const Visit& visit) {
  using Served = std::tuple<std::string, std::string, std::string, bool, bool>;
  std::set<Served> visited;
  for (const KernelName& kernel : kernels_under_test())
    if (visited.emplace(kernel.head_dim, kernel.data_type, kernel.bias, kernel.softcap, kernel.copies_bias()).second)
      visit(kernel);
}

}  // namespace

TEST_CASE("every compiled kernel, every length and every mask structure", "[crossed]") {
  std::set<std::string> asked_for;
  const std::vector<MaskSpec> masks = structures();
  for_each_kind([&](const KernelName& kernel) {
    for (std::size_t turn = 0; turn < masks.size(); ++turn)
      for (std::size_t length = 0; length < kLengthCount; ++length) {
        ProblemSpec spec = crossed_problem(kernel, masks[turn], turn, length);
        if (kernel.copies_bias()) spec = movable(std::move(spec), (turn + length) % 2 == 0);
        for (const std::string& name : check_problem(spec, Kernels::every, Inputs::plain, Plans::of_the_call))
          asked_for.insert(name);
      }
  });
  check_all_were_asked_for(asked_for);
}

TEST_CASE("every compiled kernel and every broadcast of a mask", "[crossed]") {
  std::set<std::string> asked_for;
  for_each_kind([&](const KernelName& kernel) {
    for (const bool batch : {false, true})
      for (const PairHeads heads : {PairHeads::one, PairHeads::kv, PairHeads::query})
        for (const bool rows : {false, true})
          for (const bool columns : {false, true}) {
            ProblemSpec spec = problem_for(kernel);
            spec.name = "broadcast";
            spec.batch = 2;
            spec.seqlen_q = 150;
            spec.seqlen_k = 192;
            spec.mask = {.structure = MaskStructure::bernoulli, .shape = {batch, heads, rows, columns}};
            spec.causal = columns;
            if (kernel.copies_bias()) spec = movable(std::move(spec), true);
            for (const std::string& name : check_problem(spec, Kernels::every, Inputs::plain, Plans::of_the_call))
              asked_for.insert(name);
          }
  });
  check_all_were_asked_for(asked_for);
}
