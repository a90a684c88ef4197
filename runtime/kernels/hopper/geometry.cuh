// Compile-time geometry of a configuration of the Hopper family: tiles, who computes what, the layout of shared memory.
#pragma once

#include <flashdma_bwd/kernel_resources.hpp>

#include "common/item.cuh"
#include "hopper/panel_tile.hpp"

namespace flashdma_bwd::hopper {

/// How the consumer warpgroups share dQ.
enum class DQueryShare {
  rows,     ///< each takes 64 queries and all of the head dim
  columns,  ///< each takes all queries and an equal part of the head dim
};

/// A constant, for device code calls no functions of the host's.
template <KernelConfig kConfig>
inline constexpr bool kMultipliesBiasGradient = multiplies_bias_gradient(kConfig);

/// What the producer tells the others about a step.
struct StepInfo {
  int first_query;
  int head;
  bool partial;                     ///< some of its pairs are masked
  StepFacts facts;                  ///< where halves without active pairs are left out
  const std::uint64_t* mask_words;  ///< of a partial step: the item's first key atom with the step's first query, or
                                    ///< nullptr where only limits mask
};

/// And what a step's reducer needs, which may be at it when its item has made room for another.
struct ItemStep : StepInfo {
  std::int64_t scratch_row;  ///< of the first query, in the scratch of dQ
  const std::int32_t* rank;  ///< deterministic mode: how many smaller items add to the step's dQ before this one
};
/// The number of steps where a CTA that takes several items finds none any more.
inline constexpr int kNoItem = -1;

/// Steps in flight at most: a warp that still needs a step's entry keeps the loads from running this far ahead.
inline constexpr int kStepSlots = 8;

/// The lane that gives back for its warp what a step needs. All lanes read a step's entry, and compute-sanitizer's
/// racecheck, which does not see a `__syncwarp` that ptxas leaves out, takes that for a read of the last one's.
inline constexpr int kLastLane = 31;

/// An item whose zeros of dBias the CTA writes.
struct ClearedItem {
  KeyItem item;
  HeadWalk walk;
};

/// What a tile bias adds to the state.
template <int kBiasStages, int kConsumers>
struct BiasState {
  std::uint64_t bias_full[kBiasStages][kConsumers];
  std::uint64_t bias_empty[kBiasStages];  ///< of a ring of its own
  ClearedItem cleared;
};
template <int kConsumers>
struct BiasState<0, kConsumers> {};

/// Barriers and what the warps tell each other; at the end of shared memory.
template <int kItemSlots, int kQueryStages, int kDOutStages, int kDScoreStages, int kBiasStages, int kConsumers>
struct State : BiasState<kBiasStages, kConsumers> {
  std::uint64_t item_wanted;
  std::uint64_t item_full[kItemSlots], key_full[kItemSlots];
  std::uint64_t value_full;
  std::uint64_t query_full[kQueryStages], query_empty[kQueryStages];
  std::uint64_t d_out_full[kDOutStages], d_out_empty[kDOutStages];
  std::uint64_t d_score_stored[kConsumers][kDScoreStages];  ///< by a consumer; its reducer then arrives at `full`
  std::uint64_t d_score_full[kDScoreStages], d_score_empty[kDScoreStages];
  std::uint64_t d_query_full[kConsumers], d_query_empty[kConsumers];
  ItemStep steps[kStepSlots];
  KeyItem items[kItemSlots];
  int step_counts[kItemSlots];  ///< of the items, or kNoItem
  HeadWalk walks[kItemSlots];   ///< the producer's

  // What the loader and the finder have no registers for.
  int item_number;  ///< of the item that is loaded,
  int item_head;    ///< which of its heads,
  int first_step;   ///< and its first step
  int wanted_slot;  ///< where the next item goes,
  int ticket;       ///< and its number
};

template <KernelConfig kConfig>
struct Geometry {
  static constexpr TileConfig kTile = kConfig.tile;
  static_assert(tile_shape_violation(kTile, kConfig.head_dim) == nullptr);

