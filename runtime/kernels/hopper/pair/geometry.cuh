// Compile-time geometry of a configuration of two CTAs: tiles, who computes what, the layout of shared memory.
//
// For head dims above 128 the 128 keys of an item are shared by the two CTAs of a cluster, 64 each: a CTA's registers
// hold dK and dV of no more. Each computes P and dS of its own keys and sends dS to the other, so that each can compute
// one half of the head dim of dQ over all 128 keys: half as many additions to global memory as with 64 keys alone,
// which would be the bound (NOTES.md). Q and dO are loaded once for both.
#pragma once

#include <flashdma_bwd/kernel_resources.hpp>

#include "hopper/geometry.cuh"

namespace flashdma_bwd::hopper::pair {

inline constexpr int kCtas = 2;

/// A constant, for device code calls no functions of the host's.
template <KernelConfig kConfig>
inline constexpr int kPairBuffersWithoutDQuery = pair_buffers_without_d_query(kConfig);

/// The CTA's number in its cluster. Not read from %cluster_ctarank: ptxas would take what follows from it for different
/// in each thread, and compute no address in uniform registers (NOTES.md).
__device__ __forceinline__ int cta_rank() {
  return static_cast<int>(blockIdx.x % kCtas);
}

/// What a tile bias adds to the state.
template <bool kTileBias>
struct BiasState {
  std::uint64_t bias_full, bias_empty;
  ClearedItem cleared;
};
template <>
struct BiasState<false> {};

/// Barriers and what the warps tell each other; at the end of shared memory.
template <int kQueryStages, int kDOutStages, int kDScoreStages, int kOtherDScoreStages, bool kTileBias>
struct State : BiasState<kTileBias> {
  std::uint64_t key_full, value_full;
  std::uint64_t query_full[kQueryStages], query_empty[kQueryStages];
  std::uint64_t d_out_full[kDOutStages], d_out_empty[kDOutStages];
  std::uint64_t probability_full, probability_empty;
  std::uint64_t d_score_full[kDScoreStages], d_score_empty[kDScoreStages];
  std::uint64_t other_d_score_full[kOtherDScoreStages];   ///< the other CTA's dS has arrived here
  std::uint64_t other_d_score_taken[kOtherDScoreStages];  ///< the other CTA has used what was sent to it
  std::uint64_t d_query_full[2], d_query_empty[2];        ///< by role: the buffer of the share's first part
  std::uint64_t d_query_turn[2], d_query_added[2];  ///< deterministic mode: its second part may be added, has been
  std::uint64_t first_step_known;                   ///< deterministic mode
  StepInfo steps[kStepSlots];
  KeyItem item;
  HeadWalk query_walk, d_out_walk;  ///< the loaders'
  int step_count;
  int ticket;                   ///< of the first CTA: the cluster's item
  bool probability_partial[4];  ///< by warp: some of the P that it hands over are of masked pairs
};

/// `kAddsDQuery`: else another kernel computes dQ of a tile bias's gradient, which dS is. Then nothing goes from CTA to
/// CTA but Q and dO, of which there are more buffers.
template <KernelConfig kConfig, bool kAddsDQuery = true>
struct Geometry {
  static constexpr TileConfig kTile = kConfig.tile;
  static_assert(tile_shape_violation(kTile, kConfig.head_dim) == nullptr);

  static constexpr int kM = kTile.block_m;
  static constexpr int kN = kTile.block_n;  ///< of the item
  static constexpr int kD = kConfig.head_dim;
  static constexpr int kGradientBoxRows = 16;  ///< of what is stored of dK and dV at once: a warp's
  static constexpr int kThreads = threads_per_block(kTile);
  static_assert(kAddsDQuery || kMultipliesBiasGradient<kConfig>);
  static constexpr int kQueryStages = kAddsDQuery ? kTile.q_stages : kPairBuffersWithoutDQuery<kConfig>;
  static constexpr int kDOutStages = kAddsDQuery ? kTile.do_stages : kPairBuffersWithoutDQuery<kConfig>;
  static constexpr int kDScoreStages = kTile.ds_stages;
  static_assert(kQueryStages + 3 <= kStepSlots);  // as in hopper/geometry.cuh
  static constexpr int kOtherDScoreStages = pair_other_d_score_stages(kConfig);
  /// Keys of a CTA: the rows of its products S^T, dP^T, dV and dK.
  static constexpr int kKeys = kN / kCtas;
  static_assert(kKeys == 64 && kM == 64);
  /// Columns of dQ that a CTA computes, and of those a warpgroup.
  static constexpr int kDQueryHalf = kD / kCtas;
  static constexpr int kDQueryColumns = kDQueryHalf / kTile.consumer_warpgroups;
  /// A share is added to global memory in two parts: the first by way of the reducer, which has a step's time for it,
  /// the second by the warpgroup itself. Neither way alone is fast enough (NOTES.md).
  static constexpr int kDQueryPart = pair_d_query_part(kConfig);
  static constexpr int kDQueryPartBytes = kM * kDQueryPart * 4;
  /// Of a pair, from the value owner to the key owner: P, or P and the softcap's slope.
  static constexpr int kProbabilityBytes = kConfig.softcap && kConfig.bias == BiasKind::key_vector ? 4 : 2;

