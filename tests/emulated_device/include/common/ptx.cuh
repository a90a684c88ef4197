// The functions of runtime/kernels/common/ptx.cuh on the emulated device.
#pragma once

#include "common/registers.cuh"
#include "emulated_device/emulator.hpp"

namespace flashdma_bwd::ptx {

inline std::uint32_t shared_address(const void* pointer) {
  return emulated::shared_address(pointer);
}
inline int fresh_thread_index() {
  return static_cast<int>(emulated::place->thread.x);
}
inline unsigned lane_index() {
  return static_cast<unsigned>(emulated::place->lane);
}

// --- Global memory ---

inline int atom_add_relaxed(std::int32_t* address, int value) {
  return atomicAdd(address, value);
}
inline std::int32_t atom_add_acq_rel(std::int32_t* address, std::int32_t value) {
  return atomicAdd(address, value);
}
inline void red_add(float* address, float value) {
  *address += value;
}
inline void red_add_v4(float* address, const float (&v)[4]) {
  if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0) emulated::fail("red.v4 to a misaligned address");
  for (int i = 0; i < 4; ++i) address[i] += v[i];
}
/// Who reads a word in order to wait for another value lets others run.
inline std::int32_t ld_acquire(const std::int32_t* address) {
  emulated::yield();
  return *address;
}
inline void st_release(std::int32_t* address, std::int32_t value) {
  *address = value;
  emulated::memory_changed();
}

// --- Copies and matrices ---

inline void cp_async_16(std::uint32_t destination, const void* source, bool valid) {
  emulated::cp_async_16(destination, source, valid);
}
inline void cp_async_commit_group() {
  emulated::cp_async_commit_group();
}
template <int Pending>
void cp_async_wait_group() {
  emulated::cp_async_wait_group(Pending);
}
inline void ldmatrix_x4(std::uint32_t (&r)[4], std::uint32_t address) {
  emulated::ldmatrix_x4(r, address, false);
}
inline void ldmatrix_x4_trans(std::uint32_t (&r)[4], std::uint32_t address) {
  emulated::ldmatrix_x4(r, address, true);
}
template <bool Bf16>
void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, const float (&c)[4]) {
  emulated::mma_m16n8k16(d, a, b0, b1, c, Bf16);
}

// --- Barrier objects and shared memory ---

inline void mbarrier_init(std::uint32_t address, int arrivals) {
  emulated::mbarrier_init(address, arrivals);
}
inline void mbarrier_arrive(std::uint32_t address) {
  emulated::mbarrier_arrive(address, 0, false);
}
inline bool mbarrier_test_wait_parity(std::uint32_t address, int parity) {
  return emulated::mbarrier_test(address, static_cast<std::uint32_t>(parity));
}
template <class T>
void st_shared(std::uint32_t address, const T& value) {
  std::memcpy(emulated::shared_pointer(address, sizeof value), &value, sizeof value);
  emulated::wrote_shared(address, sizeof value);
}
template <class T>
T ld_shared(std::uint32_t address) {
  T value;
  std::memcpy(&value, emulated::shared_pointer(address, sizeof value), sizeof value);
  return value;
}
inline void st_shared_32(std::uint32_t address, std::uint32_t value) {
  st_shared(address, value);
}
inline void st_shared_f32(std::uint32_t address, float value) {
  st_shared(address, value);
}

// --- Launches, which come one after the other ---

inline void griddepcontrol_launch_dependents() {}
inline void griddepcontrol_wait() {}

// --- Numbers ---

inline std::uint32_t cvt_rn_bf16x2_f32(float high, float low) {
  return emulated::pack_bf16(low, high);
}
inline std::uint32_t cvt_rn_f16x2_f32(float high, float low) {
  return emulated::pack_fp16(low, high);
}
inline std::uint32_t fma_rn_bf16x2(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  return emulated::fma_bf16(a, b, c);
}
inline std::uint32_t fma_rn_f16x2(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  return emulated::fma_fp16(a, b, c);
}
inline std::uint32_t min_bf16x2(std::uint32_t a, std::uint32_t b) {
  return emulated::min_bf16(a, b);
}
inline std::uint32_t min_f16x2(std::uint32_t a, std::uint32_t b) {
  return emulated::min_fp16(a, b);
}
inline std::uint32_t add_u32(std::uint32_t a, std::uint32_t b) {
  return a + b;
}

/// Subnormal results are 0, as with .ftz.
inline float flushed(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}
inline float ex2(float x) {
  return flushed(std::exp2(flushed(x)));
}
inline float rcp(float x) {
  return flushed(1.0f / flushed(x));
}

}  // namespace flashdma_bwd::ptx
