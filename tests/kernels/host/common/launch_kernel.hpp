// Stands for runtime/kernels/common/launch_kernel.hpp where device code is compiled for the host: kernels run one CTA
// after the other, and the few built-ins that those kernels use are here.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "lanes.hpp"

#if !defined(__launch_bounds__)
#define __launch_bounds__(...)
#endif
#if !defined(__grid_constant__)
#define __grid_constant__
#endif
#undef __shared__
#define __shared__ static  // one CTA runs at a time

using std::isfinite;  // a kernel names it without its namespace

namespace host_cuda {

constexpr unsigned kWarp = 32;

/// The CTA at work: what its threads exchange and wait at.
struct Cta {
  explicit Cta(unsigned threads)
      : values{std::vector<std::uint64_t>(threads), std::vector<std::uint64_t>(threads)},
        exchanges(threads),
        all(threads),
        warps(threads / kWarp, Barrier(kWarp)) {}
  std::array<std::vector<std::uint64_t>, 2> values;  ///< of one exchange and of the next, which some are at already
  std::vector<std::size_t> exchanges;                ///< that each thread has been at
  Barrier all;
  std::vector<Barrier> warps;
};
inline std::unique_ptr<Cta> cta;
inline std::vector<unsigned char> dynamic_shared;  ///< of the CTA at work

/// Gives the values of all lanes of the warp to `read`.
template <class T, class Read>
auto exchange(T value, const Read& read) {
  std::uint64_t* const values = &cta->values[cta->exchanges[threadIdx.x]++ % 2][threadIdx.x / kWarp * kWarp];
  std::memcpy(&values[threadIdx.x % kWarp], &value, sizeof value);
  cta->warps[threadIdx.x / kWarp].arrive_and_wait();
  const auto lane_value = [&](unsigned lane) {
    T result;
    std::memcpy(&result, &values[lane], sizeof result);
    return result;
  };
  return read(lane_value, threadIdx.x % kWarp);
}

}  // namespace host_cuda

