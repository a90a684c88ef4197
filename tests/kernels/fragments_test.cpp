// Fragment maps: each element of a block belongs to one lane and register, and dQ's scratch holds each once.
#include "common/fragments.hpp"

#include <set>
#include <utility>

#include "support/catch.hpp"

namespace {

using namespace flashdma_bwd;

TEST_CASE("an accumulator atom's elements are spread over the lanes without gaps") {
  std::set<std::pair<int, int>> elements;
  for (int lane = 0; lane < 32; ++lane)
    for (int index = 0; index < 4; ++index) {
      const Coordinate c = accumulator_coordinate(lane, index);
      CHECK((c.row >= 0 && c.row < 16 && c.column >= 0 && c.column < 8));
      elements.insert({c.row, c.column});
    }
  CHECK(elements.size() == 16 * 8);
  // What the kernels store as one 32-bit word: two neighbouring columns of a row.
  for (int lane = 0; lane < 32; ++lane)
    for (int half = 0; half < 2; ++half) {
      const Coordinate low = accumulator_coordinate(lane, half * 2);
      CHECK(accumulator_coordinate(lane, half * 2 + 1) == Coordinate{low.row, low.column + 1});
    }
}

TEST_CASE("the lanes of ldmatrix name each row of the four matrices once, in the order of the operand") {
  for (const MatrixOrder order : {MatrixOrder::rows_first, MatrixOrder::chunks_first}) {
    std::set<std::pair<int, int>> rows;
    for (int lane = 0; lane < 32; ++lane) {
      const Coordinate c = ldmatrix_coordinate(order, lane);
      rows.insert({c.row, c.column});
      // Lanes 8 i ... 8 i + 7 are the rows of matrix i.
      CHECK(c.row % 8 == lane % 8);
    }
    CHECK(rows.size() == 32);
  }
  // Matrix 1 of an A operand lies below matrix 0, of a B operand beside it.
  CHECK(ldmatrix_coordinate(MatrixOrder::rows_first, 8) == Coordinate{8, 0});
  CHECK(ldmatrix_coordinate(MatrixOrder::chunks_first, 8) == Coordinate{0, 1});
}

TEST_CASE("an atom of dQ's scratch holds each element once, in both orders") {
  for (const bool vectorised : {false, true}) {
    std::set<int> offsets;
    for (int lane = 0; lane < 32; ++lane)
      for (int index = 0; index < 4; ++index) offsets.insert(atom_offset(vectorised, lane, index));
    CHECK(offsets.size() == kAtomFloats);
    CHECK(*offsets.begin() == 0);
    CHECK(*offsets.rbegin() == kAtomFloats - 1);
  }
  // A lane's four are one 16-byte reduction; or a warp's 32 of one index are 128 neighbouring bytes.
  CHECK(atom_offset(true, 5, 3) == atom_offset(true, 5, 0) + 3);
  CHECK(atom_offset(false, 31, 2) == atom_offset(false, 0, 2) + 31);
}

}  // namespace
