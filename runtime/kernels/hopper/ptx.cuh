// PTX instructions of compute capability 9.0 as functions, one each, named as PTX names them. wgmma.mma_async is in
// wgmma.cuh. Shared-memory addresses are 32-bit addresses of the shared window.
#pragma once

#include <cuda.h>

#include "common/ptx.cuh"

namespace flashdma_bwd::ptx {

/// Registers of each thread of the warpgroup from here on; a multiple of 8.
template <int Count>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(Count));
}
template <int Count>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(Count));
}

/// Waits for `threads` threads of the CTA at the named barrier.
__device__ __forceinline__ void barrier_sync(int name, int threads) {
  asm volatile("barrier.sync %0, %1;\n" ::"r"(name), "r"(threads) : "memory");
}
/// Is one of the `threads` threads that those who wait at the named barrier wait for.
__device__ __forceinline__ void barrier_arrive(int name, int threads) {
  asm volatile("barrier.arrive %0, %1;\n" ::"r"(name), "r"(threads) : "memory");
}

// --- The cluster ---

/// The address of the same place in the shared memory of the cluster's CTA `rank`.
__device__ __forceinline__ std::uint32_t mapa(std::uint32_t address, int rank) {
  std::uint32_t mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}
/// Waits for all threads of the cluster.
__device__ __forceinline__ void barrier_cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n" ::: "memory");
}
__device__ __forceinline__ int ld_shared_cluster_s32(std::uint32_t address) {
  int value;
  asm volatile("ld.shared::cluster.s32 %0, [%1];\n" : "=r"(value) : "r"(address) : "memory");
  return value;
}

// --- Barrier objects ---

/// Makes initialised barriers visible to the asynchronous proxy.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}
/// Arrives and announces `bytes` that copies will complete in this phase.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes) : "memory");
}
/// Arrives at a barrier of any CTA of the cluster, at an address of mapa. It orders this thread's accesses within its
/// own CTA only: enough to give a buffer back that has been read, and without the wait for this thread's additions to
/// global memory that release.cluster would be.
__device__ __forceinline__ void mbarrier_arrive_cluster(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cluster.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}
/// Waits until the phase of this parity has completed.
__device__ __forceinline__ void mbarrier_wait_parity(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "wait_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished_%=;\n"
      "bra wait_%=;\n"
      "finished_%=:\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// The same, but for a test that was made before and found it completed.
__device__ __forceinline__ void mbarrier_wait_parity(std::uint32_t barrier, std::uint32_t parity, bool completed) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "setp.ne.u32 done, %2, 0;\n"
      "@done bra finished_%=;\n"
      "wait_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished_%=;\n"
      "bra wait_%=;\n"
      "finished_%=:\n}\n" ::"r"(barrier),
      "r"(parity), "r"(static_cast<std::uint32_t>(completed))
      : "memory");
}

