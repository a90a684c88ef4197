// What leaves with an item: dK or dV of a warpgroup's 64 keys, and the sums of dS that are a key bias's gradient.
#pragma once

#include "common/item.cuh"
#include "common/key_bias_sum.cuh"
#include "common/numeric.cuh"
#include "hopper/consumer_warp.cuh"
#include "hopper/ptx.cuh"
#include "hopper/tensor_maps.hpp"

namespace flashdma_bwd::hopper {

/// float32 rows, which are added up later. `first_row`: of the item, the warp's first of 16.
template <int kHalf>
__device__ __forceinline__ void write_float_rows(const BackwardParameters& p, const KeyItem& item, bool value,
                                                 const float (&values)[kHalf], int first_row) {
  const int lane = ptx::fresh_thread_index() % 32;
  float* rows = float_rows(p, item, value);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int index = float_row(item, first_row + lane / 4 + half * 8);
    if (index == kPastEnd) continue;
    float* row = rows + static_cast<std::int64_t>(index) * p.head_dim + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kHalf / 4; ++j)
      if (j * 8 < p.head_dim)
        *reinterpret_cast<float2*>(row + j * 8) = {values[j * 4 + half * 2], values[j * 4 + half * 2 + 1]};
  }
}

/// Starts to store dK or dV of an item whose keys are neighbours, from its row `first_row` on: the panels of `Tile` at
/// `source`, which all fences are behind. One thread, a bulk group of its own.
template <class Tile>
__device__ __forceinline__ void start_gradient_store(const BackwardParameters& p, const KeyItem& item,
                                                     const CUtensorMap& map, std::uint32_t source, int first_row) {
  if (first_row >= item.keys) return;
  const SequenceRows& s = item.sequence;
  const int row = p.seqlen_k - s.length_k + item.first_position + first_row;
  const int end_row = static_cast<int>(s.row_k) + s.length_k;
  const int batch = p.cu_seqlens_k != nullptr ? 0 : item.batch;
#pragma unroll
  for (int panel = 0; panel < Tile::kPanels; ++panel)
    if (panel * Tile::kPanelColumns < p.head_dim)
      ptx::cp_async_bulk_tensor_5d_store(map, {panel * Tile::kPanelColumns, row, end_row, item.head_kv, batch},
                                         source + panel * Tile::kPanelBytes, ptx::kEvictFirst);
  ptx::cp_async_bulk_commit_group();
}

/// Until what the warp's lane 0 has started to store has been read. The warp writes there behind a __syncwarp().
__device__ __forceinline__ void wait_for_gradient_stores() {
  if (ptx::fresh_thread_index() % 32 == 0) ptx::cp_async_bulk_wait_group_read();
}

/// 16-bit rows of the warp's 16 keys, by way of rows `staging_row` on of the tile `staging` in shared memory, which
/// nobody else uses any more. Rows of neighbours leave later by `map`, those of scattered keys at once. `first_row`: of
/// the item.
template <class Tile, DataType kType, int kHalf>
__device__ __forceinline__ void write_key_gradient_rows(const BackwardParameters& p, const KeyItem& item,
                                                        const TensorView& tensor, const CUtensorMap& map,
                                                        const float (&values)[kHalf], std::uint32_t staging,
                                                        int staging_row, int first_row) {
  const int lane = ptx::fresh_thread_index() % 32;
  __syncwarp();
#pragma unroll
  for (int c = 0; c < kHalf / 8; ++c) {
    const Coordinate at = ldmatrix_coordinate(MatrixOrder::rows_first, lane);
    std::uint32_t packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) packed[i] = pack<kType>(values[c * 8 + i * 2], values[c * 8 + i * 2 + 1]);
    ptx::stmatrix_x4(staging + Tile::chunk_offset(staging_row + at.row, c * 2 + at.column), packed);
  }
  const std::int32_t* const active = item.active;
  if (active == nullptr) {
    ptx::fence_proxy_async();
    __syncwarp();
    if (lane == 0) start_gradient_store<Tile>(p, item, map, staging + staging_row * Tile::kRowBytes, first_row);
    return;
  }
  __syncwarp();
  // What is the same for all rows is found once: divisions take longer than the stores.
  std::uint16_t* const rows = key_row_address(p, item, tensor, 0);
  const std::int64_t stride = tensor.stride_row;
  const int keys = item.keys;
  const int columns = p.head_dim;
  constexpr int kChunks = kHalf / 4;
  static_assert(16 * kChunks % 32 == 0);
#pragma unroll 2
  for (int i = 0; i < 16 * kChunks / 32; ++i) {
    const int row = (lane + i * 32) / kChunks;
    const int chunk = (lane + i * 32) % kChunks;
    if (first_row + row >= keys || chunk * 8 >= columns) continue;
    const int key = active[first_row + row];
    if (key == kPastEnd) continue;
    *reinterpret_cast<uint4*>(rows + key * stride + chunk * 8) =
        ptx::ld_shared_v4(staging + Tile::chunk_offset(staging_row + row, chunk));
  }
  // What is stored there next must not come before another lane's last row has been read.
  __syncwarp();
}

/// A warp's part of an item that is split: 16 keys' rows of dK or dV, or of both, one after the other.
template <int kHalf>
struct PieceRows {
  static constexpr int kFloats = kHalf * 32;
  static constexpr int kChunks = kHalf / 4;  ///< of a lane

