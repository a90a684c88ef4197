// The model: work, filled up to whole waves, times a factor of the tile that depends on the size.
#include "tuner/timing_model.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "config/load.hpp"
#include "diagnostics/render.hpp"
#include "generator/files.hpp"
#include "selection/configuration_name.hpp"
#include "selection/row_text.hpp"
#include "selection/select_kernel.hpp"
#include "support/catch.hpp"
#include "tuning/candidates.hpp"
#include "validation/validate.hpp"

namespace flashdma_bwd::generator::test {

Configuration shipped() {
  Diagnostics diagnostics;
  Configuration configuration = load_configuration(source_dir() / "configs", diagnostics);
  validate(configuration, diagnostics);
  INFO(render_text(diagnostics, configuration.sources, false));
  REQUIRE(diagnostics.empty());
  return configuration;
}

const Table& table_of(const Configuration& configuration, Architecture architecture) {
  return *std::ranges::find_if(configuration.tables,
                               [&](const Table& table) { return table.architecture == architecture; });
}

std::vector<Row> rows_of(const Table& table) {
  std::vector<Row> rows;
  for (const TableRow& row : table.rows) rows.push_back(as_row(table, row));
  return rows;
}

const std::vector<TileConfig>& shipped_tiles(const ArchitectureSpec& spec, const Problem& problem) {
  static std::map<std::string, std::vector<TileConfig>> tiles;  // by what tells the kernels of problems apart
  const std::string kind =
      row_text(Row{spec.architecture, kernel_condition(problem), {}, ProvenanceKind::derived, {}, {}, 0});
  const auto [place, first] = tiles.try_emplace(kind);
  if (first) place->second = feasible_tiles(spec, problem);
  return place->second;
}

double model_ms(const Problem& problem, const TileConfig& tile, std::uint64_t seed) {
  std::uint64_t hash = seed * 0x9e3779b97f4a7c15u + 1;
  for (const char c : tile_name(tile)) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  // Where along the lengths a tile is at its best, and how much it loses away from there.
  const double favourite = 8 + static_cast<double>((hash >> 20) % 8),
               loss = 0.01 + static_cast<double>(hash >> 60) / 100;
  const double length = std::log2(static_cast<double>(problem.seqlen_q));
  const double work = static_cast<double>(problem.batch * problem.heads * problem.seqlen_q * problem.seqlen_k) *
                      problem.head_dim * problem.mask_density / 1000 * (problem.causal ? 0.5 : 1) / 1e11;
  return 0.01 + work * (1 + loss * std::abs(length - favourite));
}

std::vector<MeasuredProblem> measure(const Configuration& configuration, std::span<const Problem> problems,
                                     std::uint64_t seed, std::size_t most, double spread_share) {
  const ArchitectureSpec& spec = *find_architecture(configuration, Architecture::sm90);
  const std::vector<Row> rows = rows_of(table_of(configuration, Architecture::sm90));
  std::vector<MeasuredProblem> result;
  for (const Problem& problem : problems) {
    std::vector<TileConfig> tiles = shipped_tiles(spec, problem);
    if (tiles.size() > most) tiles.erase(tiles.begin(), tiles.end() - static_cast<std::ptrdiff_t>(most));
    const SelectionResult incumbent = select_among(Architecture::sm90, kDevice, problem, rows);
    REQUIRE(incumbent.status == SelectionStatus::ok);
    if (std::ranges::find(tiles, incumbent.config.tile) == tiles.end()) tiles.push_back(incumbent.config.tile);
    MeasuredProblem& measured = result.emplace_back(MeasuredProblem{problem, {}, "2025-11-22"});
    for (const TileConfig& tile : tiles) {
      const double ms = model_ms(problem, tile, seed);
      measured.tiles.push_back({tile, {ms, ms * spread_share}, {ms * 0.95, ms * spread_share}, Evidence::timed});
    }
  }
  return result;
}

std::vector<Problem> dense_problems(int head_dim, std::int64_t shortest, std::int64_t longest,
                                    std::initializer_list<std::int64_t> heads) {
  std::vector<Problem> problems;
  for (const DataType data_type : kDataTypes)
    for (const bool causal : {false, true})
      for (const std::int64_t count : heads)
        for (std::int64_t length = shortest; length <= longest; length *= 2) {
          Problem& problem = problems.emplace_back();
          problem.data_type = data_type;
          problem.head_dim = head_dim;
          problem.causal = causal;
          problem.batch = 1;
          problem.heads = problem.heads_kv = count;
          problem.seqlen_q = problem.seqlen_k = length;
        }
  return problems;
}

}  // namespace flashdma_bwd::generator::test