inline void __syncthreads() {
  host_cuda::cta->all.arrive_and_wait();
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return host_cuda::exchange(value,
                             [&](const auto& of, unsigned lane) { return of(lane ^ static_cast<unsigned>(mask)); });
}
template <class T>
T __shfl_sync(unsigned, T value, int source) {
  return host_cuda::exchange(value, [&](const auto& of, unsigned) { return of(static_cast<unsigned>(source)); });
}
template <class T>
T __shfl_up_sync(unsigned, T value, int step) {
  const auto distance = static_cast<unsigned>(step);
  return host_cuda::exchange(
      value, [&](const auto& of, unsigned lane) { return of(lane >= distance ? lane - distance : lane); });
}
inline unsigned __ballot_sync(unsigned, bool predicate) {
  return host_cuda::exchange(predicate, [](const auto& of, unsigned) {
    unsigned bits = 0;
    for (unsigned lane = 0; lane < host_cuda::kWarp; ++lane) bits |= (of(lane) ? 1u : 0u) << lane;
    return bits;
  });
}
template <class Combine>
int reduce_lanes(int value, const Combine& combine) {
  return host_cuda::exchange(value, [&](const auto& of, unsigned) {
    int result = of(0);
    for (unsigned lane = 1; lane < host_cuda::kWarp; ++lane) result = combine(result, of(lane));
    return result;
  });
}
inline int __reduce_min_sync(unsigned, int value) {
  return reduce_lanes(value, [](int a, int b) { return std::min(a, b); });
}
inline int __reduce_max_sync(unsigned, int value) {
  return reduce_lanes(value, [](int a, int b) { return std::max(a, b); });
}
inline int __reduce_add_sync(unsigned, int value) {
  return reduce_lanes(value, [](int a, int b) { return a + b; });
}
inline unsigned __reduce_or_sync(unsigned, unsigned value) {
  return host_cuda::exchange(value, [&](const auto& of, unsigned) {
    unsigned result = 0;
    for (unsigned lane = 0; lane < host_cuda::kWarp; ++lane) result |= of(lane);
    return result;
  });
}
inline bool __any_sync(unsigned mask, bool predicate) {
  return __ballot_sync(mask, predicate) != 0;
}
inline bool __all_sync(unsigned mask, bool predicate) {
  return __ballot_sync(mask, predicate) == mask;
}
inline int __popc(unsigned value) {
  return std::popcount(value);
}
inline int __popcll(unsigned long long value) {
  return std::popcount(value);
}
inline int __ffs(int value) {
  return value == 0 ? 0 : std::countr_zero(static_cast<unsigned>(value)) + 1;
}
inline int __clz(int value) {
  return std::countl_zero(static_cast<unsigned>(value));
}
inline unsigned __float_as_uint(float value) {
  return std::bit_cast<unsigned>(value);
}
inline float __uint_as_float(unsigned value) {
  return std::bit_cast<float>(value);
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const std::uint64_t bytes = std::uint64_t{high} << 32 | low;
  unsigned result = 0;
  for (unsigned byte = 0; byte < 4; ++byte)
    result |= static_cast<unsigned>(bytes >> (selector >> 4 * byte & 7u) * 8 & 255u) << 8 * byte;
  return result;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) << (shift & 31u) >> 32);
}
/// Shared memory has no addresses of its own here: what asks for one does not run.
std::size_t __cvta_generic_to_shared(const void* pointer);
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
  for (unsigned shift = 0; shift < 32; shift += 8) sum += (a >> shift & 255u) * (b >> shift & 255u);
  return sum;
}
inline void __syncwarp() {
  host_cuda::cta->warps[threadIdx.x / host_cuda::kWarp].arrive_and_wait();
}
inline unsigned __match_any_sync(unsigned, int value) {
  return host_cuda::exchange(value, [&](const auto& of, unsigned) {
    unsigned bits = 0;
    for (unsigned lane = 0; lane < host_cuda::kWarp; ++lane) bits |= (of(lane) == value ? 1u : 0u) << lane;
    return bits;
  });
}
inline int atomicAdd(int* address, int value) {
  return std::exchange(*address, *address + value);
}
inline unsigned atomicOr(unsigned* address, unsigned value) {
  return std::exchange(*address, *address | value);
}
inline int atomicMax(int* address, int value) {
  return std::exchange(*address, std::max(*address, value));
}
template <class T>
T __ldg(const T* address) {
  return *address;
}
template <class T>
T __ldcg(const T* address) {
  return *address;
}
inline int min(int a, int b) {
  return std::min(a, b);
}
inline int max(int a, int b) {
  return std::max(a, b);
}
inline std::int64_t max(std::int64_t a, std::int64_t b) {
  return std::max(a, b);
}

namespace flashdma_bwd {

struct Grid : dim3 {
  using dim3::dim3;
  Grid(dim3 ctas) : dim3(ctas) {}  // NOLINT(google-explicit-constructor): as the one it stands for
  Grid launched_early(bool) const { return *this; }
};

template <class... Parameters, class... Arguments>
cudaError_t launch_kernel(void (*kernel)(Parameters...), Grid grid, unsigned threads, std::size_t shared_bytes,
                          cudaStream_t, Arguments&&... arguments) {
  for (unsigned y = 0; y < grid.y; ++y)
    for (unsigned x = 0; x < grid.x; ++x) {
      host_cuda::cta = std::make_unique<host_cuda::Cta>(threads);
      host_cuda::dynamic_shared.assign(shared_bytes, 0xEE);
      blockIdx = {x, y, 0};
      if (!host_cuda::run_lanes(threads, [&] { kernel(arguments...); })) return cudaErrorLaunchFailure;
    }
  return cudaSuccess;
}

}  // namespace flashdma_bwd
