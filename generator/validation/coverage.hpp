// Which row of a table decides which problems: what each row is left with after those before it, and what nobody
// decides.
#pragma once

#include <cstddef>
#include <vector>

#include "config/model.hpp"
#include "validation/region.hpp"

namespace flashdma_bwd::generator {

struct Coverage {
  std::vector<std::vector<Region>> decided;      ///< by row: disjoint boxes, none where earlier rows hide the row
  std::vector<std::vector<std::size_t>> hiders;  ///< by row without boxes: the earlier rows that decide its problems
  struct Hole {
    int head_dim = 0;
    std::vector<Region> regions;
  };
  std::vector<Hole> holes;  ///< by head dim
};

Coverage cover(const Table& table);

}  // namespace flashdma_bwd::generator
