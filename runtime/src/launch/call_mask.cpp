// The mask of a call: its shape, and the plan that is made of it.
#include "launch/call_mask.hpp"

#include "arguments.hpp"
#include "launch/call.hpp"

namespace flashdma_bwd {
namespace {

MaskView mask_view(const flashdma_bwd_arguments& a) {
  const flashdma_bwd_pair_tensor& m = a.mask;
  MaskView mask;
  mask.data = m.data;
  mask.encoding = static_cast<MaskEncoding>(m.encoding);
  mask.block_queries = a.mask_block_q;
  mask.block_keys = a.mask_block_k;
  mask.batch = static_cast<int>(m.batch);
  mask.heads = static_cast<int>(m.heads);
  mask.columns = static_cast<int>(m.columns);
  mask.queries = static_cast<int>(a.seqlen_q);
  mask.keys = static_cast<int>(a.seqlen_k);
  mask.stride_batch = m.batch > 1 ? m.stride_batch : 0;
  mask.stride_head = m.heads > 1 ? m.stride_head : 0;
  mask.stride_row = m.rows > 1 ? m.stride_row : 0;
  mask.stride_column = m.columns > 1 ? m.stride_column : 0;
  mask.limits = mask_limits(a);
  return mask;
}

std::size_t finished_plan_bytes(const MaskShape& mask, const flashdma_bwd_arguments& a) {
  switch (mask.layout) {
    case KeyLayout::compacted:
      return compacted_plan_layout(mask.masks(), a.seqlen_k).bytes;
    case KeyLayout::reordered:
      return reordered_plan_layout(mask.masks(), a.seqlen_q, a.seqlen_k).bytes;
    case KeyLayout::natural:
      break;
  }
  return natural_plan_layout(mask.masks(), a.seqlen_q, a.seqlen_k).bytes;
}

}  // namespace

MaskShape mask_shape(const flashdma_bwd_arguments& a) {
  if (a.plan != nullptr) return {true, key_layout_of(a), a.plan->batch, a.plan->heads};
  if (a.mask.data == nullptr) return {};
  return {true, key_layout_of(a), a.mask.batch, a.mask.heads};
}

std::size_t plan_bytes(const MaskShape& mask, const flashdma_bwd_arguments& a) {
  const bool lists = a.plan == nullptr && a.mask.encoding == FLASHDMA_BWD_ENCODING_KEY_LIST;
  return finished_plan_bytes(mask, a) + (lists ? key_list_bits_bytes(mask.masks(), a.seqlen_k) : 0);
}

PlanDevice plan_device(const DeviceTraits& device, bool early_launches) {
  return {static_cast<std::size_t>(device.shared_memory_per_block), early_launches};
}

cudaError_t build_plan(const MaskShape& shape, const flashdma_bwd_arguments& a, const PlanDevice& device,
                       std::byte* memory, cudaStream_t stream, const BesideOrder& beside_order) {
  MaskView mask = mask_view(a);
  if (mask.encoding == MaskEncoding::key_list) {
    auto* bits = reinterpret_cast<std::uint64_t*>(memory + finished_plan_bytes(shape, a));
    if (const cudaError_t error = mark_keys(mask, bits, stream); error != cudaSuccess) return error;
  }
  if (shape.layout == KeyLayout::reordered)
    return reorder_mask(mask, device, a.mask_layout != FLASHDMA_BWD_MASK_REORDERED, memory, stream, beside_order);
  if (shape.layout == KeyLayout::compacted) {
    const CompactedPlanLayout layout = compacted_plan_layout(shape.masks(), a.seqlen_k);
    return compact_mask(mask, reinterpret_cast<std::int32_t*>(memory + layout.counts),
                        reinterpret_cast<std::int32_t*>(memory + layout.keys), stream);
  }
  const NaturalPlanLayout layout = natural_plan_layout(shape.masks(), a.seqlen_q, a.seqlen_k);
  return pack_mask(mask, reinterpret_cast<std::uint64_t*>(memory + layout.words),
                   reinterpret_cast<std::uint8_t*>(memory + layout.classes), stream);
}

}  // namespace flashdma_bwd
