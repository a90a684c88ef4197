// What consumer warpgroups have in common that own a gradient each: the value owner computes S, P and dV, the key owner
// dP, dS and dK, and either a share of dQ.
#pragma once

#include "hopper/consumer_warp.cuh"
#include "hopper/geometry.cuh"
#include "hopper/ptx.cuh"
#include "hopper/wgmma.cuh"

namespace flashdma_bwd::hopper::owners {

/// What a consumer warpgroup computes and owns.
enum class Role {
  value,  ///< S, P and dV
  key,    ///< dP, dS and dK
};

/// Named barriers of a warpgroup of its own; 0 is the CTA's.
inline constexpr int kKeyOwnerBarrier = 1;
inline constexpr int kValueOwnerBarrier = 2;
template <Role kRole>
inline constexpr int kBarrier = kRole == Role::key ? kKeyOwnerBarrier : kValueOwnerBarrier;

/// `Geometry`: of the kernel. A share of dQ goes to global memory in parts: the first by way of the reducer, the others
/// are added by the warpgroup itself, for neither way alone is fast enough (NOTES.md).
template <KernelConfig kConfig, class Geometry, Role kRole>
class Owner {
 protected:
  using G = Geometry;
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
  static constexpr int kD = G::kD;
  static constexpr int kShare = static_cast<int>(kRole);  ///< of dQ
  static constexpr bool kTileBias = kConfig.bias == BiasKind::tile;

  using DQuery = float[G::kDQueryColumns / 2];
  using QueryRing = RingPosition<G::kQueryStages>;
  using DOutRing = RingPosition<G::kDOutStages>;
  using DScoreRing = RingPosition<G::kDScoreStages>;

  __device__ __forceinline__ Owner(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                   std::uint32_t shared, State& shared_state)
      : p(parameters), maps(tensor_maps), shared_(shared), state(shared_state) {}

  // --- Tiles of step i, as lower halves of descriptors ---

  __device__ __forceinline__ std::uint32_t query_tile(int i) const {
    return ptx::opaque(QueryTile::descriptor(shared_ + G::kQuery) + QueryRing(i).stage * (QueryTile::kBytes >> 4));
  }
  __device__ __forceinline__ std::uint32_t d_out_tile(int i) const {
    return ptx::opaque(QueryTile::descriptor(shared_ + G::kDOut) + DOutRing(i).stage * (QueryTile::kBytes >> 4));
  }
  __device__ __forceinline__ std::uint32_t d_score_tile(int i) const {
    return ptx::opaque(PairTile::descriptor(shared_ + G::kDScore) + DScoreRing(i).stage * (PairTile::kBytes >> 4));
  }

  // --- dS ---

  /// Stores dS into the ring by store(address of the stage), for all who multiply it. Returns whether Q has come.
  template <class Store>
  __device__ __forceinline__ bool publish_d_scores(int i, bool buffer_came, Store&& store) const {
    const DScoreRing ring(i);
    wait(state.d_score_empty[ring.stage], ring.parity ^ 1, buffer_came);
    store(shared_ + G::kDScore + ring.stage * PairTile::kBytes);
    const QueryRing query(i);
    const bool queries_came = has_come(state.query_full[query.stage], query.parity);
    ptx::fence_proxy_async();
    __syncwarp();
    arrive(state.d_score_full[ring.stage]);
    return queries_came;
  }

  // --- dQ ---

  /// Issues the warpgroup's share of dQ as far as it is of the keys of the tile `keys`: it is that, or `kAdd` to it.
  template <class Keys, bool kAdd, int kKeys = Keys::kRows>
  static __device__ __forceinline__ void multiply_keys(DQuery& d_q, std::uint32_t d_scores, std::uint32_t keys) {
    using Product = ptx::Wgmma<G::kDQueryColumns, kBf16>;
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      const std::uint64_t a = PairTile::descriptor_of(d_scores + PairTile::column_step(k));
      const std::uint64_t b = Keys::descriptor_of(keys + Keys::row_step(k));
      if (k == 0)
        Product::template ss<false, true, kAdd>(d_q, a, b);
      else
        Product::template ss<false, true, true>(d_q, a, b);
    }
  }

  /// Where column `column` of step i's queries lies in the scratch of dQ, for a lane of a warp.
  __device__ __forceinline__ float* scratch_of(int i, int column) const {
    const auto& info = state.steps[static_cast<unsigned>(i) % kStepSlots];
    const std::int64_t row = scratch_row_of(state.item, p, info.head) + info.first_query + warp() * 16;
    return p.d_q_scratch + row * kD + column / 8 * kAtomFloats + lane() * 4;
  }

  /// Gives a part of the share to the reducer. `use` counts the uses of the warpgroup's buffer.
  __device__ __forceinline__ void give_to_reducer(int part, int use, const DQuery& d_q, bool came) const {
    wait(state.d_query_empty[kShare], (use & 1) ^ 1, came);
    const std::uint32_t address =
        shared_ + G::kDQuery + (kShare * 4 + warp()) * (G::kDQueryPartBytes / 4) + lane() * 16;
#pragma unroll
    for (int c = 0; c < G::kDQueryPart / 8; ++c) {
      const float* values = d_q + (part * (G::kDQueryPart / 8) + c) * 4;
      ptx::st_shared_v4(address + c * kAtomFloats * 4, values[0], values[1], values[2], values[3]);
    }
    __syncwarp();
    arrive(state.d_query_full[kShare]);
  }

  /// Adds all parts but the first, which belong to `destination` on.
  static __device__ __forceinline__ void add_other_parts(const DQuery& d_q, float* destination) {
#pragma unroll
    for (int c = G::kDQueryPart / 8; c < G::kDQueryColumns / 8; ++c) {
      const float* values = d_q + c * 4;
      ptx::red_add_v4(destination + (c - G::kDQueryPart / 8) * kAtomFloats,
                      {values[0], values[1], values[2], values[3]});
    }
  }

  const BackwardParameters& p;
  const TensorMaps& maps;
  std::uint32_t shared_;
  State& state;
};

}  // namespace flashdma_bwd::hopper::owners
