// The layout of two CTAs that share an item: what TMA, wgmma and bulk copies ask of addresses, and that the shares of
// dQ lie where K's panels and the scratch's atoms do. That the parts have the sizes of the closed formulas, and fit,
// the geometry asserts itself when it is compiled.
#include <initializer_list>

#include "common/launch_kernel.hpp"
#include "hopper/pair/geometry.cuh"
#include "support/catch.hpp"

namespace {

using namespace flashdma_bwd;

constexpr KernelConfig config_of(int head_dim, int q_stages, int do_stages, BiasKind bias, bool softcap) {
  return {Architecture::sm90,
          head_dim,
          DataType::bf16,
          bias,
          softcap,
          {.family = KernelFamily::hopper,
           .block_m = 64,
           .block_n = 128,
           .q_stages = q_stages,
           .do_stages = do_stages,
           .consumer_warpgroups = 2,
           .ds_stages = 2,
           .producer_registers = 40,
           .consumer_registers = 232,
           .cta_pair = true}};
}

template <KernelConfig kConfig>
void check_addresses() {
  using G = hopper::pair::Geometry<kConfig>;
  // Swizzled tiles, and each buffer of a ring of them.
  for (const int offset : {G::kKey, G::kOtherKey, G::kValue, G::kQuery, G::kDOut, G::kDScore, G::kOtherDScore,
                           G::QueryTile::kBytes, G::PairTile::kBytes})
    CHECK(offset % 1024 == 0);
  // LSE, D and the words of masks are copied by TMA, too.
  for (const int offset : {G::kLse, G::kRowDot, G::kM * 4, G::kMask, G::kMaskBytes}) CHECK(offset % 128 == 0);
  // Bulk additions, and 16 bytes of a lane.
  for (const int offset : {G::kDQuery, G::kDQueryPartBytes, G::kProbability}) CHECK(offset % 16 == 0);
  CHECK(G::kBiasSums % alignof(float2) == 0);
  CHECK(G::kState % alignof(typename G::State) == 0);
  // dK and dV leave by way of the tiles of Q and V.
  CHECK(G::ValueTile::kBytes == G::kKeys * G::kD * 2);
  CHECK(G::QueryTile::kBytes == G::kKeys * G::kD * 2);
}

template <KernelConfig kConfig>
void check_shares_of_d_query() {
  using G = hopper::pair::Geometry<kConfig>;
  using hopper::pair::kCtas;
  // Of a CTA, of a warpgroup, and of its two ways to global memory.
  CHECK(G::kDQueryHalf * kCtas == G::kD);
  CHECK(G::kDQueryColumns * kConfig.tile.consumer_warpgroups == G::kDQueryHalf);
  CHECK(G::kDQueryPart * 2 == G::kDQueryColumns);
  // Whole panels of K, and whole atoms of the scratch: 16 queries of a part lie together.
  CHECK(G::kDQueryColumns % G::KeyTile::kPanelColumns == 0);
  CHECK(G::kDQueryPart % 8 == 0);
  CHECK(G::kDQueryPartBytes == G::kM / 16 * (G::kDQueryPart / 8) * kAtomFloats * 4);
  // In deterministic mode each share of a query tile has a counter of turns.
  CHECK(G::kM / kPairTurnRows == kCtas * kConfig.tile.consumer_warpgroups);
}

/// The half of the other CTA's K lies like that half in the whole tile, so that one product reads both alike.
template <KernelConfig kConfig>
void check_halves_of_keys() {
  using G = hopper::pair::Geometry<kConfig>;
  using Whole = typename G::KeyTile;
  using Half = typename G::OtherKeyTile;
  CHECK(Half::kBytes * hopper::pair::kCtas == Whole::kBytes);
  CHECK(Half::descriptor(0) == Whole::descriptor(0));
  CHECK(Half::descriptor_of(0) == Whole::descriptor_of(0));
  for (int step = 0; step < G::kKeys / 16; ++step) CHECK(Half::row_step(step) == Whole::row_step(step));
  bool alike = true;
  for (int rank = 0; rank < hopper::pair::kCtas; ++rank)
    for (int row = 0; row < G::kKeys; ++row)
      for (int column = 0; column < G::kDQueryHalf; ++column)
        alike = alike &&
                Whole::offset(row, rank * G::kDQueryHalf + column) == rank * Half::kBytes + Half::offset(row, column);
  CHECK(alike);
}

template <KernelConfig... kConfigs>
void check_all() {
  (check_addresses<kConfigs>(), ...);
  (check_shares_of_d_query<kConfigs>(), ...);
  (check_halves_of_keys<kConfigs>(), ...);
}

template <int kStages>
void check_ring() {
  using Ring = hopper::RingPosition<kStages>;
  INFO(kStages << " buffers");
  for (int use = 0; use < 100; ++use) {
    CHECK(Ring(use).stage == use % kStages);
    CHECK(Ring(use).parity == (use < kStages ? 0 : Ring(use - kStages).parity ^ 1u));
  }
  // The step before the first is some buffer's.
  CHECK(Ring(-1).stage >= 0);
  CHECK(Ring(-1).stage < kStages);
}

}  // namespace

TEST_CASE("two CTAs' layout at head dim 256", "[pair_geometry]") {
  check_all<config_of(256, 2, 1, BiasKind::none, false), config_of(256, 2, 1, BiasKind::none, true),
            config_of(256, 2, 1, BiasKind::key_vector, false)>();
}

TEST_CASE("two CTAs' layout at head dim 192", "[pair_geometry]") {
  check_all<config_of(192, 2, 2, BiasKind::none, false), config_of(192, 2, 2, BiasKind::none, true),
            config_of(192, 2, 2, BiasKind::key_vector, false), config_of(192, 2, 2, BiasKind::key_vector, true),
            config_of(192, 2, 1, BiasKind::none, false), config_of(192, 3, 1, BiasKind::key_vector, false)>();
}

TEST_CASE("a ring's buffers take turns, and their parities from round to round", "[pair_geometry]") {
  check_ring<1>();
  check_ring<2>();
  check_ring<3>();
}
