// Loading rows of K or V that a compacted mask scatters, which the copy engine cannot.
#pragma once

#include "common/item.cuh"
#include "common/ptx.cuh"
#include "hopper/geometry.cuh"
#include "hopper/ptx.cuh"

namespace flashdma_bwd::hopper {

/// Whether scattered keys are brought to shared memory while the item is found, where all CTAs know theirs beforehand:
/// read behind that they come a microsecond later.
template <KernelConfig kConfig>
__device__ __forceinline__ bool stages_keys(const BackwardParameters& p) {
  return !kConfig.tile.several_items && kConfig.bias != BiasKind::tile && p.ticket == nullptr;
}

/// Copies the keys that a mask's order has for the tile of the index-th CTA, if it has any, to
/// Geometry::staged_keys(). One warp.
template <KernelConfig kConfig>
__device__ __forceinline__ void stage_keys(const BackwardParameters& p, typename Geometry<kConfig>::State& state,
                                           int index) {
  using G = Geometry<kConfig>;
  if (p.active_keys == nullptr) return;
  ItemPlace place;
  if (index < p.whole_items) {
    place = place_of_item(p, index, stays_grouped(p));
  } else {
    const WorkItem work = work_item(p, index - p.whole_items);
    if (work.item < 0) return;
    place = {work.key_tile, work.group};
  }
  const int batch = p.by.head_items.quotient(place.group);
  const int head = (place.group - batch * p.head_items) * p.heads_per_item;
  const int first_key = place.key_tile * G::kN;
  const std::int32_t* const keys = listed_keys(p, batch, p.by.heads_per_mask.quotient(head)) + first_key;
  const int count = min(G::kN, p.seqlen_k - first_key);
  const auto lane = static_cast<int>(threadIdx.x % 32);
  std::int32_t own[G::kN / 32];
#pragma unroll
  for (int i = 0; i < G::kN / 32; ++i) own[i] = lane + i * 32 < count ? keys[lane + i * 32] : kPastEnd;
#pragma unroll
  for (int i = 0; i < G::kN / 32; ++i) {
    const int row = lane + i * 32;
    G::staged_keys(state, row / G::kKeysOfConsumer)[row % G::kKeysOfConsumer] = own[i];
  }
}

/// Starts to load rows `first_row` on of the item, columns `first_column` on, into rows `tile_row` on of a tile at
/// `address`; zeros past the keys' end and past the head dim. kThreads threads, of which this is the `thread`-th.
/// `staged`: these rows' keys, where they have been brought to shared memory.
template <class Tile, int kThreads, int kRows = Tile::kRows>
__device__ __forceinline__ void gather_key_rows(const BackwardParameters& p, const KeyItem& item,
                                                const TensorView& tensor, int first_row, int first_column,
                                                std::uint32_t address, int tile_row = 0,
                                                int thread = static_cast<int>(threadIdx.x),
                                                const std::int32_t* staged = nullptr) {
  constexpr int kChunks = Tile::kColumns / 8;
  const std::uint16_t* const rows = key_row_address(p, item, tensor, 0);
  const std::int64_t stride = tensor.stride_row;
  const std::int32_t* const active = staged != nullptr ? staged - first_row : item.active;
  const int keys = item.keys;
  const int columns = p.head_dim;
  const auto key_of = [&](int index) {
    const int row = first_row + index / kChunks;
    return row < keys ? active[row] : kPastEnd;
  };
  // A key is read before the copy for the one before it is issued, which it would wait for else. All of a thread's at
  // once, in an array, are as fast here, but ptxas then orders the consumers' loops otherwise (NOTES.md).
  int next = key_of(thread);
#pragma unroll 8
  for (int index = thread; index < kRows * kChunks; index += kThreads) {
    const int key = next;
    next = key_of(index + kThreads);
    const int row = index / kChunks;
    const int chunk = index % kChunks;
    const int column = first_column + chunk * 8;
    const bool inside = key != kPastEnd && column < columns;
    ptx::cp_async_16(address + Tile::chunk_offset(tile_row + row, chunk), inside ? rows + key * stride + column : rows,
                     inside);
  }
}

/// Waits until the thread's rows are there, for wgmma, too.
__device__ __forceinline__ void finish_gathering() {
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<0>();
  ptx::fence_proxy_async();
}

}  // namespace flashdma_bwd::hopper
