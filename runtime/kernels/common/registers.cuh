// Statements without an instruction, which keep the compiler from holding in registers what can be had anew.
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

/// What was read from memory or written to it is read anew from here on, instead of staying in registers of which there
/// are none to spare.
__device__ __forceinline__ void reread_memory() {
  asm volatile("" ::: "memory");
}

}  // namespace flashdma_bwd::ptx
