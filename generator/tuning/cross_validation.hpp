// What tuned rows are worth on problems that they were not made from. Pure.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <span>

#include "tuning/merge.hpp"
#include "tuning/regret.hpp"

namespace flashdma_bwd::generator {

/// Which of `folds` parts a problem belongs to: a hash of its text, so that neither the order of the measurements nor
/// what else was measured matters.
int fold_of(const Problem& problem, int folds);

/// Tunes once for each part on the other parts and asks that table on the part that was held back. The regrets of all
/// parts together. `rows` are a table's without those that the tuner made (`chosen_by_people`), which may have been
/// made from the very part that is held back. Parts that are empty, or everything, are passed over.
Regrets cross_validate(std::span<const Row> rows, Architecture architecture, const DeviceTraits& device,
                       std::span<const MeasuredProblem> measured, double bound, int folds = 5);

}  // namespace flashdma_bwd::generator
