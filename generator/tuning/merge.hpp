// From measured problems to rows: the fewest that bring a table's choices near the best measured ones. Pure.
//
// A problem on which the table is near the best needs no row. The others are covered by boxes, each with a tile that is
// near the best on every measured problem of the box and on none of them slower, beyond the noise, than what the table
// chose before. A box ends where the measured problems in it end, so that no row speaks for what was not measured; the
// rows that were there decide the rest.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <span>
#include <vector>

#include "tuning/measured_problem.hpp"
#include "tuning/tuned_row.hpp"

namespace flashdma_bwd::generator {

/// The default of what a choice may be slower than the best measured one.
inline constexpr double kRegretBound = 0.03;

/// Rows to be put before those of their head dims. `rows` are those of the table before. By head dim, then by falling
/// number of problems. On measured problems the order does not matter: where boxes overlap, either tile is within
/// `bound`.
std::vector<TunedRow> merge(std::span<const Row> rows, Architecture architecture, const DeviceTraits& device,
                            std::span<const MeasuredProblem> measured, double bound = kRegretBound);

/// The rows of a table with tuned rows before those of their head dims. Provenance texts are left empty.
std::vector<Row> with_tuned_rows(std::span<const Row> rows, Architecture architecture, std::span<const TunedRow> tuned);

}  // namespace flashdma_bwd::generator
