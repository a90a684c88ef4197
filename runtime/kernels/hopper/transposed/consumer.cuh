// The consumer warpgroups of a CTA with transposed gradients: 96 keys, against all query tiles that see any of them.
//
// A step i computes, with queries as the rows of S, dP and dQ and the head dim as those of the gradients:
//
//     S = Q K^T;  P = exp(scale S + bias - LSE);  dV^T += dO^T P     the value owner
//     dP = dO V^T;  dS = P (dP - D);              dK^T += Q^T dS     the key owner
//     dQ = dS K                                                      half of the head dim each
//
// P and dS are operands by way of shared memory. The value owner hands P to the key owner a second time, finer and lane
// by lane: their fragments are the same. Its S of the next step is issued before dV, so that the exponentials run under
// dV; the key owner issues dQ before dK, so that dQ leaves under dK.
#pragma once

#include "hopper/consumer_warp.cuh"
#include "hopper/key_gradient.cuh"
#include "hopper/ptx.cuh"
#include "hopper/transposed/geometry.cuh"
#include "hopper/transposed/score_rows.cuh"
#include "hopper/transposed/write_gradient.cuh"
#include "hopper/transposed_product.cuh"
#include "hopper/wgmma.cuh"

namespace flashdma_bwd::hopper::transposed {

/// What both roles do.
template <KernelConfig kConfig, Role kRole>
class Consumer {
 protected:
  using G = Geometry<kConfig>;
  using State = typename G::State;
  using QueryTile = typename G::QueryTile;
  using KeyTile = typename G::KeyTile;
  using ValueTile = typename G::ValueTile;
  using PairTile = typename G::PairTile;
  static constexpr DataType kType = kConfig.data_type;
  static constexpr bool kBf16 = kType == DataType::bf16;
  static constexpr bool kKeyBias = kConfig.bias == BiasKind::key_vector;
  static constexpr bool kSoftcap = kConfig.softcap;
  static constexpr int kM = G::kM;
  static constexpr int kN = G::kN;
  static_assert(kConfig.bias != BiasKind::tile && !(kKeyBias && kSoftcap));

  using Scores = float[kN / 2];
  using Gradient = RowBlocks<G::kRowBlocks, kN / 2>;
  using DQuery = float[G::kDQueryColumns / 2];
  using Operand = std::uint32_t[kN / 16][4];
  using QueryRing = RingPosition<G::kQueryStages>;
  using DOutRing = RingPosition<G::kDOutStages>;
  using DScoreRing = RingPosition<G::kDScoreStages>;

  __device__ __forceinline__ Consumer(const BackwardParameters& parameters, std::uint32_t shared, State& shared_state)
      : p(parameters), shared_(shared), state(shared_state) {}

  /// The row of a lane's first query in the tile; the second is 8 further.
  static __device__ __forceinline__ int query_row() { return warp() * 16 + lane() / 4; }

  // --- Products ---

  __device__ __forceinline__ std::uint32_t query_tile(int i) const {
    return ptx::opaque(QueryTile::descriptor(shared_ + G::kQuery) + QueryRing(i).stage * (QueryTile::kBytes >> 4));
  }
  __device__ __forceinline__ std::uint32_t d_out_tile(int i) const {
    return ptx::opaque(QueryTile::descriptor(shared_ + G::kDOut) + DOutRing(i).stage * (QueryTile::kBytes >> 4));
  }
  __device__ __forceinline__ std::uint32_t d_score_tile(int i) const {
    return ptx::opaque(PairTile::descriptor(shared_ + G::kDScore) + DScoreRing(i).stage * (PairTile::kBytes >> 4));
  }

  static __device__ __forceinline__ void clear(Gradient& gradient) {
#pragma unroll
    for (auto& block : gradient)
#pragma unroll
      for (float& value : block) value = 0.0f;
  }

  /// Issues `gradient` += the tile `queries`, Q or dO, transposed, times the tile `pairs`, dS or P.
  static __device__ __forceinline__ void accumulate(Gradient& gradient, std::uint32_t queries, std::uint32_t pairs) {
    using Product = ptx::Wgmma<kN, kBf16>;
#pragma unroll
    for (int block = 0; block < G::kRowBlocks; ++block)
#pragma unroll
      for (int k = 0; k < kM / 16; ++k)
        Product::template ss<true, true, true>(
            gradient[block],
            QueryTile::descriptor_of(queries + block * (QueryTile::kPanelBytes >> 4) + QueryTile::row_step(k)),
            PairTile::descriptor_of(pairs + PairTile::row_step(k)));
    ptx::wgmma_commit_group();
  }

  // --- dQ ---

