// The words of CUDA C++ for a host compiler, on the emulated device. Every file of device code is compiled with this in
// front of it, and with this folder's common/ and hopper/ in front of the kernels', whose PTX they replace.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "emulated_device/emulator.hpp"

// Behind the headers above, which have host code of their own.
#define __CUDA_ARCH__ 900
#define __CUDA_ARCH_FEAT_SM90_ALL 1
#undef __shared__
#define __shared__ thread_local  // a CTA is an OS thread
#undef __grid_constant__
#define __grid_constant__
#define threadIdx (::flashdma_bwd::emulated::place->thread)
#define blockIdx (::flashdma_bwd::emulated::place->block)
#undef __launch_bounds__
#define __launch_bounds__(...)
#define cudaLaunchKernelEx ::flashdma_bwd::emulated::launch

namespace flashdma_bwd::emulated {

inline void check_full(unsigned mask) {
  if (mask != ~0u) fail("a collective of some lanes only");
}
/// Combines all lanes' values.
template <class T, class Combine>
T reduce(const char* what, unsigned mask, T value, Combine&& combine) {
  check_full(mask);
  const Slot* slots = exchange(what, value);
  T all = take<T>(slots[0]);
  for (int lane = 1; lane < 32; ++lane) all = combine(all, take<T>(slots[lane]));
  return all;
}
/// The value of the lane that source(own lane) says.
template <class T, class Source>
T shuffle(const char* what, unsigned mask, T value, Source&& source) {
  check_full(mask);
  const int lane = place->lane;
  const Slot* slots = exchange(what, value);
  const int from = source(lane);
  return from < 0 || from > 31 ? value : take<T>(slots[from]);
}
template <class T, class Change>
T change(T* address, Change&& how) {
  memory_changed();
  const T before = *address;
  *address = how(before);
  return before;
}

/// What the kernel may not have is an error of the launch (cuda_runtime.cpp).
cudaError_t check_launch(const void* kernel, const LaunchShape& shape);
template <class... Parameters, class... Arguments>
cudaError_t launch(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Arguments&&... arguments) {
  LaunchShape shape{config->gridDim, config->blockDim, 1, config->dynamicSmemBytes};
  for (unsigned i = 0; i < config->numAttrs; ++i)
    if (config->attrs[i].id == cudaLaunchAttributeClusterDimension)
      shape.ctas_per_cluster = config->attrs[i].val.clusterDim.x;
  const cudaError_t error = check_launch(reinterpret_cast<const void*>(kernel), shape);
  if (error != cudaSuccess) return error;
  const std::tuple<std::decay_t<Parameters>...> values(static_cast<Arguments&&>(arguments)...);
  run_grid(shape, [&] { std::apply(kernel, values); });
  return cudaSuccess;
}

}  // namespace flashdma_bwd::emulated

template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

// --- Warps and CTAs ---

inline void __syncthreads() {
  ::flashdma_bwd::emulated::barrier_sync(0, 0);
}
inline int __syncthreads_or(int value) {
  static thread_local int all = 0;
  __syncthreads();
  all = 0;
  __syncthreads();
  if (value != 0) all = 1;
  __syncthreads();
  return all;
}
inline void __syncwarp() {
  ::flashdma_bwd::emulated::meet("syncwarp");
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane) {
  return ::flashdma_bwd::emulated::shuffle("shfl", mask, value, [=](int) { return lane & 31; });
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return ::flashdma_bwd::emulated::shuffle("shfl.xor", mask, value, [=](int lane) { return lane ^ bits; });
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, int distance) {
  return ::flashdma_bwd::emulated::shuffle("shfl.up", mask, value, [=](int lane) { return lane - distance; });
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const unsigned own = predicate != 0 ? 1u << ::flashdma_bwd::emulated::place->lane : 0;
  return ::flashdma_bwd::emulated::reduce("ballot", mask, own, [](unsigned a, unsigned b) { return a | b; });
}
inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == ~0u ? 1 : 0;
}
template <class T>
T __reduce_add_sync(unsigned mask, T value) {
  return ::flashdma_bwd::emulated::reduce("redux.add", mask, value, [](T a, T b) { return a + b; });
}
template <class T>
T __reduce_min_sync(unsigned mask, T value) {
  return ::flashdma_bwd::emulated::reduce("redux.min", mask, value, [](T a, T b) { return a < b ? a : b; });
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value) {
  return ::flashdma_bwd::emulated::reduce("redux.or", mask, value, [](unsigned a, unsigned b) { return a | b; });
}
template <class T>
T __reduce_max_sync(unsigned mask, T value) {
  return ::flashdma_bwd::emulated::reduce("redux.max", mask, value, [](T a, T b) { return a < b ? b : a; });
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
  ::flashdma_bwd::emulated::check_full(mask);
  const ::flashdma_bwd::emulated::Slot* slots = ::flashdma_bwd::emulated::exchange("match", value);
  unsigned same = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    same |= (::flashdma_bwd::emulated::take<T>(slots[lane]) == value ? 1u : 0u) << lane;
  return same;
}

// --- Memory ---

template <class T>
T __ldg(const T* address) {
  return *address;
}
template <class T>
T __ldcg(const T* address) {
  return *address;
}
template <class T>
void __stcg(T* address, const T& value) {
  *address = value;
}
template <class T>
void __stcs(T* address, const T& value) {
  *address = value;
}
template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return ::flashdma_bwd::emulated::change(address, [=](T before) { return before + value; });
}
template <class T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return ::flashdma_bwd::emulated::change(address, [=](T before) { return before < value ? value : before; });
}
template <class T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return ::flashdma_bwd::emulated::change(address, [=](T before) { return before | value; });
}
inline void __threadfence() {}
inline void __nanosleep(unsigned) {
  ::flashdma_bwd::emulated::yield();
}

// --- Numbers ---

using std::isfinite;
using std::isinf;

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  return b < a ? b : a;
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}
inline float __uint_as_float(unsigned bits) {
  return std::bit_cast<float>(bits);
}
inline unsigned __float_as_uint(float value) {
  return std::bit_cast<unsigned>(value);
}
inline int __popc(unsigned bits) {
  return std::popcount(bits);
}
inline int __popcll(unsigned long long bits) {
  return std::popcount(bits);
}
inline int __clz(int bits) {
  return std::countl_zero(static_cast<unsigned>(bits));
}
inline int __ffs(int bits) {
  return bits == 0 ? 0 : std::countr_zero(static_cast<unsigned>(bits)) + 1;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (unsigned shift = 0; shift < 32; shift += 8) c += (a >> shift & 0xffu) * (b >> shift & 0xffu);
  return c;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i)
    result |= static_cast<unsigned>(bytes >> (selector >> i * 4 & 7u) * 8 & 0xffu) << i * 8;
  return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) << (shift & 31u) >> 32);
}