  using QueryTile = PanelTile<kM, kD>;
  using KeyTile = PanelTile<kKeys, kD, widest_panel(kDQueryColumns)>;  ///< K: a share of dQ takes whole panels
  /// The CTA's half of the columns of the other CTA's K.
  using OtherKeyTile = PanelTile<kKeys, kDQueryHalf, KeyTile::kPanelColumns>;
  using ValueTile = PanelTile<kKeys, kD>;
  using PairTile = PanelTile<kM, kKeys>;  ///< dS: queries x keys of one CTA

  // Shared memory: byte offsets.
  static constexpr HopperSharedMemory kLayout = hopper_shared_memory(kConfig, kAddsDQuery);
  static constexpr int kKey = 0;
  static constexpr int kOtherKey = kKey + KeyTile::kBytes;
  static constexpr int kValue = kKey + kLayout.key;
  static constexpr int kQuery = kValue + kLayout.value;
  static constexpr int kDOut = kQuery + kLayout.query;
  static constexpr int kDScore = kDOut + kLayout.d_out;
  static constexpr int kOtherDScore = kDScore + kDScoreStages * PairTile::kBytes;
  static constexpr int kDQuery = kDScore + kLayout.d_score;
  static constexpr int kTileBias = kDQuery + kLayout.d_query;  ///< the step's biases of the CTA's keys, as dS
  /// Whether the softcap's slopes take the place of a step's biases when these have been read, and their gradient,
  /// which is dS without the slopes, that of the slopes. Else dS is the gradient.
  static constexpr bool kSlopesReplaceBiases = kConfig.softcap && kConfig.bias == BiasKind::tile;
  static constexpr int kProbability = kTileBias + kLayout.tile_bias;
  static constexpr int kMask = kProbability + kLayout.probability;
  /// Of the mask's words of a step; 0: the value owner reads them from global memory.
  static constexpr int kMaskBytes = kLayout.mask / kQueryStages;
  static constexpr int kLse = kMask + kLayout.mask;
  static constexpr int kRowDot = kLse + kQueryStages * kM * 4;
  static constexpr int kKeyBias = kLse + kLayout.statistics;
  static constexpr int kBiasSums = kKeyBias + kKeys * 4;
  static constexpr int kState = kKeyBias + kLayout.bias;
  static_assert(kState + kLayout.state <= shared_memory_bytes(kConfig));
  static_assert(kLayout.key == KeyTile::kBytes + (kAddsDQuery ? OtherKeyTile::kBytes : 0) &&
                kLayout.value == ValueTile::kBytes && kLayout.query == kQueryStages * QueryTile::kBytes &&
                kLayout.d_out == kDOutStages * QueryTile::kBytes &&
                kLayout.d_score == (kDScoreStages + (kAddsDQuery ? kOtherDScoreStages : 0)) * PairTile::kBytes &&
                kLayout.d_query == (kAddsDQuery ? 2 * kDQueryPartBytes : 0) &&
                (kLayout.tile_bias == 0 || kLayout.tile_bias == PairTile::kBytes) &&
                (kMaskBytes == 0 || kMaskBytes == kKeys / kMaskAtom * kM * 8) &&
                kLayout.probability == kM * kKeys * kProbabilityBytes);
  using State =
      pair::State<kQueryStages, kDOutStages, kDScoreStages, kOtherDScoreStages, kConfig.bias == BiasKind::tile>;
  static_assert(sizeof(State) <= kLayout.state);
};

}  // namespace flashdma_bwd::hopper::pair
