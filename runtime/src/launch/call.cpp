// What a call's kernels are given beside its arguments: the parameters, and the parts of the workspace.
#include "launch/call.hpp"

#include <algorithm>
#include <cmath>
#include <flashdma_bwd/kernel_resources.hpp>

#include "common/fragments.hpp"
#include "common/visibility.hpp"
#include "launch/schedule.hpp"
#include "launch/split.hpp"
#include "launch/workspace_parts.hpp"

namespace flashdma_bwd {
namespace {

/// Fewer items than this for each multiprocessor, and the query heads of a KV head are given to CTAs of their own: one
/// where the order and the pieces of the last items can level how they end, more where nothing does.
constexpr std::int64_t kLevelledItemsPerMultiprocessor = 1;
constexpr std::int64_t kItemsPerMultiprocessor = 4;

/// Where few items are cut into pieces one is taken to be enough for so many multiprocessors.
constexpr std::int64_t kPiecesOfItem = 8;

bool is_deterministic(const flashdma_bwd_arguments& a) {
  return (a.flags & FLASHDMA_BWD_FLAG_DETERMINISTIC) != 0;
}

TensorView view(const flashdma_bwd_tensor& t) {
  return {t.data, t.stride_batch, t.stride_row, t.stride_head};
}

PairView view(const flashdma_bwd_pair_tensor& t, std::int64_t heads) {
  return {t.data, t.batch > 1 ? t.stride_batch : 0, t.heads > 1 ? t.stride_head : 0, t.rows > 1 ? t.stride_row : 0,
          t.columns > 1 ? t.stride_column : 0,
          // Heads that are broadcast by a stride of 0 are one.
          static_cast<int>(t.stride_head == 0 ? heads : heads / std::max<std::int64_t>(t.heads, 1))};
}

/// Whether the last of many items may be split apart from the others. For the gradient of a tile bias a kernel would
/// have to write zeros that items write which are all whole; that of a key bias only has a row of sums for each piece
/// of any item.
bool splits_last_items(const flashdma_bwd_arguments& a, const KernelConfig& config) {
  return a.d_bias.data == nullptr || config.bias == BiasKind::key_vector;
}

/// Query heads of an item: all that share a KV head, unless that leaves multiprocessors idle.
int heads_per_item(const flashdma_bwd_arguments& a, const KernelConfig& config, const MaskShape& mask,
                   std::int64_t ctas_per_head, const DeviceTraits& device) {
  const auto group = static_cast<int>(a.heads / a.heads_kv);
  // Scattered heads of different masks have different keys in a tile.
  if (mask.scattered() && mask.heads > a.heads_kv) return 1;
  const bool levelled = splits_last_items(a, config) && !is_deterministic(a) && !is_packed(a);
  // Where all heads' items together do not fill the multiprocessors they are cut anyway, and the sum of the pieces
  // saves another one over the heads. Items of equal length fill them if there is one for most.
  const bool uneven = a.causal != 0 || a.window_left >= 0 || a.window_right >= 0;
  const bool cut = levelled && (uneven ? 1 : 2) * ctas_per_head * a.batch * a.heads <= device.sm_count;
  const std::int64_t wanted =
      mask.present || cut ? device.sm_count / kPiecesOfItem
                          : (levelled ? kLevelledItemsPerMultiprocessor : kItemsPerMultiprocessor) * device.sm_count;
  for (int heads = group; heads > 1; --heads)
    if (group % heads == 0 && ctas_per_head * a.batch * (a.heads / heads) >= wanted) return heads;
  return 1;
}

void describe_problem(BackwardParameters& p, const flashdma_bwd_arguments& a) {
  p.batch = static_cast<int>(a.batch);
  p.heads = static_cast<int>(a.heads);
  p.heads_kv = static_cast<int>(a.heads_kv);
  p.head_dim = a.head_dim;
  p.seqlen_q = static_cast<int>(a.seqlen_q);
  p.seqlen_k = static_cast<int>(a.seqlen_k);
  p.cu_seqlens_q = a.cu_seqlens_q;
  p.cu_seqlens_k = a.cu_seqlens_k;
  p.scale = a.scale != 0 ? a.scale : 1.0f / std::sqrt(static_cast<float>(a.head_dim));
  p.softcap = a.softcap;
  if (p.softcap != 0) p.scale_by_softcap = p.scale / p.softcap;
  p.score_log2 = (p.softcap != 0 ? p.softcap : p.scale) * kLog2E;
  p.data_type = a.data_type == FLASHDMA_BWD_BF16 ? DataType::bf16 : DataType::fp16;

  p.delta_from_lengths = a.global_seqlen_q == 0 && a.global_seqlen_k == 0;
  p.position_delta = a.query_offset - a.key_offset;
  if (!p.delta_from_lengths)
    p.position_delta += (a.global_seqlen_k != 0 ? a.global_seqlen_k : a.seqlen_k) -
                        (a.global_seqlen_q != 0 ? a.global_seqlen_q : a.seqlen_q);
  const auto window = [](std::int64_t size) { return size < 0 ? kNoWindow : std::min(size, kNoWindow / 2); };
  p.window_left = window(a.window_left);
  p.window_right = a.causal != 0 ? 0 : window(a.window_right);

  p.q = view(a.q);
  p.k = view(a.k);
  p.v = view(a.v);
  p.out = view(a.out);
  p.d_out = view(a.d_out);
  p.d_q = view(a.d_q);
  p.d_k = view(a.d_k);
  p.d_v = view(a.d_v);
  p.lse = a.lse;
  p.lse_stride_batch = a.lse_stride_batch;
  p.lse_stride_head = a.lse_stride_head;
  p.lse_stride_row = a.lse_stride_row;
  p.lse_base_two = a.lse_base_two != 0;

  p.bias = view(a.bias, a.heads);
  p.bias_is_float = a.bias.data_type == FLASHDMA_BWD_FP32;
  p.bias_pairs_aligned = p.bias.stride_column == 1 && p.bias.stride_batch % 2 == 0 && p.bias.stride_head % 2 == 0 &&
                         p.bias.stride_row % 2 == 0 && reinterpret_cast<std::uintptr_t>(p.bias.data) % 4 == 0;
}

/// What follows from the kernel and the GPU.
void describe_kernel(BackwardParameters& p, const KernelConfig& config, const DeviceTraits& device) {
  const TileConfig& tile = config.tile;
  // Whoever runs this architecture's machine code runs the side kernels' as well, which wait.
  p.early_launches = config.architecture == Architecture::sm90;
  p.block_m = tile.block_m;
  p.block_n = tile.block_n;
  p.leaves_out_halves = tile.skip_empty_halves;
  p.running = std::max(device.sm_count * blocks_per_multiprocessor(config, device) / blocks_per_item(tile), 1);
  p.overhead = overhead_in_steps(tile.block_m, tile.block_n, config.head_dim);
  if (p.softcap != 0) {
    const double quotient = double{p.scale} / double{p.softcap};
    p.tanh_up_to_sixth = tanh_up_to_sixth(quotient, double{tanh_scale(config)});
    p.tanh_up_to_third = tanh_up_to_third(quotient, double{tanh_scale(config)});
  }
}

/// How many tiles, and items, a call has.
void describe_items(BackwardParameters& p, const flashdma_bwd_arguments& a, const KernelConfig& config,
                    const MaskShape& mask, const DeviceTraits& device) {
  const TileConfig& tile = config.tile;
  p.key_tiles = static_cast<int>((a.seqlen_k + tile.block_n - 1) / tile.block_n);
  p.query_tiles = static_cast<int>((a.seqlen_q + tile.block_m - 1) / tile.block_m);
  p.heads_per_item = heads_per_item(a, config, mask, p.key_tiles * blocks_per_item(tile), device);
  p.items = static_cast<int>(p.key_tiles * a.batch * (a.heads / p.heads_per_item));
}

/// Whether every element of a tile bias's gradient belongs to one pair.
bool one_pair_each(const flashdma_bwd_arguments& a) {
  const flashdma_bwd_pair_tensor& t = a.d_bias;
  return t.batch == a.batch && t.heads == a.heads && t.rows == a.seqlen_q && t.columns == a.seqlen_k;
}

/// Whether dQ is computed of a tile bias's gradient, behind the main kernel. A mask would have it read all of what no
/// pair is in.
bool multiplies_bias_gradient(const flashdma_bwd_arguments& a, const KernelConfig& config, const MaskShape& mask) {
  return multiplies_bias_gradient(config) && a.d_bias.data != nullptr && a.d_bias.data_type == a.data_type &&
         one_pair_each(a) && !mask.present;
}

/// The work table, and the room for the pieces of split items, where any may be split.
void lay_out_pieces(Call& call, WorkspaceParts& workspace, const flashdma_bwd_arguments& a, const KernelConfig& config,
                    int asked_for) {
  BackwardParameters& p = call.parameters;
  p.ctas = p.whole_items = p.items;
  const Split split = split_items(p, {.masked = call.mask.present,
                                      .last_pieces = splits_last_items(a, config),
                                      .deterministic = is_deterministic(a),
                                      .piece_steps = asked_for});
  p.order = split.order;
  p.backward_walks = split.backward_walks;
  if (split.slots == 0) return;
  p.piece_steps = split.piece_steps;
  p.piece_slots = static_cast<int>(split.slots);
  p.whole_items = split.whole_items;
  p.ctas = static_cast<int>(split.whole_items + split.entries);
  // Where sums may come in any order, pieces add to one row.
  p.bias_pieces = is_deterministic(a) ? split.most_pieces : 1;
  p.work = workspace.take<WorkItem>(split.entries);
  p.item_steps = workspace.take<std::int32_t>(p.items - p.whole_items);
  p.piece_arrivals = workspace.take<std::int32_t>(split.slots * kPieceParts);
  p.piece_sums = workspace.take<float>(split.slots * 2 * config.tile.block_n * config.head_dim);
  p.slot_entries = workspace.take<std::int32_t>(later_slots(p));
}

/// dBias: written by the kernel where every element belongs to one pair, else reduced from float32 scratch.
void lay_out_bias_gradient(Call& call, WorkspaceParts& workspace, const flashdma_bwd_arguments& a,
                           const KernelConfig& config) {
  BackwardParameters& p = call.parameters;
  const flashdma_bwd_pair_tensor& t = a.d_bias;
  if (t.data == nullptr || a.bias.data == nullptr) return;
  const BiasGradientOutput& output = call.bias_output = bias_gradient_output(a);
  if (config.bias == BiasKind::key_vector) {
    call.bias_scratch_shape = {a.batch, a.heads, p.bias_pieces, a.seqlen_k};
    call.bias_scratch = p.d_bias_rows = workspace.take<float>(call.bias_scratch_shape.size());
    return;
  }
  const PairShape pairs{a.batch, a.heads, a.seqlen_q, a.seqlen_k};
  if (one_pair_each(a)) {
    p.bias_gradient = output.is_float ? BiasGradient::store_float : BiasGradient::store_16bit;
    p.d_bias = view(t, a.heads);
    return;
  }
  // Several pairs share an element. In deterministic mode each keeps its own float32 until they are added in order.
  call.bias_scratch_shape = is_deterministic(a) ? pairs : output.shape;
  call.bias_scratch = workspace.take<float>(call.bias_scratch_shape.size());
  p.bias_gradient = is_deterministic(a) ? BiasGradient::store_float : BiasGradient::accumulate;
  const PairShape& s = call.bias_scratch_shape;
  p.d_bias.data = call.bias_scratch;
  p.d_bias.stride_batch = s.batch > 1 ? s.heads * s.rows * s.columns : 0;
  p.d_bias.stride_head = s.heads > 1 ? s.rows * s.columns : 0;
  p.d_bias.stride_row = s.rows > 1 ? s.columns : 0;
  p.d_bias.stride_column = s.columns > 1 ? 1 : 0;
  p.d_bias.heads_per_head = static_cast<int>(a.heads / s.heads);
}

/// Where items have some of a KV head's query heads only: dK and dV of each item's.
void lay_out_head_sums(BackwardParameters& p, WorkspaceParts& workspace, const flashdma_bwd_arguments& a) {
  const std::int64_t head_items = a.heads / p.heads_per_item;
  if (head_items == a.heads_kv) return;
  p.d_k_partial = workspace.take<float>(head_items * p.key_rows * a.head_dim);
  p.d_v_partial = workspace.take<float>(head_items * p.key_rows * a.head_dim);
}

void lay_out_reordered_mask(Call& call, WorkspaceParts& workspace, const flashdma_bwd_arguments& a) {
  BackwardParameters& p = call.parameters;
  const ReorderedPlan plan = reordered_plan(call.plan, call.mask.masks(), a.seqlen_q, a.seqlen_k);
  p.mask_words = plan.words;
  p.mask_classes = plan.classes;
  p.key_orders = plan.orders;
  p.key_ranges = plan.ranges;
  p.active_keys = plan.keys;
  if (is_packed(a)) {
    call.unclipped_keys = plan.keys;
    p.active_keys = workspace.take<std::int32_t>(a.batch * call.mask.heads * a.seqlen_k);
    p.active_batch_stride = static_cast<int>(call.mask.heads);
  } else {
    p.key_ends = plan.intervals.ends;
  }
}

/// Whether the plan masks just what the call's limits hide. Those of packed sequences differ by sequence, and a
/// compacted plan holds its keys whatever they are.
bool limits_in_mask(const flashdma_bwd_arguments& a, KeyLayout layout) {
  if (is_packed(a) || layout == KeyLayout::compacted) return false;
  const Limits limits = mask_limits(a);
  return a.plan == nullptr || (a.plan->lowest_offset == limits.low && a.plan->highest_offset == limits.high);
}

/// `in_turns`: items add to dQ in the order of their keys.
void lay_out_mask(Call& call, WorkspaceParts& workspace, const flashdma_bwd_arguments& a, bool in_turns) {
  BackwardParameters& p = call.parameters;
  const MaskShape& mask = call.mask;
  if (mask.present) {
    call.plan = a.plan != nullptr ? static_cast<std::byte*>(a.plan->memory)
                                  : workspace.take<std::byte>(static_cast<std::int64_t>(plan_bytes(mask, a)));
    p.mask_heads_per_head = static_cast<int>(a.heads / mask.heads);
    p.list_heads = static_cast<int>(mask.heads);
    p.compact_batch_stride = mask.batch > 1 ? static_cast<int>(mask.heads) : 0;
    p.active_batch_stride = p.compact_batch_stride;
    p.query_atoms = mask_atoms(a.seqlen_q);
    p.mask_head_stride = std::int64_t{p.query_atoms} * mask_atoms(a.seqlen_k);
    p.mask_batch_stride = mask.batch > 1 ? mask.heads * p.mask_head_stride : 0;
    p.limits_in_mask = limits_in_mask(a, mask.layout);
    if (mask.layout == KeyLayout::reordered) {
      lay_out_reordered_mask(call, workspace, a);
    } else if (mask.layout == KeyLayout::compacted) {
      const CompactedPlanLayout layout = compacted_plan_layout(mask.masks(), a.seqlen_k);
      p.active_counts = reinterpret_cast<std::int32_t*>(call.plan + layout.counts);
      p.active_keys = reinterpret_cast<std::int32_t*>(call.plan + layout.keys);
    } else {
      const NaturalPlanLayout layout = natural_plan_layout(mask.masks(), a.seqlen_q, a.seqlen_k);
      p.mask_words = reinterpret_cast<std::uint64_t*>(call.plan + layout.words);
      p.mask_classes = reinterpret_cast<std::uint8_t*>(call.plan + layout.classes);
    }
  }
  p.list_heads_per_head = static_cast<int>(a.heads / p.list_heads);
  if ((mask.present && mask.layout != KeyLayout::compacted) || in_turns) {
    const std::int64_t lists = a.batch * p.list_heads * p.key_tiles;
    p.list_counts = workspace.take<std::int32_t>(lists);
    if (!in_turns) p.list_times = workspace.take<std::int32_t>(lists);
    p.list_entries = workspace.take<std::uint32_t>(lists * p.query_tiles);
    if (in_turns) p.list_ranks = workspace.take<std::int32_t>(lists * p.query_tiles);
  }
}

}  // namespace

BiasGradientOutput bias_gradient_output(const flashdma_bwd_arguments& a) {
  const flashdma_bwd_pair_tensor& t = a.d_bias;
  BiasGradientOutput output;
  output.data = t.data;
  output.is_float = t.data_type == FLASHDMA_BWD_FP32;
  output.shape = {t.batch, t.heads, t.rows, t.columns};
  output.stride_batch = t.stride_batch;
  output.stride_head = t.stride_head;
  output.stride_row = t.stride_row;
  output.stride_column = t.stride_column;
  return output;
}

Limits mask_limits(const flashdma_bwd_arguments& arguments) {
  if (is_packed(arguments)) return {};
  BackwardParameters p;
  describe_problem(p, arguments);
  SequenceRows sequence;
  sequence.length_q = p.seqlen_q;
  sequence.length_k = p.seqlen_k;
  return limits_of(p, sequence);
}

Call lay_out(const flashdma_bwd_arguments& a, const KernelConfig& config, const DeviceTraits& device, int piece_steps,
             void* memory) {
  Call call;
  WorkspaceParts workspace(memory);
  BackwardParameters& p = call.parameters;
  describe_problem(p, a);
  call.mask = mask_shape(a);
  describe_kernel(p, config, device);
  describe_items(p, a, config, call.mask, device);
  p.scratch_rows =
      is_packed(a) ? padded_rows(a.total_q + a.batch * kScratchRowAlignment) : a.batch * padded_rows(a.seqlen_q);
  p.packed_rows_q = is_packed(a) ? a.total_q : 0;
  p.key_rows = is_packed(a) ? a.total_k : a.batch * a.seqlen_k;
  if (has_statistic_terms(config)) {
    p.statistic_terms = workspace.take<StatisticTerms>(a.heads * p.scratch_rows);
  } else {
    p.lse_log2 = workspace.take<float>(a.heads * p.scratch_rows);
    p.row_dot = workspace.take<float>(a.heads * p.scratch_rows);
  }
  const bool adds_d_query = !multiplies_bias_gradient(a, config, call.mask);
  const bool in_turns = adds_d_query && is_deterministic(a);
  if (adds_d_query) p.d_q_scratch = workspace.take<float>(a.heads * p.scratch_rows * config.head_dim);
  p.d_q_vectorised = config.architecture == Architecture::sm90;
  lay_out_mask(call, workspace, a, in_turns);
  lay_out_pieces(call, workspace, a, config, piece_steps);
  if (in_turns || config.tile.several_items) p.ticket = workspace.take<std::int32_t>(1);

  // Items of scattered keys write active keys only, which the reduction knows where there are key_ends.
  const bool cleared = call.mask.scattered() && p.key_ends == nullptr;
  if (!cleared) lay_out_head_sums(p, workspace, a);
  call.cleared_begin = workspace.used();
  if (cleared) lay_out_head_sums(p, workspace, a);
  lay_out_bias_gradient(call, workspace, a, config);
  if (in_turns)
    p.d_q_turns =
        workspace.take<std::int32_t>(a.heads * p.scratch_rows / (config.tile.cta_pair ? kPairTurnRows : kTurnRows));
  call.cleared_end = workspace.used();
  if (a.schedule != nullptr) {
    WorkspaceParts parts(a.schedule->memory);
    take_schedule(p, parts);
    call.scheduled = true;
  }
  prepare_items(p);
  call.bytes = std::max(workspace.used(), kWorkspaceAlignment);
  return call;
}

}  // namespace flashdma_bwd
