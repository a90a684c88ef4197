// What the tests tune: the shipped configuration, and times that come from a formula instead of a GPU.
#pragma once

#include <cstdint>
#include <flashdma_bwd/kernel_table.hpp>
#include <span>
#include <string>
#include <vector>

#include "config/model.hpp"
#include "tuning/measured_problem.hpp"

namespace flashdma_bwd::generator::test {

/// An H200.
inline constexpr DeviceTraits kDevice{90, 132, 232448};

/// The shipped configs/, which are in order.
Configuration shipped();
const Table& table_of(const Configuration& configuration, Architecture architecture);
std::vector<Row> rows_of(const Table& table);

/// feasible_tiles of a shipped architecture, worked out once in this process for all problems that run the same
/// kernels.
const std::vector<TileConfig>& shipped_tiles(const ArchitectureSpec& spec, const Problem& problem);

/// Milliseconds that a tile takes on a problem, the same for the same seed. Different tiles win at different sizes.
double model_ms(const Problem& problem, const TileConfig& tile, std::uint64_t seed);

/// All of `problems` with the first `most` feasible tiles of each and the table's choice.
std::vector<MeasuredProblem> measure(const Configuration& configuration, std::span<const Problem> problems,
                                     std::uint64_t seed, std::size_t most = 6, double spread_share = 0.002);

/// Dense problems of a head dim: powers of two of the length from `shortest` to `longest`, with these heads.
std::vector<Problem> dense_problems(int head_dim, std::int64_t shortest, std::int64_t longest,
                                    std::initializer_list<std::int64_t> heads);

}  // namespace flashdma_bwd::generator::test