  static __device__ __forceinline__ void store(float4* part, const float (&values)[kHalf]) {
    part += ptx::fresh_thread_index() % 32;
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
      __stcg(part + c * 32, float4{values[c * 4], values[c * 4 + 1], values[c * 4 + 2], values[c * 4 + 3]});
  }
  static __device__ __forceinline__ void add(const float4* part, float (&values)[kHalf]) {
    part += ptx::fresh_thread_index() % 32;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const float4 four = __ldcg(part + c * 32);
      values[c * 4] += four.x, values[c * 4 + 1] += four.y, values[c * 4 + 2] += four.z, values[c * 4 + 3] += four.w;
    }
  }
};

/// Adds up the pieces' rows of the warp's part of kParts, two pieces at a time, then two such pairs, and so on: of two
/// that are to be added the first to come leaves its rows in its slot, and the second goes on with the sum. So nobody
/// reads more than a few pieces' rows after the others have come, and the sum does not depend on who comes when.
/// Returns whether this piece came last, which then has the sums. `kOneByOne`: one of `values` after the other, where
/// there are no registers for the rows of all; ptxas loads them in turn behind a condition, which always holds.
/// `kSlotFloats`: of a slot, which is as large for all items of a kernel, however many of the tile's keys they take.
template <int kHalf, bool kOneByOne, int kParts, int kSlotFloats, class... Values>
__device__ __forceinline__ bool add_pieces(const BackwardParameters& p, const KeyItem& item, int part,
                                           Values&... values) {
  using Rows = PieceRows<kHalf>;
  constexpr int kPartFloats = kSlotFloats / kParts;
  static_assert(Rows::kFloats * static_cast<int>(sizeof...(Values)) <= kPartFloats);
  // Whether there are registers for a piece's rows beside those that are loaded; else it stores its own, too, and loads
  // both.
  constexpr bool kKeeps = sizeof...(Values) <= 2;
  const auto clear = [](float(&all)[kHalf]) {
#pragma unroll
    for (float& value : all) value = 0.0f;
  };
  const auto add = [&](int piece) {
    const float4* rows = piece_part<kPartFloats>(p, item, piece, part, kParts);
    ((!kOneByOne || item.pieces > 1 ? Rows::add(rows, values) : void(), rows += Rows::kFloats / 4), ...);
  };
#pragma unroll 1
  for (int width = 1; width < item.pieces; width *= 2) {
    const int left = item.piece & -2 * width;
    const int right = left + width;
    if (right >= item.pieces) continue;
    const int own = (item.piece & width) != 0 ? right : left;
    int earlier = 0;
    if constexpr (kKeeps) {
      if (ptx::fresh_thread_index() % 32 == 0) earlier = ptx::ld_acquire(piece_arrivals(p, item, right, part));
      earlier = __shfl_sync(0xffffffffu, earlier, 0);
    }
    if (earlier == 0) {
      float4* rows = piece_part<kPartFloats>(p, item, own, part, kParts);
      ((Rows::store(rows, values), rows += Rows::kFloats / 4), ...);
      // The lanes' rows have been written before lane 0 says so.
      __syncwarp();
      if (ptx::fresh_thread_index() % 32 == 0) earlier = ptx::atom_add_acq_rel(piece_arrivals(p, item, right, part), 1);
      if (__shfl_sync(0xffffffffu, earlier, 0) == 0) return false;
    }
    // The other's are read after lane 0 has heard of them.
    __syncwarp();
    if constexpr (!kKeeps) {
      (clear(values), ...);
#pragma unroll 1
      for (int piece = left; piece <= right; piece += width) add(piece);
    } else {
      add(left + right - own);
    }
  }
  return true;
}

/// A quad's sums of a step, on their way to those of its two keys in shared memory: read, started, exchanged and
/// stored, in this order, with other work between, which hides the way from lane to lane.
struct KeySums {
  std::uint32_t address;
  float total, own, received;

  __device__ __forceinline__ void read(std::uint32_t shared_address) {
    address = shared_address;
    total = stores() ? ptx::ld_shared_f32(address) : 0.0f;
  }
  /// `sums`: the lane's for both keys.
  __device__ __forceinline__ void start(const float (&sums)[2]) {
    const bool second = lane() % 2 != 0;
    own = second ? sums[1] : sums[0];
    received = __shfl_xor_sync(0xffffffffu, second ? sums[0] : sums[1], 1);
  }
  __device__ __forceinline__ void exchange() {
    own += received;
    received = __shfl_xor_sync(0xffffffffu, own, 2);
  }
  __device__ __forceinline__ void store() const {
    if (stores()) ptx::st_shared_f32(address, total + (own + received));
  }

 private:
  /// The quad's first lane stores the sum of the first key, the second that of the second.
  static __device__ __forceinline__ bool stores() { return lane() % 4 < 2; }
};

/// The same where every thread has sums of its own there.
struct ThreadSums {
  std::uint32_t address;
  float2 total;

  __device__ __forceinline__ void read(std::uint32_t shared_address) {
    address = shared_address;
    total = ptx::ld_shared_v2(address);
  }
  __device__ __forceinline__ void start(const float (&sums)[2]) const {
    ptx::st_shared_v2(address, total.x + sums[0], total.y + sums[1]);
  }
  __device__ __forceinline__ void exchange() const {}
  __device__ __forceinline__ void store() const {}
};

/// store_bias_sum() of sums that are first added over the quad of lanes that share the key.
__device__ __forceinline__ void write_bias_sum(const BackwardParameters& p, const KeyItem& item, int head, int key,
                                               float sum, int lane) {
  if (p.d_bias_rows == nullptr) return;
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  if (lane % 4 == 0) store_bias_sum(p, item, head, key, sum);
}

}  // namespace flashdma_bwd::hopper