  /// Issues the warpgroup's share of dQ of step i.
  __device__ __forceinline__ void start_d_query(int i, DQuery& d_q) const {
    constexpr int kSharePanels = G::kDQueryColumns / KeyTile::kPanelColumns;
    const std::uint32_t d_scores = d_score_tile(i);
    const std::uint32_t keys = ptx::opaque(
        KeyTile::descriptor(shared_ + G::kKey + static_cast<int>(kRole) * kSharePanels * KeyTile::kPanelBytes));
    using Product = ptx::Wgmma<G::kDQueryColumns, kBf16>;
#pragma unroll
    for (int k = 0; k < kN / 16; ++k) {
      const std::uint64_t a = PairTile::descriptor_of(d_scores + PairTile::column_step(k));
      const std::uint64_t b = KeyTile::descriptor_of(keys + KeyTile::row_step(k));
      if (k == 0)
        Product::template ss<false, true, false>(d_q, a, b);
      else
        Product::template ss<false, true, true>(d_q, a, b);
    }
    ptx::wgmma_commit_group();
  }

  /// Whether the buffer by which the first part of the dQ of step i goes to the reducer is free.
  __device__ __forceinline__ bool buffer_came(int i) const {
    const int use = p.d_q_turns != nullptr ? G::kDQueryParts * i : i;
    return has_come(state.d_query_empty[static_cast<int>(kRole)], (use & 1) ^ 1);
  }

  /// Where in the scratch the other parts of the warpgroup's share of dQ of step i belong.
  __device__ __forceinline__ float* other_parts(int i) const {
    const Step& info = state.steps[static_cast<unsigned>(i) % kStepSlots];
    const std::int64_t row = scratch_row_of(state.item, p, info.head) + info.first_query + warp() * 16;
    constexpr int kColumn = static_cast<int>(kRole) * G::kDQueryColumns + G::kDQueryPart;
    return p.d_q_scratch + row * G::kD + kColumn / 8 * kAtomFloats + lane() * 4;
  }

  /// Adds the warpgroup's share of dQ of step i to the scratch or has the reducer do so.
  __device__ __forceinline__ void hand_over_d_query(int i, const DQuery& d_q, bool came, float* destination) const {
    // In deterministic mode the reducer keeps the order, so that all parts go there.
    if (p.d_q_turns != nullptr) {
#pragma unroll
      for (int part = 0; part < G::kDQueryParts; ++part)
        give_to_reducer(part, G::kDQueryParts * i + part, d_q, part == 0 && came);
      return;
    }
    give_to_reducer(0, i, d_q, came);
#pragma unroll
    for (int c = G::kDQueryPart / 8; c < G::kDQueryColumns / 8; ++c) {
      const float* values = d_q + c * 4;
      ptx::red_add_v4(destination + (c - G::kDQueryPart / 8) * kAtomFloats,
                      {values[0], values[1], values[2], values[3]});
    }
  }
  /// `use` counts the uses of the warpgroup's buffer.
  __device__ __forceinline__ void give_to_reducer(int part, int use, const DQuery& d_q, bool came) const {
    constexpr int kShare = static_cast<int>(kRole);
    wait(state.d_query_empty[kShare], (use & 1) ^ 1, came);
    const std::uint32_t address =
        shared_ + G::kDQuery + (kShare * 4 + warp()) * (G::kDQueryPartBytes / 4) + lane() * 16;
#pragma unroll
    for (int c = 0; c < G::kDQueryPart / 8; ++c) {
      const float* values = d_q + (part * (G::kDQueryPart / 8) + c) * 4;
      ptx::st_shared_v4(address + c * kAtomFloats * 4, values[0], values[1], values[2], values[3]);
    }
    ptx::fence_proxy_async();
    __syncwarp();
    arrive(state.d_query_full[kShare]);
  }

  // --- dK and dV ---

  /// By way of the memory `staging` of a tile of 96 rows, which all products have read.
  __device__ __forceinline__ void write_gradient(const TensorView& tensor, float* partial, Gradient& values,
                                                 std::uint32_t staging) const {
    static_assert(G::kRowBlocks == 3);
    const int part = static_cast<int>(kRole) * 4 + warp();
    if (state.item.pieces > 1 && !add_pieces<kN / 2>(p, state.item, part, 2 * 4, values[0], values[1], values[2]))
      return;
    if (partial != nullptr)
      write_partial_rows<G::kRowBlocks, kN / 2>(p, state.item, partial, values, warp());
    else
      write_rows<ValueTile, kType, G::kRowBlocks, kN / 2>(p, state.item, tensor, values, staging, warp());
  }

  // --- P, from lane to lane ---

  /// Of the lane's first 16 bytes; the next are 512 further.
  __device__ __forceinline__ std::uint32_t probability_address() const {
    return shared_ + G::kProbability + warp() * (kN / 16 * 512) + lane() * 16;
  }

  const BackwardParameters& p;
  std::uint32_t shared_;
  State& state;
};

}  // namespace flashdma_bwd::hopper::transposed
