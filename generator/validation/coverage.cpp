// First match in file order, as set arithmetic.
#include "validation/coverage.hpp"

namespace flashdma_bwd::generator {

Coverage cover(const Table& table) {
  Coverage coverage;
  coverage.decided.resize(table.rows.size());
  coverage.hiders.resize(table.rows.size());
  for (const int head_dim : kHeadDimBuckets) {
    std::vector<Region> undecided{whole_domain()};
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      const TableRow& row = table.rows[i];
      if (row.when.head_dim != head_dim) continue;
      const Region box = region_of(row.when);
      coverage.decided[i] = simplify(intersect(undecided, box));
      undecided = subtract(undecided, box);
      if (!coverage.decided[i].empty()) continue;
      for (std::size_t j = 0; j < i; ++j)
        if (table.rows[j].when.head_dim == head_dim && !intersect(coverage.decided[j], box).empty())
          coverage.hiders[i].push_back(j);
    }
    if (!undecided.empty()) coverage.holes.push_back({head_dim, simplify(std::move(undecided))});
  }
  return coverage;
}

}  // namespace flashdma_bwd::generator
