// The consumer warpgroups of a CTA of two: 64 keys of the item's tile, against all query tiles that see any of the
// item's keys.
//
// A step i computes, with the CTA's keys as the rows of the transposed products:
//
//     S^T = K Q^T;  P = exp(scale S + bias - LSE);  dV += P^T dO     the value owner, P is its operand in registers
//     dP^T = V dO^T;  dS = P (dP - D);              dK += dS^T Q     the key owner, dS likewise
//     dQ = dS K, over the keys of both CTAs         a quarter of the head dim each, one step late
//
// The value owner runs ahead and hands P to the key owner, lane by lane: their fragments are the same. dS goes to a
// ring in shared memory and from there to the other CTA. That a warpgroup computes all of S or of dP, instead of half
// of both, saves a second reading of K and V.
#pragma once

#include "hopper/consumer_warp.cuh"
#include "hopper/key_gradient.cuh"
#include "hopper/pair/geometry.cuh"
#include "hopper/ptx.cuh"
#include "hopper/score_tile.cuh"
#include "hopper/transposed_product.cuh"
#include "hopper/wgmma.cuh"

namespace flashdma_bwd::hopper::pair {

/// What both roles do.
template <KernelConfig kConfig, Role kRole>
class Consumer {
 protected:
  using G = Geometry<kConfig>;
  using State = typename G::State;
  using QueryTile = typename G::QueryTile;
  using KeyTile = typename G::KeyTile;
  using OtherKeyTile = typename G::OtherKeyTile;
  using ValueTile = typename G::ValueTile;
  using PairTile = typename G::PairTile;
  static constexpr DataType kType = kConfig.data_type;
  static constexpr bool kBf16 = kType == DataType::bf16;
  static constexpr bool kKeyBias = kConfig.bias == BiasKind::key_vector;
  static constexpr bool kSoftcap = kConfig.softcap;
  static constexpr int kM = G::kM;
  static constexpr int kD = G::kD;
  static_assert(kConfig.bias != BiasKind::tile);

  using Scores = float[kM / 2];
  using Gradient = float[kD / 2];
  using DQuery = float[G::kDQueryColumns / 2];
  using Operand = std::uint32_t[kM / 16][4];
  using QueryRing = RingPosition<G::kQueryStages>;
  using DOutRing = RingPosition<G::kDOutStages>;
  using DScoreRing = RingPosition<G::kDScoreStages>;
  using OtherDScoreRing = RingPosition<G::kOtherDScoreStages>;

  __device__ __forceinline__ Consumer(const BackwardParameters& parameters, std::uint32_t shared, State& shared_state)
      : p(parameters), shared_(shared), state(shared_state) {}

  /// The CTA's number, read anew for the same reason as the thread's.
  static __device__ __forceinline__ int rank() { return cta_rank(); }

  /// Row of the item's tile of a lane's first key; the second is 8 further.
  __device__ __forceinline__ int key_row() const { return rank() * G::kKeys + warp() * 16 + lane() / 4; }
  /// Of the lane's two keys.
  __device__ __forceinline__ int position(int half) const { return position_of_row(state.item, key_row() + half * 8); }

  // --- Barriers ---

  /// Arrives for the warp in both CTAs.
  static __device__ __forceinline__ void arrive_in_both(std::uint64_t& barrier) {
    if (const int l = lane(); l < kCtas) ptx::mbarrier_arrive_cluster(ptx::mapa(ptx::shared_address(&barrier), l));
  }

  // --- Products ---

  __device__ __forceinline__ std::uint32_t query_tile(int i) const {
    return ptx::opaque(QueryTile::descriptor(shared_ + G::kQuery) + QueryRing(i).stage * (QueryTile::kBytes >> 4));
  }
  __device__ __forceinline__ std::uint32_t d_out_tile(int i) const {
    return ptx::opaque(QueryTile::descriptor(shared_ + G::kDOut) + DOutRing(i).stage * (QueryTile::kBytes >> 4));
  }