/// The same, expected to take long: the warp sleeps, up to 10 ms at a time.
__device__ __forceinline__ void mbarrier_wait_parity_long(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "wait_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1, 10000000;\n"
      "@done bra finished_%=;\n"
      "bra wait_%=;\n"
      "finished_%=:\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// Whether it has completed.
__device__ __forceinline__ bool mbarrier_test_parity(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{\n.reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n}\n"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// --- The asynchronous proxy ---

/// Orders writes to shared memory before later accesses of the asynchronous proxy: wgmma's operands, bulk copies. They
/// are this thread's, and those of other threads of the CTA that it knows of: who has waited at a barrier object at
/// which the writers arrived can do it for them, for then the fence lies on the way from write to access in causality
/// order (PTX ISA, "Memory consistency model"; Lustig et al., "Mixed-Proxy Extensions for the NVIDIA PTX Memory
/// Consistency Model", 2022). A thread waits here until its own stores are done; writers that leave the fence to
/// another one do not.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

/// L2 priorities of copies, as createpolicy encodes them.
inline constexpr std::uint64_t kEvictFirst = 0x12F0000000000000;
inline constexpr std::uint64_t kEvictLast = 0x14F0000000000000;

__device__ __forceinline__ void prefetch_tensormap(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(&map) : "memory");
}
/// Copies the box at these coordinates (innermost first) to shared memory; elements outside the tensor become 0. The
/// whole box counts at the barrier.
__device__ __forceinline__ void cp_async_bulk_tensor_5d(std::uint32_t destination, const CUtensorMap& map,
                                                        const int (&at)[5], std::uint32_t barrier,
                                                        std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1, {%2, %3, %4, %5, %6}], [%7], %8;\n" ::"r"(destination),
      "l"(&map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]), "r"(barrier), "l"(policy)
      : "memory");
}
/// Copies the box to this place of all CTAs of the cluster whose bit in `ctas` is set, each with its own barrier.
__device__ __forceinline__ void cp_async_bulk_tensor_5d_multicast(std::uint32_t destination, const CUtensorMap& map,
                                                                  const int (&at)[5], std::uint32_t barrier,
                                                                  std::uint16_t ctas, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
      "[%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8, %9;\n" ::"r"(destination),
      "l"(&map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]), "r"(barrier), "h"(ctas), "l"(policy)
      : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_2d(std::uint32_t destination, const CUtensorMap& map,
                                                        const int (&at)[2], std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];\n" ::"r"(
          destination),
      "l"(&map), "r"(at[0]), "r"(at[1]), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_3d(std::uint32_t destination, const CUtensorMap& map,
                                                        const int (&at)[3], std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];\n" ::"r"(destination),
      "l"(&map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(barrier)
      : "memory");
}
/// Copies `bytes` (a multiple of 16) of this CTA's shared memory to that of a CTA of the cluster, whose barrier counts
/// them; `destination` and `barrier` are addresses of mapa.
__device__ __forceinline__ void cp_async_bulk_shared_cluster(std::uint32_t destination, std::uint32_t source,
                                                             std::uint32_t bytes, std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(
                   destination),
               "r"(source), "r"(bytes), "r"(barrier)
               : "memory");
}
/// Copies a box from shared memory to these coordinates; elements outside the tensor are left out. It belongs to the
/// thread's bulk group.
__device__ __forceinline__ void cp_async_bulk_tensor_4d_store(const CUtensorMap& map, const int (&at)[4],
                                                              std::uint32_t source, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%1, %2, %3, %4}], [%5], %6;\n" ::"l"(
          &map),
      "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(source), "l"(policy)
      : "memory");
}
__device__ __forceinline__ void cp_async_bulk_tensor_5d_store(const CUtensorMap& map, const int (&at)[5],
                                                              std::uint32_t source, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%1, %2, %3, %4, %5}], [%6], %7;\n" ::
          "l"(&map),
      "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]), "r"(source), "l"(policy)
      : "memory");
}
/// Adds `bytes` of float32 in shared memory to those at `destination`.
__device__ __forceinline__ void cp_reduce_async_bulk_add(float* destination, std::uint32_t source, std::uint32_t bytes,
                                                         std::uint64_t policy) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.add.f32 [%0], [%1], %2, %3;\n" ::"l"(
                   destination),
               "r"(source), "r"(bytes), "l"(policy)
               : "memory");
}
__device__ __forceinline__ void cp_async_bulk_commit_group() {
  asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}
/// Waits until this thread's bulk copies from shared memory, but for the newest `Pending` groups, have read it.
template <int Pending = 0>
__device__ __forceinline__ void cp_async_bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;\n" ::"n"(Pending) : "memory");
}
/// Waits until they have also been performed.
template <int Pending = 0>
__device__ __forceinline__ void cp_async_bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;\n" ::"n"(Pending) : "memory");
}
/// Orders accesses of the asynchronous proxy to global memory with this thread's own.
__device__ __forceinline__ void fence_proxy_async_global() {
  asm volatile("fence.proxy.async.global;\n" ::: "memory");
}

// --- Matrices of 16-bit elements ---

/// Stores four 8 x 8 matrices, one row address a lane.
__device__ __forceinline__ void stmatrix_x4(std::uint32_t address, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(address), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
__device__ __forceinline__ void stmatrix_x4_trans(std::uint32_t address, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(address), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

__device__ __forceinline__ void st_shared_v2(std::uint32_t address, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};\n" ::"r"(address), "f"(x), "f"(y) : "memory");
}
__device__ __forceinline__ void st_shared_v4(std::uint32_t address, float x, float y, float z, float w) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"r"(address), "f"(x), "f"(y), "f"(z), "f"(w) : "memory");
}
__device__ __forceinline__ void st_shared_v4(std::uint32_t address, const uint4& v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ __forceinline__ uint4 ld_shared_v4(std::uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
__device__ __forceinline__ uint2 ld_shared_v2_b32(std::uint32_t address) {
  uint2 v;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];\n" : "=r"(v.x), "=r"(v.y) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ std::uint32_t ld_shared_u16(std::uint32_t address) {
  std::uint16_t v;
  asm volatile("ld.shared.u16 %0, [%1];\n" : "=h"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ float ld_shared_f32(std::uint32_t address) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];\n" : "=f"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ float2 ld_shared_v2(std::uint32_t address) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];\n" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
  return v;
}

// --- wgmma's ordering ---

/// Orders this warpgroup's writes to registers before its next products.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
/// Waits until at most `Pending` of the newest groups are unfinished.
template <int Pending>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(Pending) : "memory");
}

}  // namespace flashdma_bwd::ptx
