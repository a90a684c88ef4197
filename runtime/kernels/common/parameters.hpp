// The arguments of the device code: one plain block that the host fills once a call and every kernel of the chain
// reads.
//
// Strides and offsets are in elements. Sizes named *_rows count rows of scratch, padded so that each sequence starts at
// a multiple of kScratchRowAlignment.
#pragma once

#include <cstdint>
#include <flashdma_bwd/kernel_table.hpp>
#include <limits>

#include "common/divisor.hpp"
#include "common/item_order.hpp"
#include "common/pieces.hpp"
#include "common/statistic_terms.hpp"
#include "common/tanh_polynomial.hpp"

namespace flashdma_bwd {

/// Each sequence's rows of dQ, LSE and D scratch start at a multiple of this: the largest block_m.
inline constexpr int kScratchRowAlignment = 128;

/// Rows of dQ scratch to a turn counter in deterministic mode: each consumer warpgroup that adds to a tile has its own,
/// two at most to 64 rows, or four where two CTAs share them.
inline constexpr int kTurnRows = 32;
inline constexpr int kPairTurnRows = 16;

/// log2(e): the kernels' exponentials are powers of two.
inline constexpr float kLog2E = 1.4426950408889634f;

/// Queries and keys of one mask atom: the unit in which masks are classified.
inline constexpr int kMaskAtom = 64;

/// Limits on positions saturate here, so that sums of a position and an offset stay in 32 bits.
inline constexpr std::int32_t kUnlimited = 1 << 30;
/// A window without a limit.
inline constexpr std::int64_t kNoWindow = std::numeric_limits<std::int64_t>::max();
/// Sequences are shorter than this; positions past the end of the keys lie at kPastEnd, above every limit.
inline constexpr std::int32_t kPastEnd = 0x7fffffff;

/// A 16-bit tensor [batch, row, head, column], see flashdma_bwd_tensor.
struct TensorView {
  void* data = nullptr;
  std::int64_t stride_batch = 0;
  std::int64_t stride_row = 0;
  std::int64_t stride_head = 0;
};

/// A tensor over (batch, head, query, key), see flashdma_bwd_pair_tensor. Strides of broadcast dimensions are 0 and a
/// query head divided by `heads_per_head` is the tensor's head.
struct PairView {
  void* data = nullptr;
  std::int64_t stride_batch = 0;
  std::int64_t stride_head = 0;
  std::int64_t stride_row = 0;
  std::int64_t stride_column = 0;
  int heads_per_head = 1;
};

/// The order of a mask's keys in a reordered plan. The C header promises this to callers as flashdma_bwd_key_order.
struct KeyOrder {
  std::int32_t keys;           ///< how many are in it
  std::int32_t natural;        ///< 1: their own order, with all keys
  std::int32_t natural_tiles;  ///< tiles of 64 queries x 128 keys with an active pair in the keys' own order
  std::int32_t ordered_tiles;  ///< from the first to the last active queries of each 128 keys: in the plan's order;
                               ///< natural: in the one that was tried, or, where none was, in any order at least
};

/// The positions that a key atom of a plan's order spans.
struct KeyAtomRange {
  std::int32_t first_position;  ///< the smallest of its keys; without keys above the largest
  std::int32_t last_position;
  std::int32_t
      query_begin;         ///< query atoms [query_begin, query_end) hold all active pairs; without any, query_end is 0
  std::int32_t query_end;  ///< and query_begin lies above
};

/// How dS of a tile bias leaves the main kernel.
enum class BiasGradient : std::uint8_t {
  none,         ///< not wanted
  store_16bit,  ///< each element has one (batch, head, query, key): stored in the problem's type
  store_float,  ///< the same, float32
  accumulate,   ///< float32 atomics: several elements share an address
};

/// What finding an item divides by.
struct ItemDivisors {
  Divisor head_items;      ///< items of a key tile of one sequence
  Divisor heads_per_kv;    ///< query heads that share a KV head
  Divisor heads_per_mask;  ///< mask_heads_per_head
  Divisor heads_per_list;  ///< list_heads_per_head
  Divisor key_tiles;
};

struct BackwardParameters {
  // Problem.
  int batch = 0;
  int heads = 0;
  int heads_kv = 0;
  int head_dim = 0;
  int seqlen_q = 0;                            ///< longest
  int seqlen_k = 0;                            ///< longest
  const std::int32_t* cu_seqlens_q = nullptr;  ///< batch + 1 offsets, or nullptr: fixed length
  const std::int32_t* cu_seqlens_k = nullptr;
  float scale = 0;
  float softcap = 0;
  float scale_by_softcap = 0;  ///< their quotient, with a softcap
  // Of a score, which they multiply by that; times the kernel's tanh_scale().
  TanhPolynomial<2> tanh_up_to_sixth;
  TanhPolynomial<3> tanh_up_to_third;
  float score_log2 = 0;  ///< log2(e) times the softcap, or times the scale where there is none

