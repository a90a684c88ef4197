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
// of both, saves a second reading of K and V. Where another kernel computes dQ of a tile bias's gradient, which dS is
// (query_gradient.cuh), neither dS nor K goes to the other CTA.
#pragma once

#include "hopper/key_gradient.cuh"
#include "hopper/owners/owner.cuh"
#include "hopper/pair/geometry.cuh"
#include "hopper/score_tile.cuh"
#include "hopper/transposed_product.cuh"

namespace flashdma_bwd::hopper::pair {

using owners::Role;

/// What both roles do.
template <KernelConfig kConfig, Role kRole, bool kAddsDQuery>
class Consumer : protected owners::Owner<kConfig, Geometry<kConfig, kAddsDQuery>, kRole> {
  using Base = owners::Owner<kConfig, Geometry<kConfig, kAddsDQuery>, kRole>;

 protected:
  using Base::Base;
  using Base::kBf16;
  using Base::kD;
  using Base::kM;
  using Base::kShare;
  using Base::kType;
  using Base::maps;
  using Base::p;
  using Base::shared_;
  using Base::state;
  using typename Base::DOutRing;
  using typename Base::DQuery;
  using typename Base::DScoreRing;
  using typename Base::G;
  using typename Base::KeyTile;
  using typename Base::PairTile;
  using typename Base::QueryRing;
  using typename Base::QueryTile;
  using typename Base::State;
  using typename Base::ValueTile;
  using OtherKeyTile = typename G::OtherKeyTile;
  using OtherDScoreRing = RingPosition<G::kOtherDScoreStages>;
  using Scores = float[kM / 2];
  using Gradient = float[kD / 2];
  using Operand = std::uint32_t[kM / 16][4];

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

  // --- Tiles of pairs ---

  /// Offset in a tile of dS or of a tile bias of the lane's row of 8 keys, for stmatrix and ldmatrix of the first 16
  /// queries with the warp's keys.
  static __device__ __forceinline__ int pair_tile_row() {
    const int l = lane();
    return PairTile::chunk_offset(l % 8 + l / 16 * 8, warp() * 2 + l / 8 % 2);
  }

  // --- Products ---

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
    constexpr int kSharePanels = G::kDQueryColumns / KeyTile::kPanelColumns;
    constexpr int kHalfPanels = G::kDQueryHalf / KeyTile::kPanelColumns;
    const std::uint32_t d_scores = this->d_score_tile(i);
    const std::uint32_t other_d_scores = ptx::opaque(PairTile::descriptor(shared_ + G::kOtherDScore) +
                                                     OtherDScoreRing(i).stage * (PairTile::kBytes >> 4));
    const std::uint32_t keys =
        ptx::opaque(KeyTile::descriptor(shared_ + G::kKey + kShare * kSharePanels * KeyTile::kPanelBytes) +
                    rank() * (kHalfPanels * KeyTile::kPanelBytes >> 4));
    const std::uint32_t other_keys = ptx::opaque(
        OtherKeyTile::descriptor(shared_ + G::kOtherKey + kShare * kSharePanels * OtherKeyTile::kPanelBytes));
    Base::template multiply_keys<KeyTile, false>(d_q, d_scores, keys);
    Base::template multiply_keys<OtherKeyTile, true>(d_q, other_d_scores, other_keys);
    ptx::wgmma_commit_group();
  }

  /// Whether the buffer by which the first part of the dQ of step i goes to the reducer is free.
  __device__ __forceinline__ bool buffer_came(int i) const {
    return has_come(state.d_query_empty[kShare], (i & 1) ^ 1);
  }

  /// Where in the scratch the second part of the warpgroup's share of dQ of step i belongs; before the first step of
  /// any.
  __device__ __forceinline__ float* second_part(int i) const {
    return this->scratch_of(i, rank() * G::kDQueryHalf + kShare * G::kDQueryColumns + G::kDQueryPart);
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
    this->give_to_reducer(0, i, d_q, came);
    const bool next_came = has_come(next, next_parity);
    if (p.d_q_turns != nullptr) wait(state.d_query_turn[kShare], i & 1);
    static_assert(G::kDQueryPart % 8 == 0 && G::kDQueryPart < G::kDQueryColumns);
    Base::add_other_parts(d_q, destination);
    if (p.d_q_turns != nullptr) {
      __syncwarp();
      arrive(state.d_query_added[kShare]);
    }
    return next_came;
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
  __device__ __forceinline__ void write_gradient(const TensorView& tensor, const CUtensorMap& map, bool value,
                                                 Gradient& values, std::uint32_t staging) const {
    const int part = (rank() * 4 + warp()) * 2 + kShare;
    if (is_added_up(state.item) &&
        !add_pieces<kD / 2, false, kCtas * 4 * 2, 2 * G::kN * kD>(p, state.item, part, values))
      return;
    const int row = warp() * 16;
    if (leaves_as_floats(p, state.item))
      write_float_rows(p, state.item, value, values, rank() * G::kKeys + row);
    else
      write_key_gradient_rows<Tile, kType>(p, state.item, tensor, map, values, staging, row, rank() * G::kKeys + row);
    // Shared memory must outlive the copies.
    wait_for_gradient_stores();
  }

  // --- P, from lane to lane ---

  /// Of the lane's first 16 bytes; the next are 512 further.
  __device__ __forceinline__ std::uint32_t probability_address() const {
    return shared_ + G::kProbability + warp() * (kM * 16 * G::kProbabilityBytes) + lane() * 16;
  }
  /// P and, with a softcap, its slope. A key bias needs dS with and without the slope, else one product of them does.
  static constexpr bool kHandOverSlopes = G::kProbabilityBytes == 4;
};

}  // namespace flashdma_bwd::hopper::pair
