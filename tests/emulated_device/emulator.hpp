// What device code that is compiled for the CPU asks of the emulated device: where a thread is, how the threads of a
// warp, a CTA and a cluster meet, barrier objects, copies and products.
//
// Every CUDA thread is a fiber, of which one runs at a time (scheduler.hpp). Threads change only in the calls below
// that wait, so device code needs no locks. Addresses of shared memory are offsets from the CTA's dynamic shared
// memory; the CTA's number in its cluster is in bits 24 and up.
#pragma once

#include <vector_types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

namespace flashdma_bwd::emulated {

/// Says what is wrong, where every thread waits, and the seed; and aborts.
[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char* format, ...);

/// Where the running thread is.
struct Place {
  uint3 thread;
  uint3 block;
  int lane;
};
extern constinit thread_local const Place* place;

// --- Launches ---

struct LaunchShape {
  dim3 grid;
  dim3 threads;
  unsigned ctas_per_cluster;
  std::size_t shared_bytes;
};
/// Runs a kernel to its end; `thread` is what every thread calls.
void run_grid(const LaunchShape& shape, const std::function<void()>& thread);

// --- Threads that wait for threads ---

/// What a lane posts for a warp's collective.
struct alignas(64) Slot {
  std::array<std::byte, 64> bytes;
};
/// The slots of the collective that the running thread comes to next.
Slot* next_slots();
/// Waits for all lanes of the warp. The last calls `perform` before any goes on. Returns the collective's slots.
Slot* meet(const char* what, void (*perform)(Slot*) = nullptr);
template <class T>
void put(Slot& slot, const T& value) {
  static_assert(sizeof(T) <= sizeof(Slot));
  std::memcpy(&slot, &value, sizeof(T));
}
template <class T>
T take(const Slot& slot) {
  T value;
  std::memcpy(&value, &slot, sizeof(T));
  return value;
}
/// Posts a value and waits for the other lanes'.
template <class T>
const Slot* exchange(const char* what, const T& value) {
  put(next_slots()[place->lane], value);
  return meet(what);
}

/// Barrier `name` of the CTA; `threads` 0: all that have not ended.
void barrier_sync(int name, unsigned threads);
/// Does not wait itself.
void barrier_arrive(int name, unsigned threads);
void barrier_cluster_sync();
/// Lets others run: for loops that wait for memory to change.
void yield();
/// Memory has changed for which loops may wait.
void memory_changed();

// --- Shared memory ---

std::uint32_t shared_address(const void* pointer);
/// Of this CTA's memory, `bytes` long and aligned to as many, up to 16.
std::byte* shared_pointer(std::uint32_t address, std::size_t bytes);
/// The same of any CTA of the cluster.
std::byte* cluster_pointer(std::uint32_t address, std::size_t bytes);
std::uint32_t mapa(std::uint32_t address, int rank);

// --- Barrier objects ---

void mbarrier_init(std::uint32_t address, int arrivals);
void mbarrier_arrive(std::uint32_t address, std::uint32_t expected_bytes, bool in_cluster);
/// May say no for a while after the phase has completed.
bool mbarrier_test(std::uint32_t address, std::uint32_t parity);
void mbarrier_wait(std::uint32_t address, std::uint32_t parity);

// --- Copies (copies.cpp) ---

void cp_async_16(std::uint32_t destination, const void* source, bool valid);
void cp_async_commit_group();
void cp_async_wait_group(int pending);

/// `map` is a CUtensorMap of emulated cuTensorMapEncodeTiled.
void copy_box_to_shared(std::uint32_t destination, const void* map, const int* at, int dimensions,
                        std::uint32_t barrier, unsigned ctas);
void copy_box_to_global(const void* map, const int* at, int dimensions, std::uint32_t source);
void copy_in_cluster(std::uint32_t destination, std::uint32_t source, std::uint32_t bytes, std::uint32_t barrier);
void add_bulk(float* destination, std::uint32_t source, std::uint32_t bytes);
void bulk_commit_group();
/// Until all but the newest `pending` groups have read shared memory, or have also been performed.
void bulk_wait_group(int pending, bool read_only);
/// Writes of the thread to shared memory become visible to copies and products.
void fence_proxy_async();
/// Writes to shared memory that are no plain C++ go through this, so that a missing fence is found.
void wrote_shared(std::uint32_t address, std::size_t bytes);

// --- Products (wgmma.cpp, warp_products.cpp) ---

struct Product {
  float* d;
  std::uint32_t a_registers[4];  ///< if a_descriptor is 0
  std::uint64_t a;
  std::uint64_t b;
  std::int16_t n;
  bool bf16, trans_a, trans_b, accumulate;
};
void wgmma(const Product& product);
void wgmma_fence();
void wgmma_commit_group();
void wgmma_wait_group(int pending);
void setmaxnreg(int count, bool increase);

void ldmatrix_x4(std::uint32_t* r, std::uint32_t address, bool transposed);
void stmatrix_x4(std::uint32_t address, const std::uint32_t* r, bool transposed);
void mma_m16n8k16(float* d, const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1, const float* c, bool bf16);

std::uint32_t pack_bf16(float low, float high);
std::uint32_t pack_fp16(float low, float high);
std::uint32_t fma_bf16(std::uint32_t a, std::uint32_t b, std::uint32_t c);
std::uint32_t fma_fp16(std::uint32_t a, std::uint32_t b, std::uint32_t c);
std::uint32_t min_bf16(std::uint32_t a, std::uint32_t b);
std::uint32_t min_fp16(std::uint32_t a, std::uint32_t b);
/// Of fp16 bits.
float half_to_float(std::uint16_t bits);
inline float bf16_to_float(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits << 16);
}

}  // namespace flashdma_bwd::emulated
