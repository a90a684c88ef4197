// One backward pass as a chain of kernels, and the building of a plan and of a schedule.
#include "launch/launch.hpp"

#include <atomic>
#include <chrono>
#include <flashdma_bwd/kernel_resources.hpp>

#include "common/side_kernels.hpp"
#include "launch/call.hpp"
#include "launch/call_mask.hpp"
#include "launch/chain.hpp"
#include "launch/schedule.hpp"
#include "number_hash.hpp"
#include "plan/mask_plan.hpp"

namespace flashdma_bwd {
namespace {

std::int32_t public_layout(KeyLayout layout) {
  return layout == KeyLayout::compacted   ? FLASHDMA_BWD_LAYOUT_COMPACTED
         : layout == KeyLayout::reordered ? FLASHDMA_BWD_LAYOUT_REORDERED
                                          : FLASHDMA_BWD_LAYOUT_NATURAL;
}

/// Whether the main kernel stores a tile bias's gradient itself, and leaves elements of it as they are.
bool leaves_bias_gradient(const Call& call, const KernelConfig& config) {
  const BackwardParameters& p = call.parameters;
  if (call.bias_output.data == nullptr || call.bias_scratch != nullptr) return false;
  // Without a work table a CTA that copies clears where no step goes.
  return !copies_bias(config.tile.family, config.bias) || p.work != nullptr || p.items == 0 ||
         p.bias_gradient != BiasGradient::store_16bit;
}

/// Tells one building of a plan from all others, of other processes and other copies of the library, too.
std::uint64_t next_building() {
  static std::atomic<std::uint64_t> buildings{0};
  static const auto start = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  return number_hash({start, reinterpret_cast<std::uintptr_t>(&buildings), ++buildings});
}

/// What need not be cleared then.
StoredTiles stored_tiles(const Call& call, const flashdma_bwd_arguments& a, const KernelConfig& config) {
  const BackwardParameters& p = call.parameters;
  const bool by_limits = !call.mask.present && !is_packed(a) && p.list_entries == nullptr && p.items > 0;
  if (!by_limits || !copies_bias(config.tile.family, config.bias)) return {};
  return {mask_limits(a), config.tile.block_m, config.tile.block_n};
}

/// Whether D and the zeros of dQ, which need no plan, are made beside the kernel that orders the keys of the plan that
/// the call builds, which has a multiprocessor for each mask and takes as long as they do.
bool preprocesses_beside_plan(const Call& call, const flashdma_bwd_arguments& a) {
  // Of fewer elements of dQ they take no longer than the work table, beside which they are made else.
  constexpr std::int64_t kFewestElements = 8 << 20;
  const BackwardParameters& p = call.parameters;
  return a.plan == nullptr && call.mask.layout == KeyLayout::reordered && p.early_launches && call.mask.masks() > 0 &&
         a.seqlen_k > 0 && a.heads * p.scratch_rows * a.head_dim >= kFewestElements;
}

}  // namespace

std::size_t backward_workspace_bytes(const flashdma_bwd_arguments& arguments, const KernelConfig& config,
                                     const DeviceTraits& device, int piece_steps) {
  return lay_out(arguments, config, device, piece_steps, nullptr).bytes;
}

LaunchResult launch_backward(const flashdma_bwd_arguments& arguments, const KernelEntry& kernel,
                             const DeviceTraits& device, int piece_steps, void* workspace, cudaStream_t stream) {
  const Call call = lay_out(arguments, kernel.config, device, piece_steps, workspace);
  const BackwardParameters& p = call.parameters;
  const TileConfig& tile = kernel.config.tile;
  Chain chain;
  if (call.cleared_end > call.cleared_begin)
    chain.run("cudaMemsetAsync of the workspace",
              cudaMemsetAsync(static_cast<std::byte*>(workspace) + call.cleared_begin, 0,
                              call.cleared_end - call.cleared_begin, stream));
  const int head_dim = kernel.config.head_dim;
  const bool beside_plan = preprocesses_beside_plan(call, arguments);
  const auto preprocess_rows = [&] { return preprocess(p, head_dim, PreprocessPart::rows, true, stream); };
  if (chain.ok() && call.mask.present && arguments.plan == nullptr)
    chain.run("mask plan kernel", build_plan(call.mask, arguments, plan_device(device, p.early_launches), call.plan,
                                             stream, beside_plan ? BesideOrder(preprocess_rows) : BesideOrder()));
  if (chain.ok() && call.unclipped_keys != nullptr)
    chain.run("kernel that clips the keys",
              clip_keys(p, call.unclipped_keys, const_cast<std::int32_t*>(p.active_keys), stream));
  const bool lists = p.list_entries != nullptr && p.items > 0 && !call.scheduled;
  if (chain.ok() && lists) chain.run("tile list kernel", build_tile_lists(p, tile.block_m, tile.block_n, stream));
  // Ranks are made by a kernel behind that of the lists.
  const bool after_lists = lists && p.list_ranks == nullptr;
  const PreprocessPart part = call.scheduled ? PreprocessPart::rows
                              : beside_plan  ? PreprocessPart::table
                                             : PreprocessPart::all;
  if (chain.ok()) chain.run("preprocess kernel", preprocess(p, head_dim, part, after_lists, stream));
  if (chain.ok() && is_packed(arguments))
    chain.run("kernel that clears the packed tails",
              clear_packed_tails(p, arguments.total_q, arguments.total_k, stream));
  if (chain.ok() && call.mask.scattered() && p.d_k_partial == nullptr)
    chain.run("kernel that clears dK and dV", clear_d_key_value(p, stream));
  if (chain.ok() && leaves_bias_gradient(call, kernel.config))
    chain.run("kernel that clears dBias",
              clear_bias_gradient(call.bias_output, stored_tiles(call, arguments, kernel.config), stream));
  if (chain.ok() && p.items > 0) chain.run("main kernel", kernel.launch(p, stream));
  // The short ones first: they are done under the conversion, which is bound by memory.
  const unsigned enqueued = enqueued_kernels;
  const auto first = [&] { return enqueued_kernels == enqueued; };
  if (chain.ok() && call.bias_scratch != nullptr)
    chain.run("dBias reduction kernel",
              reduce_bias_gradient(call.bias_scratch, call.bias_scratch_shape, call.bias_output, p, first(), stream));
  if (chain.ok() && p.d_k_partial != nullptr)
    chain.run("dK and dV reduction kernel", reduce_d_key_value(p, first(), stream));
  if (chain.ok()) chain.run("gradient conversion kernel", convert_gradients(p, head_dim, first(), stream));
  return chain.result();
}

LaunchResult launch_without_rows(const flashdma_bwd_arguments& arguments, cudaStream_t stream) {
  Chain chain;
  if (arguments.bias.data != nullptr && arguments.d_bias.data != nullptr)
    chain.run("kernel that clears dBias", clear_bias_gradient(bias_gradient_output(arguments), {}, stream));
  return chain.result();
}

LaunchResult prepare_backward(const flashdma_bwd_arguments&, const KernelEntry& kernel) {
  Chain chain;
  chain.run("cudaFuncSetAttribute of the main kernel", kernel.prepare());
  if (chain.ok()) chain.run("loading of the side kernels", load_side_kernels());
  if (chain.ok()) chain.run("loading of the plan kernels", load_plan_kernels());
  return chain.result();
}

std::size_t mask_plan_bytes(const flashdma_bwd_arguments& arguments) {
  return plan_bytes(mask_shape(arguments), arguments);
}

LaunchResult build_mask_plan(const flashdma_bwd_arguments& arguments, const DeviceTraits& device, bool early_launches,
                             void* memory, std::size_t bytes, cudaStream_t stream, flashdma_bwd_mask_plan* plan) {
  const MaskShape shape = mask_shape(arguments);
  Chain chain;
  chain.run("mask plan kernel",
            build_plan(shape, arguments, plan_device(device, early_launches), static_cast<std::byte*>(memory), stream));
  if (!chain.ok()) return chain.result();
  *plan = {};
  plan->struct_size = sizeof(flashdma_bwd_mask_plan);
  plan->layout = public_layout(shape.layout);
  plan->batch = shape.batch;
  plan->heads = shape.heads;
  plan->seqlen_q = arguments.seqlen_q;
  plan->seqlen_k = arguments.seqlen_k;
  plan->memory = memory;
  plan->bytes = bytes;
  // A compacted plan holds its keys whatever the limits.
  const Limits limits = shape.layout == KeyLayout::compacted ? Limits() : mask_limits(arguments);
  plan->lowest_offset = limits.low;
  plan->highest_offset = limits.high;
  plan->building = next_building();
  return chain.result();
}

ScheduleShape schedule_shape(const flashdma_bwd_arguments& arguments, const KernelConfig& config,
                             const DeviceTraits& device, int piece_steps) {
  BackwardParameters p = lay_out(arguments, config, device, piece_steps, nullptr).parameters;
  WorkspaceParts parts(nullptr);
  take_schedule(p, parts);
  return {parts.used(), schedule_hash(p)};
}

LaunchResult build_schedule(const flashdma_bwd_arguments& arguments, const KernelConfig& config,
                            const DeviceTraits& device, int piece_steps, void* memory, cudaStream_t stream) {
  // Whoever writes the table asks whether parts of a workspace are there, of which it has none but its own.
  BackwardParameters p = lay_out(arguments, config, device, piece_steps, memory).parameters;
  p.ticket = nullptr;
  WorkspaceParts parts(memory);
  p.piece_arrivals = take_schedule(p, parts);
  Chain chain;
  const bool lists = p.list_entries != nullptr;
  if (lists) chain.run("tile list kernel", build_tile_lists(p, config.tile.block_m, config.tile.block_n, stream));
  // Beside another kernel it would write to what an earlier call may still read.
  if (chain.ok()) chain.run("work table kernel", preprocess(p, config.head_dim, PreprocessPart::table, lists, stream));
  return chain.result();
}

}  // namespace flashdma_bwd
