// What is instantiated, and under which names.
#include "plan/plan.hpp"

#include <algorithm>
#include <set>

#include "config/load.hpp"
#include "generator/files.hpp"
#include "selection/configuration_name.hpp"
#include "selection/select_kernel.hpp"
#include "support/catch.hpp"

namespace flashdma_bwd::generator::test {
namespace {

Configuration load(const std::filesystem::path& folder) {
  Diagnostics diagnostics;
  Configuration configuration = load_configuration(folder, diagnostics);
  REQUIRE(diagnostics.empty());
  return configuration;
}

std::set<std::string> names_of(const Plan& plan) {
  std::set<std::string> names;
  for (const TranslationUnit& unit : plan.units)
    for (const PlannedKernel& kernel : unit.kernels) names.insert(kernel.name);
  return names;
}

}  // namespace

TEST_CASE("patterns match whole names, texts match parts", "[plan]") {
  CHECK(matches("bwd_sm80_d128_bf16", ""));
  CHECK(matches("bwd_sm80_d128_bf16", "d128"));
  CHECK_FALSE(matches("bwd_sm80_d128_bf16", "d64"));
  CHECK(matches("bwd_sm80_d128_bf16", "*d128*"));
  CHECK(matches("bwd_sm80_d128_bf16", "bwd_sm8?_*_bf16"));
  CHECK_FALSE(matches("bwd_sm80_d128_bf16", "?d128*"));
  CHECK_FALSE(matches("bwd_sm80_d128_bf16", "*d128"));
  CHECK(matches("aab", "*a?b*"));
  CHECK(matches("", "*"));
}

TEST_CASE("a kernel that no problem can reach is not instantiated", "[plan]") {
  // In cases/base, a row takes tile bias with softcap up to 4096 keys from the default row of head dim 128, and no
  // more.
  const Configuration configuration = load(cases_dir() / "base/configs");
  const std::set<std::string> names = names_of(make_plan(configuration, *find_profile(configuration, "full")));
  const std::string specific = "_ampere_m64n64_w8_s4_kv4_dq2_q2_do2_", usual = "_ampere_m64n128_w8_s2_kv4_dq2_q2_do1_";
  CHECK(names.contains("bwd_sm80_d128_bf16" + specific + "tilebias_softcap"));
  CHECK(names.contains("bwd_sm80_d128_bf16" + usual + "tilebias_softcap"));
  CHECK_FALSE(names.contains("bwd_sm80_d128_bf16" + specific + "tilebias"));
  CHECK_FALSE(names.contains("bwd_sm80_d128_bf16" + specific + "nobias_softcap"));
}

TEST_CASE("every problem's kernel is in the full plan of the shipped tables, and fits its GPU", "[plan]") {
  const Configuration configuration = load(source_dir() / "configs");
  const Plan plan = make_plan(configuration, *find_profile(configuration, "full"));
  const std::set<std::string> names = names_of(plan);
  for (const ArchitectureSpec& spec : configuration.architectures)
    for (int head_dim = 8; head_dim <= kMaxHeadDim; head_dim += 8)
      for (const DataType type : kDataTypes)
        for (const BiasKind bias : kBiasKinds)
          for (unsigned flags = 0; flags < 32; ++flags)
            for (const std::int64_t length : {1, 512, 8192, 1 << 20}) {
              const DeviceTraits device{spec.compute_capability, 100, spec.shared_memory_per_block};
              Problem problem;
              problem.data_type = type;
              problem.head_dim = head_dim;
              problem.bias = bias;
              problem.softcap = (flags & 1u) != 0;
              problem.causal = (flags & 2u) != 0;
              problem.deterministic = (flags & 4u) != 0;
              problem.masked = (flags & 8u) != 0;
              problem.bias_copies = (flags & 16u) != 0;
              problem.batch = 1;
              problem.heads = problem.heads_kv = 8;
              problem.seqlen_q = problem.seqlen_k = length;
              const SelectionResult result = select_kernel(device, problem, plan.rows);
              REQUIRE(result.status == SelectionStatus::ok);
              REQUIRE(result.tier == 0);
              REQUIRE(result.config.architecture == spec.architecture);
              REQUIRE(names.contains(configuration_name(result.config)));
            }
}

TEST_CASE("a smaller profile's kernels are some of the full profile's", "[plan]") {
  const Configuration configuration = load(source_dir() / "configs");
  const std::set<std::string> full = names_of(make_plan(configuration, *find_profile(configuration, "full")));
  for (const Profile& profile : configuration.profiles) {
    const std::set<std::string> names = names_of(make_plan(configuration, profile));
    INFO(profile.name);
    CHECK_FALSE(names.empty());
    CHECK(std::includes(full.begin(), full.end(), names.begin(), names.end()));
  }
}

TEST_CASE("the hash is that of the rows' texts", "[plan]") {
  CHECK(table_hash({}) == "cbf29ce484222325");  // FNV-1a of nothing is its offset basis
  const Configuration configuration = load(cases_dir() / "base/configs");
  std::vector<Row> rows = make_plan(configuration, *find_profile(configuration, "full")).rows;
  const std::string hash = table_hash(rows);
  CHECK(hash.size() == 16);
  rows[0].line += 1;  // where a row stands is not part of it
  CHECK(table_hash(rows) == hash);
  rows[0].use.q_stages = 1;
  CHECK(table_hash(rows) != hash);
}

}  // namespace flashdma_bwd::generator::test
