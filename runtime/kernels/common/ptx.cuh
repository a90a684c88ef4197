// PTX instructions as functions, one each, named as PTX names them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/registers.cuh"

namespace flashdma_bwd::ptx {

/// The 32-bit shared-window address of a pointer to shared memory.
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// The thread's number in its CTA, read anew: what is computed from it is recomputed where it is used, instead of
/// staying in registers through a loop that has none to spare.
__device__ __forceinline__ int fresh_thread_index() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;\n" : "=r"(index));
  return index;
}

/// Adds to a number in global memory, which tells of nothing else. Returns what it was.
__device__ __forceinline__ int atom_add_relaxed(std::int32_t* address, int value) {
  int old;
  asm volatile("atom.relaxed.gpu.global.add.s32 %0, [%1], %2;\n" : "=r"(old) : "l"(address), "r"(value) : "memory");
  return old;
}

/// The thread's number in its warp, from a register of its own: where the thread's number in its CTA is at hand as
/// well, ptxas computes both from one, and keeps what they share.
__device__ __forceinline__ unsigned lane_index() {
  unsigned index;
  asm volatile("mov.u32 %0, %%laneid;\n" : "=r"(index));
  return index;
}

/// Copies 16 bytes to shared memory asynchronously, past L1; zeros instead where `valid` is false (the source is not
/// read).
__device__ __forceinline__ void cp_async_16(std::uint32_t destination, const void* source, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(destination), "l"(source), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void cp_async_commit_group() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}
template <int Pending>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(Pending) : "memory");
}

/// Loads four 8 x 8 matrices of 16-bit elements, one row address a lane.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// d = a b + c for a 16 x 16 `a` and a 16 x 8 `b`.
template <bool Bf16>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                             std::uint32_t b1, const float (&c)[4]) {
  if constexpr (Bf16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};\n"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};\n"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

/// A barrier object in shared memory that threads can arrive at without waiting.
__device__ __forceinline__ void mbarrier_init(std::uint32_t address, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;\n" ::"r"(address), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(std::uint32_t address) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}\n" ::"r"(address) : "memory");
}
/// Whether the phase of this parity has completed.
__device__ __forceinline__ bool mbarrier_test_wait_parity(std::uint32_t address, int parity) {
  std::uint32_t done;
  asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
               : "=r"(done)
               : "r"(address), "r"(parity)
               : "memory");
  return done != 0;
}

__device__ __forceinline__ void st_shared_32(std::uint32_t address, std::uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(address), "r"(value) : "memory");
}

__device__ __forceinline__ void st_shared_f32(std::uint32_t address, float value) {
  asm volatile("st.shared.f32 [%0], %1;\n" ::"r"(address), "f"(value) : "memory");
}

__device__ __forceinline__ void red_add(float* address, float value) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;\n" ::"l"(address), "f"(value) : "memory");
}
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // the host's pass sees templates that use it
__device__ __forceinline__ void red_add_v4(float* address, const float (&v)[4]) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"l"(address), "f"(v[0]), "f"(v[1]),
               "f"(v[2]), "f"(v[3])
               : "memory");
}
#endif

__device__ __forceinline__ std::int32_t ld_acquire(const std::int32_t* address) {
  std::int32_t value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];\n" : "=r"(value) : "l"(address) : "memory");
  return value;
}
__device__ __forceinline__ void st_release(std::int32_t* address, std::int32_t value) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;\n" ::"l"(address), "r"(value) : "memory");
}

/// Returns what was there before.
__device__ __forceinline__ std::int32_t atom_add_acq_rel(std::int32_t* address, std::int32_t value) {
  std::int32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;\n" : "=r"(before) : "l"(address), "r"(value) : "memory");
  return before;
}

/// The kernel that is launched beside this one may begin when all CTAs have come here or are done; nothing before
/// compute capability 9.0, where none is.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}
/// Waits until the kernel beside which this one was launched is done and what it wrote is seen.
__device__ __forceinline__ void griddepcontrol_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

/// Two values rounded to nearest even, `high` in the upper half.
__device__ __forceinline__ std::uint32_t cvt_rn_bf16x2_f32(float high, float low) {
  std::uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ __forceinline__ std::uint32_t cvt_rn_f16x2_f32(float high, float low) {
  std::uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ __forceinline__ std::uint32_t fma_rn_bf16x2(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}
__device__ __forceinline__ std::uint32_t fma_rn_f16x2(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t sum;
  asm("fma.rn.f16x2 %0, %1, %2, %3;\n" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}
__device__ __forceinline__ std::uint32_t min_bf16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t smaller;
  asm("min.bf16x2 %0, %1, %2;\n" : "=r"(smaller) : "r"(a), "r"(b));
  return smaller;
}
__device__ __forceinline__ std::uint32_t min_f16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t smaller;
  asm("min.f16x2 %0, %1, %2;\n" : "=r"(smaller) : "r"(a), "r"(b));
  return smaller;
}

/// 2^x; 0 for -inf.
__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float rcp(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace flashdma_bwd::ptx
