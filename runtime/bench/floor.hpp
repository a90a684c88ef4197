// The floor of a problem's time: its floating-point operations at a dense ceiling, or its bytes at a copy's bandwidth,
// whichever takes longer. Pure functions; the ceilings are measured elsewhere.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <string>

#include "problem.hpp"

namespace flashdma_bwd::bench {

/// Bytes that a backward cannot but move once: each input read, each output written.
struct Traffic {
  double tensors = 0;  ///< Q, K, V, O, dO, dQ, dK, dV
  double lse = 0;
  double bias = 0;  ///< with its gradient
  double mask = 0;  ///< what building the plan reads
  double plan = 0;  ///< what reading a plan that is there reads, at least
  double total() const { return tensors + lse + bias + mask + plan; }
};

struct Work {
  double flops = 0;  ///< 10 * active pairs * d: five matrix products
  Traffic bytes;
};

/// Whether a call builds its mask's plan or is given one.
enum class PlanUse { built, given };

/// The work of a benchmark's problem. `active_fraction`: pairs that mask and causality leave, over all b * h * sq * sk.
Work work_of(const Problem& problem, double active_fraction, PlanUse plan);

/// The work of a problem as selection sees it. Less is known of it, so it counts less: a bias as if it were broadcast
/// over batch and heads and had no gradient, no mask and no plan, and of the pairs that causality leaves the caller's
/// estimate of the density. A limit on one side alone is counted as causality, a window by its width.
Work work_of(const flashdma_bwd::Problem& problem);

/// What a GPU reaches where nothing else holds it up. 0: not known.
struct Ceilings {
  double dense_tflops = 0;
  double copy_gb_per_s = 0;  ///< read and written, 10^9 bytes a second
  std::string dense_source;  ///< where the first comes from
  std::string copy_source;   ///< where the second does
};

enum class Bound { unknown, compute, memory };

struct Floor {
  double compute_ms = 0;  ///< 0: no ceiling
  double memory_ms = 0;   ///< 0: no ceiling
  double ms = 0;          ///< the longer of both; 0: neither is known
  Bound bound = Bound::unknown;
};

Floor floor_of(const Work& work, const Ceilings& ceilings);

/// "compute", "memory" or "unknown".
const char* bound_word(Bound bound);

}  // namespace flashdma_bwd::bench
