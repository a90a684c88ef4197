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

#include "hopper/key_gradient.cuh"
#include "hopper/owners/owner.cuh"
#include "hopper/transposed/geometry.cuh"
#include "hopper/transposed/score_rows.cuh"
#include "hopper/transposed/write_gradient.cuh"
#include "hopper/transposed_product.cuh"

namespace flashdma_bwd::hopper::transposed {

using owners::Role;

/// What both roles do, of the tile's first `kKeys` keys, behind which the item has none.
template <KernelConfig kConfig, Role kRole, int kKeys>
class Consumer : protected owners::Owner<kConfig, Geometry<kConfig>, kRole> {
  using Base = owners::Owner<kConfig, Geometry<kConfig>, kRole>;

 protected:
  using Base::Base;
  using Base::kBf16;
  using Base::kM;
  using Base::kShare;
  using Base::kType;
  using Base::maps;
  using Base::p;
  using Base::shared_;
  using Base::state;
  using typename Base::DQuery;
  using typename Base::G;
  using typename Base::KeyTile;
  using typename Base::PairTile;
  using typename Base::QueryTile;
  using typename Base::State;
  using typename Base::ValueTile;
  static constexpr int kN = kKeys;
  static_assert(kN <= G::kN && kN % 32 == 0);
  static_assert(!(Base::kKeyBias && Base::kSoftcap));
  using Scores = float[kN / 2];
  using Gradient = RowBlocks<G::kRowBlocks, kN / 2>;
  using Operand = std::uint32_t[kN / 16][4];

  /// The row of a lane's first query in the tile; the second is 8 further.
  static __device__ __forceinline__ int query_row() { return warp() * 16 + lane() / 4; }

  // --- Products ---

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
    const std::uint32_t keys =
        ptx::opaque(KeyTile::descriptor(shared_ + G::kKey + kShare * kSharePanels * KeyTile::kPanelBytes));
    Base::template multiply_keys<KeyTile, false, kN>(d_q, this->d_score_tile(i), keys);
    ptx::wgmma_commit_group();
  }

  /// Whether the buffer by which the first part of the dQ of step i goes to the reducer is free.
  __device__ __forceinline__ bool buffer_came(int i) const {
    const int use = p.d_q_turns != nullptr ? G::kDQueryParts * i : i;
    return has_come(state.d_query_empty[kShare], (use & 1) ^ 1);
  }

  /// Where in the scratch the other parts of the warpgroup's share of dQ of step i belong.
  __device__ __forceinline__ float* other_parts(int i) const {
    return this->scratch_of(i, kShare * G::kDQueryColumns + G::kDQueryPart);
  }

  /// Adds the warpgroup's share of dQ of step i to the scratch or has the reducer do so.
  __device__ __forceinline__ void hand_over_d_query(int i, const DQuery& d_q, bool came, float* destination) const {
    // In deterministic mode the reducer keeps the order, so that all parts go there.
    if (p.d_q_turns != nullptr) {
#pragma unroll
      for (int part = 0; part < G::kDQueryParts; ++part)
        this->give_to_reducer(part, G::kDQueryParts * i + part, d_q, part == 0 && came);
      return;
    }
    this->give_to_reducer(0, i, d_q, came);
    Base::add_other_parts(d_q, destination);
  }

  // --- dK and dV ---

  /// By way of the memory `staging` of a tile of 96 rows, which all products have read.
  __device__ __forceinline__ void write_gradient(const TensorView& tensor, const CUtensorMap& map, bool value,
                                                 Gradient& values, std::uint32_t staging) const {
    static_assert(G::kRowBlocks == 3);
    const int part = kShare * 4 + warp();
    if (is_added_up(state.item) &&
        !add_pieces<kN / 2, false, 2 * 4, 2 * G::kN * Base::kD>(p, state.item, part, values[0], values[1], values[2]))
      return;
    if (leaves_as_floats(p, state.item))
      write_float_columns<G::kRowBlocks, kN / 2>(p, state.item, value, values, warp());
    else
      write_rows<ValueTile, kType, G::kRowBlocks, kN / 2>(p, state.item, tensor, map, values, staging, warp(),
                                                          owners::kBarrier<kRole>);
  }

  // --- P, from lane to lane ---

  /// Of the lane's first 16 bytes; the next are 512 further.
  __device__ __forceinline__ std::uint32_t probability_address() const {
    return shared_ + G::kProbability + warp() * (kN / 16 * 512) + lane() * 16;
  }
};

}  // namespace flashdma_bwd::hopper::transposed
