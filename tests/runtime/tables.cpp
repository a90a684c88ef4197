// See tables.hpp. The generated table is included without any architecture's kernels: rows need none.
#include "tables.hpp"

#include <algorithm>

#include "selection/configuration_name.hpp"

#define FLASHDMA_BWD_WITH_SM80 0
#define FLASHDMA_BWD_WITH_SM86 0
#define FLASHDMA_BWD_WITH_SM89 0
#define FLASHDMA_BWD_WITH_SM90 0
#include "dispatch_table.inc"

namespace flashdma_bwd::testing {

std::span<const Row> generated_rows() {
  return {generated::kRows, generated::kRowCount};
}

PretendedBuild::PretendedBuild(ArchitectureSet architectures, const std::string& only) {
  for (const Row& row : generated_rows())
    for (const DataType type : kDataTypes)
      for (const BiasKind bias : kBiasKinds)
        for (const bool softcap : {false, true}) {
          const KernelConfig config{row.architecture, row.when.head_dim, type, bias, softcap, row.use};
          const std::string name = configuration_name(config);
          if (architectures.contains(row.architecture) && name.find(only) != std::string::npos) names_.push_back(name);
        }
  std::sort(names_.begin(), names_.end());
  names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
  ArchitectureSet compiled{0};
  for (const std::string& name : names_) {
    const KernelConfig config = *parse_configuration_name(name).value;
    kernels_.push_back({name, config});
    compiled.bits |= 1u << static_cast<unsigned>(config.architecture);
  }
  table_ = {generated_rows(), kernels_, compiled, 0, "pretended", "0123456789abcdef"};
}

TileConfig hopper_tile() {
  return {.family = KernelFamily::hopper,
          .block_m = 64,
          .block_n = 128,
          .q_stages = 2,
          .do_stages = 2,
          .consumer_warpgroups = 2,
          .ds_stages = 2,
          .producer_registers = 24,
          .consumer_registers = 240};
}

TileConfig hopper_pair_tile() {
  TileConfig tile = hopper_tile();
  tile.do_stages = 1;  // all that fits at head dim 256
  tile.producer_registers = 40;
  tile.consumer_registers = 232;
  tile.cta_pair = true;
  return tile;
}

Problem ordinary_problem() {
  Problem problem;
  problem.head_dim = 128;
  problem.batch = 2;
  problem.heads = 16;
  problem.heads_kv = 4;
  problem.seqlen_q = problem.seqlen_k = 4096;
  return problem;
}

std::int64_t ProblemSource::below(std::int64_t limit) {
  // splitmix64
  state_ += 0x9e3779b97f4a7c15u;
  std::uint64_t z = state_;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<std::int64_t>(z % static_cast<std::uint64_t>(limit));
}

Problem ProblemSource::next() {
  Problem p;
  p.data_type = kDataTypes[below(2)];
  p.head_dim = static_cast<int>(8 * (1 + below(32)));
  p.bias = kBiasKinds[below(3)];
  p.softcap = below(2) != 0;
  p.causal = below(2) != 0;
  p.deterministic = below(2) != 0;
  p.masked = below(2) != 0;
  if (p.masked) {
    p.layout = kKeyLayouts[below(3)];
    p.mask_density = static_cast<int>(below(1001));
  }
  p.bias_copies = p.bias == BiasKind::tile && p.layout == KeyLayout::natural && below(2) != 0;
  p.batch = 1 + below(64);
  p.heads_kv = std::int64_t{1} << below(6);
  p.heads = p.heads_kv << below(4);
  p.seqlen_q = 1 + below(std::int64_t{1} << (1 + below(20)));
  p.seqlen_k = 1 + below(std::int64_t{1} << (1 + below(20)));
  if (p.causal && !p.masked && p.seqlen_q > 1 && below(2) != 0) p.window = 1 + below(p.seqlen_q - 1);
  return p;
}

}  // namespace flashdma_bwd::testing