  /// Issues `gradient` += `pairs` times the tile `queries`, Q or dO.
  static __device__ __forceinline__ void accumulate(Gradient& gradient, const Operand& pairs, std::uint32_t queries) {
    using Product = ptx::Wgmma<kD, kBf16>;
#pragma unroll
    for (int k = 0; k < kM / 16; ++k)
      Product::template rs<true, true>(gradient, pairs[k], QueryTile::descriptor_of(queries + QueryTile::row_step(k)));
    ptx::wgmma_commit_group();
  }

  // --- dQ ---

  /// Whether a CTA's own dS of a step and the other's have come.
  struct DScoresCame {
    bool own;
    bool others;
  };
  __device__ __forceinline__ DScoresCame d_scores_came(int i) const {
    const DScoreRing ring(i);
    const OtherDScoreRing other(i);
    return {has_come(state.d_score_full[ring.stage], ring.parity),
            has_come(state.other_d_score_full[other.stage], other.parity)};
  }
  /// Until both CTAs' dS of step i is there.
  __device__ __forceinline__ void wait_for_d_scores(int i, const DScoresCame& came) const {
    const DScoreRing ring(i);
    wait(state.d_score_full[ring.stage], ring.parity, came.own);
    const OtherDScoreRing other(i);
    wait(state.other_d_score_full[other.stage], other.parity, came.others);
    // The next one to this buffer may come.
    if (kRole == Role::key && warp() == 0 && lane() == 0)
      ptx::mbarrier_arrive_expect_tx(ptx::shared_address(&state.other_d_score_full[other.stage]), PairTile::kBytes);
  }

  /// Issues the warpgroup's share of dQ of step i.
  __device__ __forceinline__ void start_d_query(int i, DQuery& d_q) const {
    constexpr int kShare = static_cast<int>(kRole);
    constexpr int kSteps = G::kKeys / 16;
    constexpr int kSharePanels = G::kDQueryColumns / KeyTile::kPanelColumns;
    constexpr int kHalfPanels = G::kDQueryHalf / KeyTile::kPanelColumns;
    const std::uint32_t d_scores =
        ptx::opaque(PairTile::descriptor(shared_ + G::kDScore) + DScoreRing(i).stage * (PairTile::kBytes >> 4));
    const std::uint32_t other_d_scores = ptx::opaque(PairTile::descriptor(shared_ + G::kOtherDScore) +
                                                     OtherDScoreRing(i).stage * (PairTile::kBytes >> 4));
    const std::uint32_t keys =
        ptx::opaque(KeyTile::descriptor(shared_ + G::kKey + kShare * kSharePanels * KeyTile::kPanelBytes) +
                    rank() * (kHalfPanels * KeyTile::kPanelBytes >> 4));
    const std::uint32_t other_keys = ptx::opaque(
        OtherKeyTile::descriptor(shared_ + G::kOtherKey + kShare * kSharePanels * OtherKeyTile::kPanelBytes));
    using Product = ptx::Wgmma<G::kDQueryColumns, kBf16>;
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const std::uint64_t a = PairTile::descriptor_of(d_scores + PairTile::column_step(k));
      const std::uint64_t b = KeyTile::descriptor_of(keys + KeyTile::row_step(k));
      if (k == 0)
        Product::template ss<false, true, false>(d_q, a, b);
      else
        Product::template ss<false, true, true>(d_q, a, b);
    }
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
      Product::template ss<false, true, true>(d_q, PairTile::descriptor_of(other_d_scores + PairTile::column_step(k)),
                                              OtherKeyTile::descriptor_of(other_keys + OtherKeyTile::row_step(k)));
    ptx::wgmma_commit_group();
  }

  /// Whether the buffer by which the first part of the dQ of step i goes to the reducer is free.
  __device__ __forceinline__ bool buffer_came(int i) const {
    return has_come(state.d_query_empty[static_cast<int>(kRole)], (i & 1) ^ 1);
  }

  /// Where in the scratch the second part of the warpgroup's share of dQ of step i belongs.
  __device__ __forceinline__ float* second_part(int i) const {
    const StepInfo& info = state.steps[static_cast<unsigned>(i) % kStepSlots];  // before the first: of any
    const std::int64_t row = scratch_row_of(state.item, p, info.head) + info.first_query + warp() * 16;
    const int column = rank() * G::kDQueryHalf + static_cast<int>(kRole) * G::kDQueryColumns + G::kDQueryPart;
    return p.d_q_scratch + row * kD + column / 8 * kAtomFloats + lane() * 4;
  }

