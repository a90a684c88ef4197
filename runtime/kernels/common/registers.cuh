// What tells the compiler where to keep a value: not in registers what can be had anew, and in a uniform register what
// is the same for all lanes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace flashdma_bwd::ptx {

/// The value itself, of which the compiler cannot know that it is the same every time: what is computed from it stays
/// where it is used, instead of in registers through a loop that has none to spare.
__device__ __forceinline__ std::uint32_t opaque(std::uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

template <class T>
__device__ __forceinline__ T* opaque(T* pointer) {
  asm volatile("" : "+l"(pointer));
  return pointer;
}

/// The value itself, the same for all lanes of the warp, of which the compiler now knows that it is: it may live in a
/// uniform register, and where it decides a branch, all lanes stay together.
template <class T>
__device__ __forceinline__ T uniform(T value) {
  return __shfl_sync(0xffffffffu, value, 0);
}

/// The same of a number, by a reduction, which leaves it in a uniform register itself: no product that takes it is
/// preceded by a move there.
template <class T>
__device__ __forceinline__ T in_uniform_register(T number) {
  return __reduce_max_sync(0xffffffffu, number);
}

/// What was read from memory or written to it is read anew from here on, instead of staying in registers of which there
/// are none to spare.
__device__ __forceinline__ void reread_memory() {
  asm volatile("" ::: "memory");
}

}  // namespace flashdma_bwd::ptx
