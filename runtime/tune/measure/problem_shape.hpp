// Tensors for a problem of the tables: which mask, bias and strides make a call have this key. Pure.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>

#include "bench/device_problem.hpp"
#include "selection/parsed.hpp"

namespace flashdma_bwd::tune {

struct ProblemShape {
  bench::Problem problem;
  bench::DeviceProblemOptions options;  ///< without a kernel; a mask's plan is built once, for no tile changes its time
};

/// Masks are what dynamic mask attention makes where they differ for each query: the best keys of those that causality
/// leaves, or documents where it leaves all; blocks in the keys' own order; keys at random where all queries have the
/// same. An error where no tensors have the key.
Parsed<ProblemShape> shape_of(const Problem& problem);

/// A problem of the same kind that the CPU backend computes in seconds: at most 640 queries and keys, few heads.
Problem smaller_problem(const Problem& problem);

/// Floating-point operations of the products of a backward with all pairs.
double operations(const Problem& problem);

}  // namespace flashdma_bwd::tune
