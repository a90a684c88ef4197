// Kernels that are launched while their predecessors still run (programmatic dependent launch, compute capability 9.0).
//
// A chain is the passes of a reordered plan, or what a backward enqueues from the tile list or the preprocess kernel
// on. Its first kernel is launched when everything before it is done. Each lets its successor be launched when all its
// own CTAs have been, and waits for its predecessor before it reads anything of what that writes. A predecessor is done
// when it has waited for its own, so that a kernel which waits finds the results of all before it. What a predecessor
// writes must not be read by way of the read-only cache (__ldg), whose loads may be moved before the wait. Before the
// wait only what was complete before the chain began may be read, or, where the predecessor had waited before it let
// this one launch, what that waited for, by way of the L2 cache (__ldcg).
//
// Kernels that do not need their predecessor run beside its last CTAs, and wait for it at their end: the rows of the
// preprocess kernel (in a plan's chain beside the ordering of keys, which leaves most of the GPU idle), the clearing of
// dK and dV, and of the kernels behind the main one all but the first, which lets them be launched when that is done.
#pragma once

#include "common/ptx.cuh"

namespace flashdma_bwd {

/// For all threads of a kernel, before anything else.
__device__ __forceinline__ void wait_for_predecessor() {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
}

/// The same for the first kernel of a chain, which is launched when everything before it is done.
__device__ __forceinline__ void let_successor_launch() {
  ptx::griddepcontrol_launch_dependents();
}

/// For a kernel whose successors read what its predecessor writes, before anything else.
__device__ __forceinline__ void wait_for_predecessor_of_all() {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
}

/// For a kernel that needs what the main one wrote, at its beginning and its end. `first`: behind it.
__device__ __forceinline__ void begin_behind_main(bool first) {
  if (first)
    wait_for_predecessor_of_all();
  else
    let_successor_launch();
}
__device__ __forceinline__ void end_behind_main(bool first) {
  if (!first) wait_for_predecessor();
}

}  // namespace flashdma_bwd
