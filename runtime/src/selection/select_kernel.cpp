// The choice of a kernel.
#include "selection/select_kernel.hpp"

#include <flashdma_bwd/kernel_resources.hpp>

namespace flashdma_bwd {

KernelConfig configuration_of(const Row& row, const Problem& problem) {
  return {row.architecture, row.when.head_dim, problem.data_type, problem.bias, problem.softcap, row.use};
}

Condition first_failed_condition(const Row& row, const Problem& problem, const DeviceTraits& device) {
  const When& when = row.when;
  if (when.head_dim != head_dim_bucket(problem.head_dim)) return Condition::head_dim;
  if (!when.data_types.contains(problem.data_type)) return Condition::data_type;
  if (!when.biases.contains(problem.bias)) return Condition::bias;
  if (!when.layouts.contains(problem.layout)) return Condition::layout;
  // Whatever a row says, its kernel moves tiles of a bias in one way.
  if (!admits(when.bias_copies, problem.bias_copies) ||
      (copies_bias(row.use.family, problem.bias) && !problem.bias_copies))
    return Condition::bias_copies;
  if (!admits(when.softcap, problem.softcap)) return Condition::softcap;
  if (!admits(when.causal, problem.causal)) return Condition::causal;
  if (!admits(when.deterministic, problem.deterministic)) return Condition::deterministic;
  if (!admits(when.masked, problem.masked)) return Condition::masked;
  if (!when.seqlen_q.contains(queries_of_key(problem))) return Condition::seqlen_q;
  if (!when.seqlen_k.contains(problem.seqlen_k)) return Condition::seqlen_k;
  if (!when.work_items_per_sm.contains(work_items_per_sm(problem, device))) return Condition::work_items_per_sm;
  if (!when.mask_density.contains(problem.mask_density)) return Condition::mask_density;
  if (shared_memory_bytes(configuration_of(row, problem)) > device.shared_memory_per_block)
    return Condition::shared_memory;
  return Condition::none;
}

SelectionResult select_among(Architecture architecture, const DeviceTraits& device, const Problem& problem,
                             std::span<const Row> rows) {
  SelectionResult result;
  if (!is_supported_head_dim(problem.head_dim)) {
    result.status = SelectionStatus::unsupported_head_dim;
    return result;
  }
  for (const Row& row : rows)
    if (row.architecture == architecture && first_failed_condition(row, problem, device) == Condition::none) {
      result.status = SelectionStatus::ok;
      result.row = &row;
      result.config = configuration_of(row, problem);
      return result;
    }
  result.status = SelectionStatus::no_row;
  return result;
}

SelectionResult select_kernel(const DeviceTraits& device, const Problem& problem, std::span<const Row> rows,
                              ArchitectureSet compiled) {
  SelectionResult result;
  result.status = SelectionStatus::unsupported_architecture;
  for (const FallbackStep& step : kFallbackChain) {
    if (!applies(step, device.compute_capability) || !compiled.contains(step.architecture)) continue;
    result = select_among(step.architecture, device, problem, rows);
    result.tier = step.tier;
    result.form = step.form;
    if (result.status != SelectionStatus::no_row) return result;
  }
  return result;
}

}  // namespace flashdma_bwd
