// A warp of a consumer warpgroup: its place there, and how it waits and arrives at barrier objects.
#pragma once

#include "hopper/ptx.cuh"

namespace flashdma_bwd::hopper {

__device__ __forceinline__ int lane() {
  return static_cast<int>(static_cast<unsigned>(ptx::fresh_thread_index()) % 32);
}
/// Of the warpgroup's four.
__device__ __forceinline__ int warp() {
  return static_cast<int>(static_cast<unsigned>(ptx::fresh_thread_index()) / 32 % 4);
}

/// Until the phase of this parity has completed.
__device__ __forceinline__ void wait(std::uint64_t& barrier, std::uint32_t parity) {
  ptx::mbarrier_wait_parity(ptx::shared_address(&barrier), parity);
}
/// Whether it has. An answer takes some 70 clocks: who asks before other work need not wait for it behind that.
__device__ __forceinline__ bool has_come(std::uint64_t& barrier, std::uint32_t parity) {
  return ptx::mbarrier_test_parity(ptx::shared_address(&barrier), parity);
}
/// Until the phase has completed, unless it is known to have come.
__device__ __forceinline__ void wait(std::uint64_t& barrier, std::uint32_t parity, bool came) {
  ptx::mbarrier_wait_parity(ptx::shared_address(&barrier), parity, came);
}
/// A word of shared memory, read where this stands, by all lanes: else ptxas may read it later, where some lanes need
/// it. Who arrives for a warp orders what it has read itself; for other lanes' reads racecheck sees no order
/// (NOTES.md).
template <class T>
__device__ __forceinline__ T read_here(const T& word) {
  return *static_cast<const volatile T*>(&word);
}
/// Arrives for the warp, whose lanes have all come this far.
template <int kLane = 0>
__device__ __forceinline__ void arrive(std::uint64_t& barrier) {
  if (lane() == kLane) ptx::mbarrier_arrive(ptx::shared_address(&barrier));
}

}  // namespace flashdma_bwd::hopper