  // Which pairs are visible: query i sees keys in [i + delta - window_left, i + delta + window_right], where
  // delta = position_delta, plus seqlen_k - seqlen_q of the sequence itself if `delta_from_lengths`.
  std::int64_t position_delta = 0;
  std::int64_t window_left = kNoWindow;
  std::int64_t window_right = kNoWindow;
  bool delta_from_lengths = true;

  // Tensors.
  TensorView q, k, v, out, d_out, d_q, d_k, d_v;
  const float* lse = nullptr;
  std::int64_t lse_stride_batch = 0, lse_stride_head = 0, lse_stride_row = 0;
  bool lse_base_two = false;
  PairView bias;
  bool bias_is_float = false;       ///< key vectors may be float32
  bool bias_pairs_aligned = false;  ///< two neighbouring keys of a tile bias can be read as one 32-bit word
  DataType data_type = DataType::bf16;
  bool early_launches = false;  ///< kernels may be launched before their predecessors are done, see launch_order.cuh

  // Work. An item is a key tile of `heads_per_item` query heads that share a KV head; it may be cut into pieces, see
  // pieces.hpp.
  int key_tiles = 0;       ///< of the longest sequence
  int query_tiles = 0;     ///< of the longest sequence
  int heads_per_item = 1;  ///< a divisor of heads / heads_kv
  int items = 0;           ///< key_tiles * batch * heads / heads_per_item
  ItemOrder order;         ///< in which items are taken
  // Prepared of what is above and of the mask's heads below, see prepare_items().
  ItemPlaces places;  ///< by `order`
  ItemDivisors by;
  int head_items = 1;         ///< groups of heads of a sequence
  int most_grouped_keys = 0;  ///< reordered masks of so many keys at most are taken by groups of heads
  BackwardWalks backward_walks = BackwardWalks::none;
  int whole_items = 0;       ///< the first items, which are taken whole; behind them `work` says what is
  int ctas = 0;              ///< items and pieces that CTAs, or clusters, take: `whole_items` and the length of `work`
  int block_m = 0;           ///< queries of a tile
  int block_n = 0;           ///< keys of a tile
  int running = 1;           ///< CTAs, or clusters, that run at once; the grid where they take several items
  int overhead = 2;          ///< of a CTA, in steps, see overhead_in_steps
  int piece_steps = 0;       ///< steps of a piece at most; 0: the device chooses
  int piece_slots = 0;       ///< room for the pieces of split items
  WorkItem* work = nullptr;  ///< [ctas - whole_items]; nullptr: all items are taken whole
  std::int32_t* item_steps = nullptr;  ///< [items - whole_items]: who writes `work` keeps them here if they are many
  std::int32_t* piece_arrivals = nullptr;  ///< [piece_slots][kPieceParts]: who has come, see piece_arrivals()
  float* piece_sums = nullptr;  ///< [piece_slots][2 block_n bucket]: dK and dV, in the order of their holders; of
                                ///< pieces that are summed later as rows [dK, dV][block_n][head_dim]
  std::int32_t* slot_entries = nullptr;  ///< [later_slots()]: the entry of `work` whose piece is summed later; -1: none

  // Scratch.
  std::int64_t scratch_rows = 0;   ///< rows of one head over all sequences
  std::int64_t packed_rows_q = 0;  ///< of the packed Q; 0 with fixed length
  std::int64_t key_rows = 0;       ///< keys over all sequences
  float* lse_log2 = nullptr;  ///< [heads][scratch_rows]: LSE * log2(e); +inf where the row is empty or past the end
  float* row_dot = nullptr;   ///< [heads][scratch_rows]: D
  StatisticTerms* statistic_terms = nullptr;  ///< [heads][scratch_rows]: both, with has_statistic_terms() instead of
                                              ///< the two above
  float* d_q_scratch = nullptr;  ///< [heads][scratch_rows / 16][bucket / 8] accumulator atoms of 16 x 8, see
                                 ///< fragments.hpp; nullptr: a kernel behind the main one computes dQ of dBias
  bool d_q_vectorised = false;   ///< order within an atom
  float* d_k_partial = nullptr;  ///< [heads / heads_per_item][key_rows][head_dim], or nullptr: dK is written directly
  float* d_v_partial = nullptr;
  float* d_bias_rows = nullptr;  ///< key-vector bias: [batch][heads][bias_pieces][seqlen_k], or nullptr: not wanted
  int bias_pieces = 1;           ///< rows, one for each piece of an item, or one, to which they add
  BiasGradient bias_gradient = BiasGradient::none;  ///< tile bias
  PairView d_bias;                                  ///< tile bias: where dS goes

