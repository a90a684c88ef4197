// The forward pass in double precision, written straight from the public header's formulas and sharing no code with the
// backward that it judges: which keys a query sees, what a broadcast means and where a sequence lies are spelled out
// here once more.
#pragma once

#include <flashdma_bwd/flashdma_bwd.h>

#include <cstdint>
#include <vector>

namespace flashdma_bwd::testing {

/// Inputs of the forward that can be varied, widened: Q, K, V as [batch or 1, row, head, column], bias as [batch, head,
/// row, column].
struct ForwardInputs {
  std::vector<double> q, k, v, bias;
};

/// What the forward gives: O as Q, LSE (natural) as [batch or 1, row, head], minus infinity where a row is empty.
struct ForwardOutputs {
  std::vector<double> out, lse;
  double probability_square_sum = 0;
  double active_pairs = 0;
};

/// The inputs that the arguments (host pointers) point to.
ForwardInputs forward_inputs(const flashdma_bwd_arguments& arguments);

/// `arguments` gives sizes, mask and limits; its tensors are not read.
ForwardOutputs forward(const flashdma_bwd_arguments& arguments, const ForwardInputs& inputs, int threads = 0);

/// The sum over all active pairs of P (dP - D), with LSE and D held at the values that `arguments` gives: the function
/// whose gradients with respect to Q, K, V and bias are the backward's outputs for any O and LSE, even ones that no
/// forward produced.
double backward_potential(const flashdma_bwd_arguments& arguments, const ForwardInputs& inputs);

/// One row's scores, for tests of the identities: the keys it sees, ascending, and their scores.
struct ScoreRow {
  std::vector<std::int64_t> keys;
  std::vector<double> scores;
};
ScoreRow score_row(const flashdma_bwd_arguments& arguments, const ForwardInputs& inputs, std::int64_t batch,
                   std::int64_t head, std::int64_t query);

}  // namespace flashdma_bwd::testing
