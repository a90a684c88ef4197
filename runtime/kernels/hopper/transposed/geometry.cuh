// Compile-time geometry of a configuration with transposed gradients: tiles, who computes what, the layout of shared
// memory.
//
// 96 keys are no multiple of a product's 64 rows, but a head dim of 192 is: so queries are the rows of S and dP, and
// the head dim is the rows of dV^T and dK^T. One consumer warpgroup holds all of dV^T, the other all of dK^T, 144
// registers a thread, and a CTA has half as many keys again as each of two CTAs that share an item (pair/), whose dS
// goes nowhere else.
#pragma once

#include <flashdma_bwd/kernel_resources.hpp>

#include "hopper/geometry.cuh"

namespace flashdma_bwd::hopper::transposed {

/// What the producer tells the others about a step.
struct Step {
  int first_query;
  int head;
  bool new_head;   ///< another one than that of the step before
  bool partial;    ///< some of its pairs are masked
  bool has_words;  ///< by the words of a mask, which are in shared memory
  int atoms;       ///< of the mask's key atoms that the tile lies in those with visible pairs, a bit each. The words of
                   ///< others need not have been written: a plan writes those of tiles of 128 keys.
};

/// Barriers and what the warps tell each other; at the end of shared memory.
template <int kQueryStages, int kDOutStages, int kDScoreStages, int kKeys>
struct State {
  std::uint64_t key_full, value_full;
  std::uint64_t query_full[kQueryStages], query_empty[kQueryStages];
  std::uint64_t d_out_full[kDOutStages], d_out_empty[kDOutStages];
  std::uint64_t operand_full, operand_empty;          ///< P as dV's operand
  std::uint64_t probability_full, probability_empty;  ///< P for the key owner
  std::uint64_t d_score_full[kDScoreStages], d_score_empty[kDScoreStages];
  std::uint64_t d_query_full[2], d_query_empty[2];  ///< by role
  Step steps[kStepSlots];
  int heads[kStepSlots];  ///< key bias: of the steps, known with dO
  KeyItem item;
  HeadWalk query_walk, d_out_walk;  ///< the loaders'
  int step_count;
  bool probability_partial[4];      ///< by warp: some of the P that it hands over are of masked pairs
  std::uint32_t bias_keys[3];       ///< key bias: a bit for each key whose bias is not minus infinity
  alignas(8) int positions[kKeys];  ///< of keys that are not neighbours
};

template <KernelConfig kConfig>
struct Geometry {
  static constexpr TileConfig kTile = kConfig.tile;
  static_assert(tile_shape_violation(kTile, kConfig.head_dim) == nullptr);

  static constexpr int kM = kTile.block_m;
  static constexpr int kN = kTile.block_n;
  static constexpr int kD = kConfig.head_dim;
  static constexpr int kGradientBoxRows = kN;  ///< of what is stored of dK and dV at once
  static_assert(kM == 64 && kN == 96 && kD % 64 == 0);
  static_assert(kConfig.bias != BiasKind::tile);
  static constexpr int kThreads = threads_per_block(kTile);
  static constexpr int kQueryStages = kTile.q_stages;
  static constexpr int kDOutStages = kTile.do_stages;
  static constexpr int kDScoreStages = kTile.ds_stages;
  static_assert(kQueryStages + 3 <= kStepSlots);  // as in hopper/geometry.cuh
  /// Products, of 64 rows each, of which a gradient consists.
  static constexpr int kRowBlocks = kD / 64;
  /// Columns of dQ that a warpgroup computes, and how many of them go to the reducer at once. It adds the first part,
  /// the warpgroup itself adds the others: neither way alone is fast enough (NOTES.md).
  static constexpr int kDQueryColumns = kD / 2;
  static constexpr int kDQueryPart = transposed_d_query_part(kConfig);
  static constexpr int kDQueryParts = kDQueryColumns / kDQueryPart;
  static constexpr int kDQueryPartBytes = kM * kDQueryPart * 4;
  static_assert(kDQueryColumns % kDQueryPart == 0 && kDQueryPart % 8 == 0);

  using QueryTile = PanelTile<kM, kD>;  ///< a panel is a row block of a gradient's products
  static_assert(QueryTile::kPanelColumns == 64);
  using KeyTile = PanelTile<kN, kD, widest_panel(kDQueryColumns)>;  ///< K: a share of dQ takes whole panels
  using ValueTile = PanelTile<kN, kD>;
  using PairTile = PanelTile<kM, kN>;  ///< P, dS: queries x keys

  // Shared memory: byte offsets.
  static constexpr HopperSharedMemory kLayout = hopper_shared_memory(kConfig);
  static constexpr int kKey = 0;
  static constexpr int kValue = kKey + kLayout.key;
  static constexpr int kQuery = kValue + kLayout.value;
  static constexpr int kDOut = kQuery + kLayout.query;
  static constexpr int kDScore = kDOut + kLayout.d_out;
  static constexpr int kDQuery = kDScore + kLayout.d_score;
  static constexpr int kOperand = kDQuery + kLayout.d_query;
  static constexpr int kProbability = kOperand + PairTile::kBytes;
  static constexpr int kMask = kOperand + kLayout.probability;
  /// Key atoms that a tile lies in, and their words of a step, [key atom][query].
  static constexpr int kMaskAtoms = 2;
  static constexpr int kMaskBytes = kMaskAtoms * kM * 8;
  static constexpr int kLse = kMask + kLayout.mask;
  static constexpr int kRowDot = kLse + kQueryStages * kM * 4;
  static constexpr int kKeyBias = kLse + kLayout.statistics;
  static constexpr int kBiasSums = kKeyBias + kN * 4;
  static constexpr int kState = kKeyBias + kLayout.bias;
  static_assert(kState + kLayout.state == shared_memory_bytes(kConfig));
  static_assert(kLayout.key == KeyTile::kBytes && kLayout.value == ValueTile::kBytes &&
                kLayout.query == kQueryStages * QueryTile::kBytes && kLayout.d_out == kDOutStages * QueryTile::kBytes &&
                kLayout.d_score == kDScoreStages * PairTile::kBytes && kLayout.d_query == 2 * kDQueryPartBytes &&
                kLayout.probability == 2 * PairTile::kBytes && kLayout.mask == kQueryStages * kMaskBytes);
  static_assert(kDOut % 1024 == 0 && kDScore % 1024 == 0 && kDQuery % 1024 == 0 && kOperand % 1024 == 0);
  using State = transposed::State<kQueryStages, kDOutStages, kDScoreStages, kN>;
  static_assert(sizeof(State) <= kLayout.state);
};

}  // namespace flashdma_bwd::hopper::transposed
