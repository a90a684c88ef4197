// The functions of runtime/kernels/hopper/ptx.cuh on the emulated device.
#pragma once

#include <cuda.h>

#include "common/ptx.cuh"

namespace flashdma_bwd::ptx {

template <int Count>
void setmaxnreg_dec() {
  emulated::setmaxnreg(Count, false);
}
template <int Count>
void setmaxnreg_inc() {
  emulated::setmaxnreg(Count, true);
}
inline void barrier_sync(int name, int threads) {
  emulated::barrier_sync(name, static_cast<unsigned>(threads));
}
inline void barrier_arrive(int name, int threads) {
  emulated::barrier_arrive(name, static_cast<unsigned>(threads));
}

// --- The cluster ---

inline std::uint32_t mapa(std::uint32_t address, int rank) {
  return emulated::mapa(address, rank);
}
inline void barrier_cluster_sync() {
  emulated::barrier_cluster_sync();
}
inline int ld_shared_cluster_s32(std::uint32_t address) {
  int value;
  std::memcpy(&value, emulated::cluster_pointer(address, sizeof value), sizeof value);
  return value;
}

// --- Barrier objects ---

inline void fence_mbarrier_init() {}
inline void mbarrier_arrive_expect_tx(std::uint32_t barrier, std::uint32_t bytes) {
  emulated::mbarrier_arrive(barrier, bytes, false);
}
inline void mbarrier_arrive_cluster(std::uint32_t barrier) {
  emulated::mbarrier_arrive(barrier, 0, true);
}
inline void mbarrier_wait_parity(std::uint32_t barrier, std::uint32_t parity) {
  emulated::mbarrier_wait(barrier, parity);
}
inline void mbarrier_wait_parity(std::uint32_t barrier, std::uint32_t parity, bool completed) {
  if (!completed) emulated::mbarrier_wait(barrier, parity);
}
inline void mbarrier_wait_parity_long(std::uint32_t barrier, std::uint32_t parity) {
  emulated::mbarrier_wait(barrier, parity);
}
inline bool mbarrier_test_parity(std::uint32_t barrier, std::uint32_t parity) {
  return emulated::mbarrier_test(barrier, parity);
}

// --- The asynchronous proxy ---

inline void fence_proxy_async() {
  emulated::fence_proxy_async();
}
inline void fence_proxy_async_global() {}
inline constexpr std::uint64_t kEvictFirst = 0x12F0000000000000;
inline constexpr std::uint64_t kEvictLast = 0x14F0000000000000;
inline void prefetch_tensormap(const CUtensorMap&) {}

inline void cp_async_bulk_tensor_5d(std::uint32_t destination, const CUtensorMap& map, const int (&at)[5],
                                    std::uint32_t barrier, std::uint64_t) {
  emulated::copy_box_to_shared(destination, &map, at, 5, barrier, 0);
}
inline void cp_async_bulk_tensor_5d_multicast(std::uint32_t destination, const CUtensorMap& map, const int (&at)[5],
                                              std::uint32_t barrier, std::uint16_t ctas, std::uint64_t) {
  emulated::copy_box_to_shared(destination, &map, at, 5, barrier, ctas);
}
inline void cp_async_bulk_tensor_2d(std::uint32_t destination, const CUtensorMap& map, const int (&at)[2],
                                    std::uint32_t barrier) {
  emulated::copy_box_to_shared(destination, &map, at, 2, barrier, 0);
}
inline void cp_async_bulk_tensor_3d(std::uint32_t destination, const CUtensorMap& map, const int (&at)[3],
                                    std::uint32_t barrier) {
  emulated::copy_box_to_shared(destination, &map, at, 3, barrier, 0);
}
inline void cp_async_bulk_shared_cluster(std::uint32_t destination, std::uint32_t source, std::uint32_t bytes,
                                         std::uint32_t barrier) {
  emulated::copy_in_cluster(destination, source, bytes, barrier);
}
inline void cp_async_bulk_tensor_4d_store(const CUtensorMap& map, const int (&at)[4], std::uint32_t source,
                                          std::uint64_t) {
  emulated::copy_box_to_global(&map, at, 4, source);
}
inline void cp_async_bulk_tensor_5d_store(const CUtensorMap& map, const int (&at)[5], std::uint32_t source,
                                          std::uint64_t) {
  emulated::copy_box_to_global(&map, at, 5, source);
}
inline void cp_reduce_async_bulk_add(float* destination, std::uint32_t source, std::uint32_t bytes, std::uint64_t) {
  emulated::add_bulk(destination, source, bytes);
}
inline void cp_async_bulk_commit_group() {
  emulated::bulk_commit_group();
}
template <int Pending = 0>
void cp_async_bulk_wait_group_read() {
  emulated::bulk_wait_group(Pending, true);
}
template <int Pending = 0>
void cp_async_bulk_wait_group() {
  emulated::bulk_wait_group(Pending, false);
}

// --- Shared memory ---

inline void stmatrix_x4(std::uint32_t address, const std::uint32_t (&r)[4]) {
  emulated::stmatrix_x4(address, r, false);
}
inline void stmatrix_x4_trans(std::uint32_t address, const std::uint32_t (&r)[4]) {
  emulated::stmatrix_x4(address, r, true);
}
inline void st_shared_v2(std::uint32_t address, float x, float y) {
  st_shared(address, float2{x, y});
}
inline void st_shared_v4(std::uint32_t address, float x, float y, float z, float w) {
  st_shared(address, float4{x, y, z, w});
}
inline void st_shared_v4(std::uint32_t address, const uint4& v) {
  st_shared(address, v);
}
inline uint4 ld_shared_v4(std::uint32_t address) {
  return ld_shared<uint4>(address);
}
inline uint2 ld_shared_v2_b32(std::uint32_t address) {
  return ld_shared<uint2>(address);
}
inline std::uint32_t ld_shared_u16(std::uint32_t address) {
  return ld_shared<std::uint16_t>(address);
}
inline float ld_shared_f32(std::uint32_t address) {
  return ld_shared<float>(address);
}
inline float2 ld_shared_v2(std::uint32_t address) {
  return ld_shared<float2>(address);
}

// --- wgmma's ordering ---

inline void wgmma_fence() {
  emulated::wgmma_fence();
}
inline void wgmma_commit_group() {
  emulated::wgmma_commit_group();
}
template <int Pending>
void wgmma_wait_group() {
  emulated::wgmma_wait_group(Pending);
}

}  // namespace flashdma_bwd::ptx
