// Boxes of problems that a row may speak for: within what was measured, and nowhere else. Pure.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <span>

#include "validation/region.hpp"

namespace flashdma_bwd::generator {

/// The problem alone, as a box.
Region point_of(const Problem& problem, const DeviceTraits& device);

/// The smallest box that holds both.
Region hull(const Region& a, const Region& b);

bool holds(const Region& box, const Region& point);

/// Whether every kind of problem in `box` (a value on each axis that is a set) was measured up to all of its ends:
/// `points`, those of the box, reach as far as it does. A box that is a hull of points of one kind is always measured.
bool is_measured(const Region& box, std::span<const Region> points);

/// The condition that holds for the problems of a box and no others. What no problem can be is left out: tensor copies
/// of no tile bias, layouts and densities of no mask.
When condition_of(int head_dim, const Region& box);

/// How far apart two boxes are, for trying near ones first: axes that differ as sets count most.
double distance(const Region& a, const Region& b);

}  // namespace flashdma_bwd::generator