  static constexpr int kM = kTile.block_m;
  static constexpr int kN = kTile.block_n;
  static constexpr int kD = kConfig.head_dim;
  static constexpr int kGradientBoxRows = 16;  ///< of what is stored of dK and dV at once: a warp's
  static constexpr int kConsumers = kTile.consumer_warpgroups;
  static constexpr int kConsumerThreads = kConsumers * kWarpgroupThreads;
  static constexpr int kConsumerWarps = kConsumers * 4;
  static_assert(kConsumerWarps <= kPieceParts);
  static constexpr int kThreads = threads_per_block(kTile);
  static constexpr int kQueryStages = kTile.q_stages;
  static constexpr int kDOutStages = kTile.do_stages;
  static constexpr bool kTileBias = kConfig.bias == BiasKind::tile;
  static constexpr HopperSharedMemory kLayout = hopper_shared_memory(kConfig);
  /// Whether a tile bias has a ring of its own. With a softcap its gradient is not dS, the gradient of what the softcap
  /// is taken of, and takes the place of the step's biases there.
  static constexpr bool kOwnBiasRing = kTileBias && kConfig.softcap;
  /// Of the ring of dS. Else the tiles of a tile bias are loaded into its buffers, and a step's dS takes the place of
  /// its biases: each warp reads those of its own keys, and writes dS there.
  static constexpr int kDScoreStages = kTile.ds_stages + (kOwnBiasRing ? 0 : kLayout.tile_bias / (kM * kN * 2));
  /// Of the ring that biases are loaded into.
  static constexpr int kBiasStages = kOwnBiasRing ? kLayout.tile_bias / (kM * kN * 2) : kTileBias ? kDScoreStages : 0;
  static_assert(kQueryStages + 3 <= kStepSlots);  // a reducer reads a step's entry until three steps later
  /// Whether a CTA takes one item after the other.
  static constexpr bool kSeveralItems = kTile.several_items;
  /// Whether a consumer leaves out steps in which none of the pairs with its keys is active.
  static constexpr bool kSkipsEmptyHalves = kTile.skip_empty_halves;
  static_assert(!kSkipsEmptyHalves || kN == kKeysOfTwoHalves);
  /// Items at once, and tiles of K: while one is at work the next is found, and its keys are loaded.
  static constexpr int kItemSlots = kSeveralItems ? 2 : 1;

  /// Whether Q and dO of a step are waited for and given back as one: each has as many buffers as the other.
  static constexpr bool kLoadedTogether = kQueryStages == kDOutStages;
  /// Whether the ring of dS is so long that no one needs to ask if a buffer may be written: with four, who stores dS of
  /// step i has seen dS of step i - 2 of the other warpgroup, which then had finished the products with that of i - 4.
  /// A tile bias's gradient is stored from the ring, too.
  static constexpr bool kDScoresOutlastReaders = kDScoreStages >= 4 && !kTileBias;

  /// Keys of a consumer warpgroup: the rows of its products S^T, dP^T, dV and dK.
  static constexpr int kKeysOfConsumer = 64;
  static_assert(kN == kConsumers * kKeysOfConsumer);

  static constexpr DQueryShare kDQueryShare = kM == 128 ? DQueryShare::rows : DQueryShare::columns;
  /// Columns of a warpgroup's share of dQ.
  static constexpr int kDQueryColumns = kDQueryShare == DQueryShare::rows ? kD : kD / kConsumers;

  using QueryTile = PanelTile<kM, kD>;
  using KeyTile = PanelTile<kN, kD, widest_panel(kDQueryColumns)>;  ///< K: a share of dQ takes whole panels
  using ValueTile = PanelTile<kN, kD>;
  using PairTile = PanelTile<kM, kN>;  ///< dS and a tile bias: queries x keys; a panel holds the keys of one warpgroup
  static_assert(PairTile::kPanelColumns == kKeysOfConsumer);

  // A buffer of the ring is given back in the step after its own, and holds biases of the only item.
  static_assert(!kTileBias || (!kSeveralItems && (kOwnBiasRing ? kBiasStages == kTileBiasRingStages
                                                               : kDScoreStages >= kFewestTileBiasStages)));

