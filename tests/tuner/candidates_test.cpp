// Candidates: all feasible, the shipped tiles among them, and a tree that would build them.
#include "tuning/candidates.hpp"

#include <algorithm>
#include <flashdma_bwd/kernel_resources.hpp>
#include <set>

#include "emit/emit.hpp"
#include "plan/plan.hpp"
#include "selection/configuration_name.hpp"
#include "selection/kernel_family.hpp"
#include "support/catch.hpp"
#include "tuner/timing_model.hpp"
#include "tuning/candidate_plan.hpp"

namespace flashdma_bwd::generator::test {
namespace {

/// A problem of every kind of kernel of a head dim.
std::vector<Problem> kinds(int head_dim) {
  std::vector<Problem> problems;
  for (const DataType data_type : kDataTypes)
    for (const BiasKind bias : kBiasKinds)
      for (const bool softcap : {false, true})
        for (const bool copies : {false, true}) {
          if (copies && bias != BiasKind::tile) continue;
          Problem& problem = problems.emplace_back();
          problem.data_type = data_type;
          problem.head_dim = head_dim;
          problem.bias = bias;
          problem.softcap = softcap;
          problem.bias_copies = copies;
          problem.batch = problem.heads = problem.heads_kv = 1;
          problem.seqlen_q = problem.seqlen_k = 1024;
        }
  return problems;
}

}  // namespace

TEST_CASE("every candidate passes the closed formulas", "[candidates]") {
  for (const ArchitectureSpec& spec : shipped().architectures)
    for (const int head_dim : kHeadDimBuckets)
      for (const Problem& problem : kinds(head_dim)) {
        const std::vector<TileConfig>& tiles = shipped_tiles(spec, problem);
        CHECK_FALSE(tiles.empty());
        std::set<std::string> names;
        for (const TileConfig& tile : tiles) {
          const KernelConfig kernel = kernel_of(spec.architecture, problem, tile);
          INFO(configuration_name(kernel));
          CHECK(names.insert(configuration_name(kernel)).second);
          CHECK(runs_on(tile.family, spec.architecture));
          CHECK(tile_shape_violation(tile, head_dim) == nullptr);
          CHECK(reads(tile, problem.bias));
          CHECK(threads_per_block(tile) <= spec.threads_per_block);
          CHECK(shared_memory_bytes(kernel) <= spec.shared_memory_per_block);
          CHECK(estimated_registers(kernel) <= std::min(available_registers(tile), spec.registers_per_thread));
          CHECK_FALSE((copies_bias(tile.family, problem.bias) && !problem.bias_copies));
        }
      }
}

TEST_CASE("the tiles of the shipped tables are candidates for the problems that run them", "[candidates]") {
  const Configuration configuration = shipped();
  const Plan plan = make_plan(configuration, *find_profile(configuration, "full"));
  std::size_t kernels = 0;
  for (const TranslationUnit& unit : plan.units)
    for (const PlannedKernel& kernel : unit.kernels) {
      const KernelConfig& config = kernel.config;
      Problem problem;
      problem.data_type = config.data_type;
      problem.head_dim = config.head_dim;
      problem.bias = config.bias;
      problem.softcap = config.softcap;
      problem.bias_copies = copies_bias(config.tile.family, config.bias);
      const std::vector<TileConfig>& tiles =
          shipped_tiles(*find_architecture(configuration, config.architecture), problem);
      INFO(kernel.name);
      CHECK(std::ranges::find(tiles, config.tile) != tiles.end());
      ++kernels;
    }
  CHECK(kernels == kernel_count(plan));
}

TEST_CASE("the tree of candidates has a unit for each kernel, the shipped rows and their hash", "[candidates]") {
  const Configuration configuration = shipped();
  const Plan full = make_plan(configuration, *find_profile(configuration, "full"));
  std::set<KernelConfig> chosen;  // with and without copies of a tile bias the Ampere kernels are the same
  for (const Problem& problem : kinds(64))
    for (const TileConfig& tile : shipped_tiles(*find_architecture(configuration, Architecture::sm90), problem))
      if (tile.block_m == 128) chosen.insert(kernel_of(Architecture::sm90, problem, tile));
  std::vector<KernelConfig> kernels(chosen.begin(), chosen.end());
  kernels.push_back(kernels.front());
  const Plan plan = candidate_plan(configuration, kernels);
  CHECK(kernel_count(plan) == chosen.size());
  CHECK(plan.units.size() == chosen.size());
  CHECK(table_hash(plan.rows) == table_hash(full.rows));

  std::vector<std::string> names;
  for (const TranslationUnit& unit : plan.units) names.push_back(unit.kernels.front().name);
  CHECK(std::ranges::is_sorted(names));  // the library looks kernels up by name in this order
  std::string table;
  for (const EmittedFile& file : emit(plan))
    if (file.path == "dispatch_table.inc") table = file.text;
  for (const KernelConfig& kernel : kernels) {
    CHECK(table.find("FLASHDMA_BWD_DECLARE_KERNEL(" + configuration_name(kernel) + ")\n") != std::string::npos);
    CHECK(table.find("constexpr TileConfig " + tile_name(kernel.tile) + "{") != std::string::npos);
  }
}

}  // namespace flashdma_bwd::generator::test
