// The tiles that could run a problem: every combination of the fields of a table's `use` that its own rules admit.
// Pure.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <vector>

#include "config/model.hpp"

namespace flashdma_bwd::generator {

/// The condition of a row for the problems that run the same kernels as `problem`: head-dim bucket, data type, bias,
/// tensor copies of it, and softcap.
When kernel_condition(const Problem& problem);

/// By name. A tile is feasible where a row that chooses it for these problems would pass the rules of a table. Of the
/// registers of a Hopper tile, consumers get all that the launch has and the producer leaves.
std::vector<TileConfig> feasible_tiles(const ArchitectureSpec& spec, const Problem& problem);

/// Of `tiles` those that are one step from one of `known`: the same, or different in a single field, where the
/// registers of a Hopper tile count as one.
std::vector<TileConfig> near_tiles(const std::vector<TileConfig>& tiles, const std::vector<TileConfig>& known);

/// The kernel of a tile for a problem.
KernelConfig kernel_of(Architecture architecture, const Problem& problem, const TileConfig& tile);

}  // namespace flashdma_bwd::generator