  // Shared memory: byte offsets.
  static constexpr int kKey = 0;
  static constexpr int kValue = kKey + kLayout.key;
  static constexpr int kQuery = kValue + kLayout.value;
  static constexpr int kDOut = kQuery + kLayout.query;
  static constexpr int kDScore = kDOut + kLayout.d_out;
  static constexpr int kBias = kDScore + (kOwnBiasRing ? kLayout.d_score : 0);
  /// Whether products subtract D, and without a softcap LSE (statistic_columns.cuh). Then their terms take the place of
  /// both, by the stages of Q. They do not lie at the end of shared memory: compute-sanitizer's memcheck takes the
  /// operand, whose columns are read twice, for twice as long.
  static constexpr bool kStatisticTerms = has_statistic_terms(kConfig);
  static constexpr int kTerms = kDScore + kLayout.d_score + kLayout.tile_bias;
  static constexpr int kTermBytes = kM * static_cast<int>(sizeof(StatisticTerms));
  static_assert(!kStatisticTerms || kLayout.statistics == kQueryStages * kTermBytes);
  static constexpr int kDQuery = kTerms + (kStatisticTerms ? kLayout.statistics : 0);
  static constexpr int kMask = kDQuery + kLayout.d_query;
  static constexpr int kLse = kMask + kLayout.mask;
  static constexpr int kRowDot = kLse + kQueryStages * kM * 4;
  static constexpr int kKeyBias = kLse + (kStatisticTerms ? 0 : kLayout.statistics);
  static constexpr int kBiasSums = kKeyBias + kN * 4;
  /// Whether each thread keeps its sums of dS in shared memory, instead of each key.
  static constexpr bool kBiasSumsOfThreads = kLayout.bias > 2 * kN * 4;
  static constexpr int kState = kKeyBias + kLayout.bias;
  /// Of the mask's words of a step, [key atom][query]; 0: each consumer reads its own from global memory.
  static constexpr int kMaskBytes = kLayout.mask / kQueryStages;
  static constexpr int kDQueryBytes = 64 * kDQueryColumns * 4;  ///< of a warpgroup's share
  static_assert(kState + kLayout.state == shared_memory_bytes(kConfig));
  static_assert(kLayout.key == kItemSlots * KeyTile::kBytes && kLayout.value == ValueTile::kBytes &&
                kLayout.query == kQueryStages * QueryTile::kBytes && kLayout.d_out == kDOutStages * QueryTile::kBytes &&
                kLayout.d_score + kLayout.tile_bias ==
                    (kDScoreStages + (kOwnBiasRing ? kBiasStages : 0)) * PairTile::kBytes &&
                kLayout.d_query == kConsumers * kDQueryBytes &&
                (kMaskBytes == 0 || kMaskBytes == kN / kMaskAtom * kM * 8));
  using State = hopper::State<kItemSlots, kQueryStages, kDOutStages, kDScoreStages, kBiasStages, kConsumers>;
  static_assert(sizeof(State) <= kLayout.state);

  /// Where a consumer's scattered keys lie while their rows are loaded, if stages_keys(): what will be its first dS.
  static __device__ __forceinline__ std::int32_t* staged_keys(State& state, int consumer) {
    static_assert(kKeysOfConsumer * 4 <= PairTile::kPanelBytes);
    return reinterpret_cast<std::int32_t*>(reinterpret_cast<unsigned char*>(&state) - kState + kDScore +
                                           consumer * PairTile::kPanelBytes);
  }

  /// By which a buffer of the ring of biases is given back.
  static __device__ __forceinline__ std::uint64_t& bias_empty(State& state, int stage) {
    if constexpr (kOwnBiasRing)
      return state.bias_empty[stage];
    else
      return state.d_score_empty[stage];
  }
};

/// Where the index-th use of a ring of buffers lies: the buffer, and the parity of the round.
template <int kStages>
struct RingPosition {
  int stage;
  std::uint32_t parity;
  explicit __device__ __forceinline__ RingPosition(int index)
      : stage(static_cast<int>(static_cast<unsigned>(index) % kStages)),
        parity(static_cast<unsigned>(index) / kStages & 1u) {}
};

}  // namespace flashdma_bwd::hopper
