// Compile-time geometry of a configuration of the Ampere family: tiles, warp grids, accumulators, the layout of shared
// memory.
#pragma once

#include <flashdma_bwd/kernel_resources.hpp>

#include "ampere/item.cuh"
#include "common/shared_tile.hpp"

namespace flashdma_bwd::ampere {

template <KernelConfig kConfig>
struct Geometry {
  static constexpr TileConfig kTile = kConfig.tile;
  static_assert(tile_shape_violation(kTile, kConfig.head_dim) == nullptr);

  static constexpr int kM = kTile.block_m;
  static constexpr int kN = kTile.block_n;
  static constexpr int kD = kConfig.head_dim;
  static constexpr int kWarps = kTile.warps;
  static constexpr int kThreads = threads_per_block(kTile);
  static constexpr int kQueryStages = kTile.q_stages;
  static constexpr int kDOutStages = kTile.do_stages;

  // S and dP: queries x keys.
  static constexpr int kScoreWarpsM = kTile.score_warps_m;
  static constexpr int kScoreWarpsN = kWarps / kScoreWarpsM;
  static constexpr int kScoreRows = kM / kScoreWarpsM;
  static constexpr int kScoreColumns = kN / kScoreWarpsN;
  static constexpr int kScoreM = kScoreRows / 16;    ///< accumulator atoms of a warp along the queries
  static constexpr int kScoreN = kScoreColumns / 8;  ///< accumulator atoms of a warp along the keys
  static_assert(kScoreColumns <= 64, "a warp's keys lie in one mask atom");

  // dK and dV: keys x head dim.
  static constexpr int kDkvWarpsN = kTile.dkv_warps_n;
  static constexpr int kDkvWarpsD = kWarps / kDkvWarpsN;
  static constexpr int kDkvRows = kN / kDkvWarpsN;
  static constexpr int kDkvColumns = kD / kDkvWarpsD;
  static constexpr int kDkvM = kDkvRows / 16;
  static constexpr int kDkvN = kDkvColumns / 8;

  // dQ: queries x head dim.
  static constexpr int kDqWarpsM = kTile.dq_warps_m;
  static constexpr int kDqWarpsD = kWarps / kDqWarpsM;
  static constexpr int kDqRows = kM / kDqWarpsM;
  static constexpr int kDqColumns = kD / kDqWarpsD;
  static constexpr int kDqM = kDqRows / 16;
  static constexpr int kDqN = kDqColumns / 8;

  using QueryTile = SharedTile<kM, kD>;
  using KeyTile = SharedTile<kN, kD>;
  using PairTile = SharedTile<kM, kN>;

  // Shared memory: byte offsets.
  static constexpr AmpereSharedMemory kLayout = ampere_shared_memory(kConfig);
  static constexpr int kKey = 0;
  static constexpr int kValue = kKey + kLayout.key;
  static constexpr int kQuery = kValue + kLayout.value;
  static constexpr int kDOut = kQuery + kLayout.query;
  static constexpr int kProbability = kDOut + kLayout.d_out;
  static constexpr int kDScore = kProbability + kLayout.probability;
  static constexpr int kStatistics = kDScore + kLayout.d_score;
  static constexpr int kPositions = kStatistics + kLayout.statistics;
  static constexpr int kBias = kPositions + kLayout.positions;
  static constexpr int kState = kBias + kLayout.bias;
  static constexpr int kQueryFree = kState + kLayout.state - 8;  ///< barrier: Q's older stage has been read
  static constexpr int kSharedBytes = kState + kLayout.state;
  static_assert(kSharedBytes == shared_memory_bytes(kConfig));
  static_assert(kLayout.key == KeyTile::kBytes && kLayout.query == kQueryStages * QueryTile::kBytes &&
                kLayout.d_out == kDOutStages * QueryTile::kBytes && kLayout.probability == PairTile::kBytes);
  static_assert(sizeof(Item) + 8 <= kLayout.state);
  static_assert(kStatistics % 128 == 0, "tiles are aligned to the swizzle");
  /// Where V is loaded, and dV staged, when V itself stays in registers: the buffers of Q and dO.
  static constexpr int kValueStaging = kTile.value_in_registers ? kQuery : kValue;
};

/// A warp's share of S or dP, and of dK or dV.
template <KernelConfig kConfig>
using ScoreAccumulator = float[Geometry<kConfig>::kScoreM][Geometry<kConfig>::kScoreN][4];
template <KernelConfig kConfig>
using DkvAccumulator = float[Geometry<kConfig>::kDkvM][Geometry<kConfig>::kDkvN][4];

}  // namespace flashdma_bwd::ampere
