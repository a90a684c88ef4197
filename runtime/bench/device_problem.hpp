// A problem in device memory: inputs with plausible contents, outputs and workspace, in several copies that a benchmark
// cycles through, so that one call does not find its inputs in the L2 cache because the call before used the same ones.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <flashdma_bwd/flashdma_bwd.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "problem.hpp"

namespace flashdma_bwd::bench {

/// Device memory that frees itself.
class DeviceMemory {
 public:
  /// Null with a CUDA error if there is not enough.
  cudaError_t allocate(std::size_t bytes);
  void* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(void* memory) const { cudaFree(memory); }
  };
  std::unique_ptr<void, Free> memory_;
};

struct DeviceProblemOptions {
  std::string kernel;       ///< canonical name, or empty: the table decides
  bool reuse_plan = false;  ///< the mask's plan is built once, not in each call, and its schedule
  bool schedule = true;     ///< with a plan that is built once
  std::int32_t mask_layout = FLASHDMA_BWD_MASK_AUTO;
  std::int32_t mask_density = 0;   ///< what the caller says of it, see flashdma_bwd_arguments; 0: what it is
  bool bias_of_all_heads = false;  ///< not one for each KV head
  bool unaligned_bias = false;     ///< tensor copies cannot move it: it begins 8 bytes behind a multiple of 16
  std::uint32_t flags = 0;
};

/// What a plan turned out to be.
struct PlanFound {
  std::string layout;  ///< empty: there is no plan
  std::int64_t masks = 0;
  std::optional<PlanSummary> tiles;  ///< of a reordered plan: the others count none
};

/// The word for a flashdma_bwd_key_layout; empty for a number that is none.
std::string layout_word(std::int32_t layout);

class DeviceProblem {
 public:
  /// Allocates and fills. On failure `ok` is false and `message` says why.
  DeviceProblem(const Problem& problem, const DeviceProblemOptions& options);
  DeviceProblem(const DeviceProblem&) = delete;
  DeviceProblem& operator=(const DeviceProblem&) = delete;

  bool ok() const { return message_.empty(); }
  const std::string& message() const { return message_; }
  /// Pairs that mask and causality leave, over all.
  double active_fraction() const { return active_fraction_; }
  const Arguments& arguments() const { return copies_.front(); }

  /// Enqueues one backward on the copy whose turn it is.
  Status backward(cudaStream_t stream);
  /// Enqueues one backward on the first copy: its inputs may be in the L2 cache from the time before.
  Status backward_again(cudaStream_t stream);

  /// Uses another kernel from now on, by its canonical name, and no schedule. On failure as the constructor.
  bool use_kernel(const std::string& kernel);

  /// Builds a plan of the mask, if there is one, which further backwards use. On failure as the constructor.
  bool make_plan();
  /// Enqueues the building of that plan anew.
  Status build_plan(cudaStream_t stream);
  const PlanFound& plan_found() const { return plan_found_; }

  /// Builds the schedule of that plan, which further backwards use, if these may have one and the options say so. On
  /// failure as the constructor.
  bool make_schedule();
  /// Whether there is one.
  bool is_scheduled() const { return copies_.front().schedule != nullptr; }
  /// Enqueues the building of that schedule anew.
  Status build_schedule(cudaStream_t stream);

 private:
  bool build(const Problem& problem, const DeviceProblemOptions& options);
  bool upload_shared(const Problem& problem, const DeviceProblemOptions& options);
  bool pack();
  bool fit_workspace();
  bool make_copy(std::uint64_t seed);
  bool look_at_plan();
  bool check(cudaError_t error, const char* what);
  bool check(const Status& status, const char* what);
  void* allocate(std::size_t bytes);
  void* upload(const void* data, std::size_t bytes);
  Tensor tensor(std::int64_t seqlen, std::int64_t heads, float deviation, std::uint64_t seed);
  PairTensor pair_tensor(void* data, std::int64_t heads, std::int64_t rows, std::int32_t data_type) const;
  void make_bias(const Problem& problem, const DeviceProblemOptions& options);

  std::vector<DeviceMemory> memory_;
  Arguments shared_;  ///< sizes, mask, bias, dBias and LSE: the same for all copies
  std::vector<Arguments> copies_;
  std::size_t turn_ = 0;
  DeviceMemory workspace_;
  std::size_t workspace_bytes_ = 0;
  MaskPlan plan_{};
  Arguments plan_arguments_;
  void* plan_memory_ = nullptr;
  std::size_t plan_bytes_ = 0;
  PlanFound plan_found_;
  bool may_be_scheduled_ = false;
  Schedule schedule_{};
  Arguments schedule_arguments_;
  DeviceMemory schedule_memory_;
  std::size_t schedule_bytes_ = 0;
  double active_fraction_ = 1;
  std::string kernel_;
  std::string message_;
};

}  // namespace flashdma_bwd::bench