  /// Lets go of the dS of step i, has the reducer add the first part of the warpgroup's share of dQ to the scratch and
  /// adds the second, in deterministic mode when the reducer says that it is the item's turn. Asks meanwhile whether
  /// `next` has come, what the next step begins with.
  __device__ __forceinline__ bool hand_over_d_query(int i, const DQuery& d_q, bool came, float* destination,
                                                    std::uint64_t& next, std::uint32_t next_parity) const {
    arrive(state.d_score_empty[DScoreRing(i).stage]);
    if (lane() == 0)
      ptx::mbarrier_arrive_cluster(
          ptx::mapa(ptx::shared_address(&state.other_d_score_taken[OtherDScoreRing(i).stage]), rank() ^ 1));
    give_to_reducer(i, d_q, came);
    const bool next_came = has_come(next, next_parity);
    constexpr int kShare = static_cast<int>(kRole);
    if (p.d_q_turns != nullptr) wait(state.d_query_turn[kShare], i & 1);
#pragma unroll
    for (int c = 0; c < G::kDQueryPart / 8; ++c) {
      const float* values = d_q + (G::kDQueryPart / 8 + c) * 4;
      ptx::red_add_v4(destination + c * kAtomFloats, {values[0], values[1], values[2], values[3]});
    }
    if (p.d_q_turns != nullptr) {
      __syncwarp();
      arrive(state.d_query_added[kShare]);
    }
    return next_came;
  }
  __device__ __forceinline__ void give_to_reducer(int i, const DQuery& d_q, bool came) const {
    constexpr int kShare = static_cast<int>(kRole);
    wait(state.d_query_empty[kShare], (i & 1) ^ 1, came);
    const std::uint32_t address =
        shared_ + G::kDQuery + (kShare * 4 + warp()) * (G::kDQueryPartBytes / 4) + lane() * 16;
#pragma unroll
    for (int c = 0; c < G::kDQueryPart / 8; ++c) {
      const float* values = d_q + c * 4;
      ptx::st_shared_v4(address + c * kAtomFloats * 4, values[0], values[1], values[2], values[3]);
    }
    ptx::fence_proxy_async();
    __syncwarp();
    arrive(state.d_query_full[kShare]);
  }

  /// The last step's share of dQ, for which there is no next step.
  __device__ __forceinline__ void finish_d_query(int last) const {
    DQuery d_q;
    wait_for_d_scores(last, {});
    ptx::wgmma_fence();
    start_d_query(last, d_q);
    ptx::wgmma_wait_group<0>();
    hand_over_d_query(last, d_q, false, second_part(last), state.query_full[0], 0);
  }

  // --- dK and dV ---

  /// By way of the tile `staging`, which all products have read.
  template <class Tile>
  __device__ __forceinline__ void write_gradient(const TensorView& tensor, float* partial, Gradient& values,
                                                 std::uint32_t staging) const {
    const int part = (rank() * 4 + warp()) * 2 + static_cast<int>(kRole);
    if (state.item.pieces > 1 && !add_pieces<kD / 2>(p, state.item, part, kCtas * 4 * 2, values)) return;
    const int row = warp() * 16;
    if (partial != nullptr)
      write_partial_key_gradient(p, state.item, partial, values, rank() * G::kKeys + row);
    else
      write_key_gradient_rows<Tile, kType>(p, state.item, tensor, values, staging, row, rank() * G::kKeys + row);
  }

  // --- P, from lane to lane ---

  /// Of the lane's first 16 bytes; the next are 512 further.
  __device__ __forceinline__ std::uint32_t probability_address() const {
    return shared_ + G::kProbability + warp() * (kM * 16 * G::kProbabilityBytes) + lane() * 16;
  }
  /// P and, with a softcap, its slope. A key bias needs dS with and without the slope, else one product of them does.
  static constexpr bool kHandOverSlopes = G::kProbabilityBytes == 4;

  const BackwardParameters& p;
  std::uint32_t shared_;
  State& state;
};

}  // namespace flashdma_bwd::hopper::pair
