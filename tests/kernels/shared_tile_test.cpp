// The swizzle of shared-memory tiles: nothing lost, no bank conflict, and the short way to a neighbouring chunk.
#include "common/shared_tile.hpp"

#include <cstdint>
#include <set>
#include <vector>

#include "common/fragments.hpp"
#include "support/catch.hpp"

namespace {

using namespace flashdma_bwd;

constexpr int kBanks = 32;
constexpr int kBankBytes = 4;
constexpr int kChunkBytes = 16;

/// The banks that a 16-byte access at `offset` touches, as the number of its group of four.
int bank_group(int offset) {
  return offset / kBankBytes % kBanks / (kChunkBytes / kBankBytes);
}

template <class Tile>
void check_tile() {
  INFO(Tile::kRows << " x " << Tile::kColumns);
  std::set<int> offsets;
  for (int row = 0; row < Tile::kRows; ++row)
    for (int column = 0; column < Tile::kColumns; ++column) offsets.insert(Tile::offset(row, column));
  REQUIRE(static_cast<int>(offsets.size()) == Tile::kRows * Tile::kColumns);
  REQUIRE(*offsets.begin() == 0);
  REQUIRE(*offsets.rbegin() == Tile::kBytes - 2);

  // ldmatrix reads eight rows of one chunk at a time; they must lie in eight different groups of banks.
  for (int first = 0; first < Tile::kRows; first += 8)
    for (int chunk = 0; chunk < Tile::kColumns / 8; ++chunk) {
      std::set<int> groups;
      for (int row = first; row < first + 8; ++row) groups.insert(bank_group(Tile::chunk_offset(row, chunk)));
      REQUIRE(groups.size() == 8);
    }

  // A warp stores an accumulator atom as 32 words: one of each bank.
  for (int column = 0; column < Tile::kColumns; column += 8) {
    std::set<int> banks;
    for (int lane = 0; lane < 32; ++lane) {
      const Coordinate c = accumulator_coordinate(lane, 0);
      banks.insert(Tile::offset(c.row, column + c.column) / kBankBytes % kBanks);
    }
    REQUIRE(banks.size() == kBanks);
  }

  // The address of a block, advanced, is the address of the block further on.
  for (int lane = 0; lane < 32; ++lane)
    for (const MatrixOrder order : {MatrixOrder::rows_first, MatrixOrder::chunks_first}) {
      const Coordinate c = ldmatrix_coordinate(order, lane);
      const auto start = static_cast<std::uint32_t>(Tile::chunk_offset(c.row, c.column));
      for (int rows = 0; rows + 16 <= Tile::kRows; rows += 8)
        for (int chunks = 0; chunks + 2 <= Tile::kColumns / 8; chunks += 2)
          REQUIRE(Tile::advance(start, rows, chunks) ==
                  static_cast<std::uint32_t>(Tile::chunk_offset(c.row + rows, c.column + chunks)));
    }
}

TEST_CASE("tiles of queries and keys are bijective, free of conflicts, and advance in one step") {
  check_tile<SharedTile<64, 32>>();
  check_tile<SharedTile<128, 32>>();
  check_tile<SharedTile<64, 64>>();
  check_tile<SharedTile<128, 64>>();
  check_tile<SharedTile<64, 96>>();
  check_tile<SharedTile<128, 96>>();
  check_tile<SharedTile<64, 128>>();
  check_tile<SharedTile<64, 192>>();
  check_tile<SharedTile<32, 256>>();
  check_tile<SharedTile<64, 256>>();
}

TEST_CASE("tiles of pairs are bijective, free of conflicts, and advance in one step") {
  check_tile<SharedTile<64, 32>>();
  check_tile<SharedTile<32, 64>>();
  check_tile<SharedTile<128, 64>>();
  check_tile<SharedTile<128, 128>>();
}

}  // namespace