  // Mask, natural layout; tile lists are per (batch, list head).
  const std::uint64_t* mask_words = nullptr;   ///< [mask batch][mask head][key atom][query atom][64 queries]: bit = key
  const std::uint8_t* mask_classes = nullptr;  ///< [mask batch][mask head][key atom][query atom]: MaskClass
  bool limits_in_mask = false;                 ///< the words mask what causality and windows hide, too
  std::int64_t mask_batch_stride = 0;          ///< in atoms; 0: broadcast
  std::int64_t mask_head_stride = 0;           ///< in atoms
  int mask_heads_per_head = 1;                 ///< query heads that share a mask head
  int query_atoms = 0;
  const std::uint32_t* list_entries =
      nullptr;  ///< [batch][list heads][key tile][query_tiles]: list_entry()s, which ascend; nullptr: no lists
  const std::int32_t* list_counts = nullptr;  ///< [batch][list heads][key tile]
  const std::int32_t* list_times =
      nullptr;  ///< the same: what the tiles take, see time_of_step(); nullptr: all as long. Not in deterministic mode
  bool leaves_out_halves = false;  ///< the main kernel leaves out halves of steps without an active pair
  const std::int32_t* list_ranks =
      nullptr;  ///< [batch][list heads][key tile][query tile]: number of earlier key tiles in it; deterministic mode
  int list_heads = 1;
  int list_heads_per_head = 1;  ///< query heads that share a list

  // Mask, compacted and reordered layouts.
  const std::int32_t* active_keys = nullptr;    ///< [mask batch][mask head][seqlen_k]; nullptr: natural
  const std::int32_t* active_counts = nullptr;  ///< compacted, whose keys ascend: [mask batch][mask head]
  int compact_batch_stride = 0;                 ///< in mask heads; 0: broadcast
  const KeyOrder* key_orders = nullptr;         ///< reordered: [mask batch][mask head]
  const KeyAtomRange* key_ranges = nullptr;     ///< reordered: [mask batch][mask head][key atom]
  const std::int32_t* key_ends = nullptr;  ///< reordered: [mask batch][mask head][seqlen_k], 0: never active, so that
                                           ///< no item writes the key; nullptr with packed sequences
  int active_batch_stride = 0;             ///< of active_keys, in mask heads; not that of the mask where each
                                           ///< sequence of a packed batch has its own, clipped to its length

  // Deterministic mode.
  std::int32_t* d_q_turns = nullptr;  ///< [heads][scratch_rows / kTurnRows or kPairTurnRows]: whose turn it is to add
                                      ///< to a query tile; nullptr: any order

  /// The next CTA's item or piece, where CTAs take several, or must start in order in deterministic mode; or nullptr.
  std::int32_t* ticket = nullptr;
};

/// Slots at most of pieces that are summed later: all of these run at once.
FLASHDMA_HOST_DEVICE inline int later_slots(const BackwardParameters& p) {
  if (p.d_k_partial != nullptr || p.whole_items > 0) return 0;
  return p.piece_slots < p.running ? p.piece_slots : p.running;
}

/// Prepares what finding an item needs, when all else is there.
inline void prepare_items(BackwardParameters& p) {
  const auto at_least_one = [](int number) { return number > 0 ? number : 1; };
  const int key_tiles = at_least_one(p.key_tiles);
  const int groups = at_least_one(p.items / key_tiles);
  p.places = ItemPlaces(key_tiles, groups, p.order);
  p.head_items = at_least_one(p.heads / p.heads_per_item);
  p.by.head_items = Divisor(p.head_items);
  p.by.heads_per_kv = Divisor(at_least_one(p.heads / at_least_one(p.heads_kv)));
  p.by.heads_per_mask = Divisor(p.mask_heads_per_head);
  p.by.heads_per_list = Divisor(p.list_heads_per_head);
  p.by.key_tiles = Divisor(key_tiles);
  p.most_grouped_keys = p.running / groups * p.block_n;
}

}  // namespace flashdma_bwd
