// A call on the current GPU, from its arguments to its kernel: validated, chosen, not launched.
#pragma once

#include <flashdma_bwd/flashdma_bwd.h>

#include <cstddef>

#include "failure.hpp"
#include "launch/launch.hpp"
#include "resolve.hpp"

namespace flashdma_bwd {

class TuneSession;

/// Filled in by the functions below, as far as each gets.
struct PreparedCall {
  flashdma_bwd_arguments arguments;
  int piece_steps = 0;
  bool idle = false;  ///< there is nothing to compute, and no more is filled in
  Request request;
  Resolution resolution;
  TuneSession* tuning = nullptr;
  CacheAnswer cache = CacheAnswer::not_asked;  ///< before anything was measured

  /// Of the kernel that was chosen.
  std::size_t workspace_bytes() const {
    return backward_workspace_bytes(arguments, resolution.config, request.device, piece_steps);
  }
  /// The same. Without queries, keys or heads there is nothing to schedule.
  ScheduleShape schedule() const {
    if (idle || arguments.plan == nullptr) return {};
    return schedule_shape(arguments, resolution.config, request.device, piece_steps);
  }
};

/// What is asked of selection, but for the GPU.
Check take_request(const flashdma_bwd_arguments& arguments, Request& request);

/// Whether a call is like the one that its schedule was built for. `config`: of the kernel that was chosen.
Check check_schedule_fits(const flashdma_bwd_arguments& arguments, const Request& request, const KernelConfig& config);

/// All but the resolution.
Check prepare_request(const flashdma_bwd_arguments* arguments, PreparedCall& call);

/// With it.
Check prepare_call(const flashdma_bwd_arguments* arguments, PreparedCall& call);

/// The same of a call whose schedule is asked for, and which has none.
Check prepare_schedule(const flashdma_bwd_arguments* arguments, PreparedCall& call);

}  // namespace flashdma_bwd
