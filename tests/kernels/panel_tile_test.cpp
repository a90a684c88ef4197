// The maps of Hopper's shared-memory tiles: every element has one place, rows of eight meet no bank conflict, and the
// steps of a product lead where the elements lie.
#include "hopper/panel_tile.hpp"

#include <set>

#include "support/catch.hpp"

using flashdma_bwd::hopper::PanelTile;
using flashdma_bwd::hopper::widest_panel;

namespace {

template <class Tile>
void check_tile() {
  INFO(Tile::kRows << " x " << Tile::kColumns << ", panels of " << Tile::kPanelColumns);
  std::set<int> offsets;
  for (int row = 0; row < Tile::kRows; ++row)
    for (int column = 0; column < Tile::kColumns; ++column) offsets.insert(Tile::offset(row, column));
  CHECK(offsets.size() == static_cast<std::size_t>(Tile::kRows * Tile::kColumns));
  CHECK(*offsets.begin() == 0);
  CHECK(*offsets.rbegin() == Tile::kBytes - 2);

  // A matrix of 8 x 8 elements is eight chunks of 16 bytes: together they touch each of the 32 banks once.
  for (int chunk = 0; chunk < Tile::kColumns / 8; ++chunk) {
    std::set<int> sixteen_byte_banks;
    for (int row = 0; row < 8; ++row) sixteen_byte_banks.insert(Tile::chunk_offset(row, chunk) / 16 % 8);
    CHECK(sixteen_byte_banks.size() == 8);
  }

  // The hardware XORs the chunk's bits of an address with those three bits above a 128-byte line, as many as the
  // swizzle is wide; a step's address plus an unswizzled position, swizzled so, is where the element lies.
  const auto swizzled = [](int position) {
    constexpr int kChunks = Tile::kRowBytes / 16;
    return position ^ ((position >> 7 & (kChunks - 1)) << 4);
  };
  for (int step = 0; step < Tile::kColumns / 16; ++step)
    for (int row = 0; row < Tile::kRows; ++row)
      for (int column = 0; column < 16; ++column)
        CHECK(swizzled(static_cast<int>(Tile::column_step(step)) * 16 + row * Tile::kRowBytes + column * 2) ==
              Tile::offset(row, step * 16 + column));
  for (int step = 0; step < Tile::kRows / 16; ++step)
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < Tile::kColumns; ++column)
        CHECK(swizzled(static_cast<int>(Tile::row_step(step)) * 16 + row * Tile::kRowBytes +
                       column / Tile::kPanelColumns * Tile::kPanelBytes + column % Tile::kPanelColumns * 2) ==
              Tile::offset(step * 16 + row, column));
}

}  // namespace

TEST_CASE("panel tiles", "[panel_tile]") {
  check_tile<PanelTile<64, 128>>();
  check_tile<PanelTile<128, 64>>();
  check_tile<PanelTile<128, 32>>();
  check_tile<PanelTile<128, 96, 16>>();
  check_tile<PanelTile<64, 96>>();
  check_tile<PanelTile<128, 64, 32>>();
  check_tile<PanelTile<64, 64>>();
  check_tile<PanelTile<64, 192>>();
  check_tile<PanelTile<64, 192, 16>>();
  check_tile<PanelTile<64, 96, 16>>();
  check_tile<PanelTile<64, 256>>();
}

TEST_CASE("panels are as wide as the columns allow", "[panel_tile]") {
  CHECK(widest_panel(128) == 64);
  CHECK(widest_panel(96) == 32);
  CHECK(widest_panel(48) == 16);
}

TEST_CASE("matrix descriptors", "[panel_tile]") {
  using Wide = PanelTile<64, 128>;
  // Address 0x8000: 0x800 units of 16 bytes; leading offset 8192 bytes, stride offset 1024, 128-byte swizzle.
  CHECK(Wide::descriptor_of(Wide::descriptor(0x8000)) == 0x40000040'02000800u);
  using Middle = PanelTile<64, 96>;  // 4096, 512, 64-byte swizzle
  CHECK(Middle::descriptor_of(Middle::descriptor(0x400)) == 0x80000020'01000040u);
  using Narrow = PanelTile<128, 96, 16>;  // 4096, 256, 32-byte swizzle
  CHECK(Narrow::descriptor_of(Narrow::descriptor(0x400)) == 0xc0000010'01000040u);
}

TEST_CASE("a descriptor has no part of an address that is the CTA's number in its cluster", "[panel_tile]") {
  // Shared memory of a cluster: bits 24 and up. What is below 2^18 reaches beyond the largest block's 227 KiB.
  using Tile = PanelTile<64, 256>;
  for (const std::uint32_t offset : {0u, 0x400u, 0x8000u, 0x38800u, 227u * 1024 - 1024}) {
    const std::uint32_t alone = Tile::descriptor(offset);
    CHECK((alone & 0x3fffu) == offset >> 4);
    CHECK(alone >> 16 == static_cast<std::uint32_t>(Tile::kPanelBytes >> 4));
    for (const std::uint32_t rank : {1u, 2u, 7u, 15u, 255u}) CHECK(Tile::descriptor(rank << 24 | offset) == alone);
  }
  using Narrow = PanelTile<64, 192, 16>;
  CHECK(Narrow::descriptor(0x1000400) == Narrow::descriptor(0x400));
}

TEST_CASE("positions that are added to a descriptor stay in its address", "[panel_tile]") {
  // From the last tile of the largest block on: a carry would reach the leading offset.
  using Tile = PanelTile<64, 256>;
  constexpr std::uint32_t kLast = 227 * 1024 - Tile::kBytes;
  for (const std::uint32_t step : {Tile::column_step(Tile::kColumns / 16 - 1), Tile::row_step(Tile::kRows / 16 - 1)})
    CHECK((Tile::descriptor(kLast) + step) >> 14 == Tile::descriptor(kLast) >> 14);
}
