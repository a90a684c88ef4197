// A stable sort of coded values by one digit, by one CTA.
//
// Each warp has a part of the values and counters of its own, and takes its part in order. Sorts by several digits are
// several of these, the least significant first. Not CUB's: DeviceSegmentedSort partitions its segments with a
// synchronisation, and DeviceSegmentedRadixSort also has one CTA a segment, but a launch for each digit and temporary
// memory whose size only a GPU tells.
#pragma once

#include <cstdint>

#include "common/registers.cuh"

namespace flashdma_bwd {

inline constexpr int kSortWarps = 32;
inline constexpr int kSortThreads = kSortWarps * 32;
inline constexpr int kDigitBits = 8;
inline constexpr int kDigits = 1 << kDigitBits;

/// A value with a code of digits behind it, in a word: values below 2^16 with two digits in 32 bits, others in 64.
template <class Coded>
inline constexpr int kValueBits = sizeof(Coded) == 4 ? 16 : 32;
/// No value, which sorts leave out: a code that is no value's.
template <class Coded>
inline constexpr Coded kNothing = static_cast<Coded>(~Coded{0});

template <class Coded>
__device__ __forceinline__ Coded coded_value(int value, std::uint32_t code) {
  return static_cast<Coded>(code) << kValueBits<Coded> | static_cast<Coded>(value);
}
template <class Coded>
__device__ __forceinline__ int value_of(Coded coded) {
  return static_cast<int>(coded & ((Coded{1} << kValueBits<Coded>)-1));
}
template <class Coded>
__device__ __forceinline__ int digit_of(Coded coded, int digit) {
  return static_cast<int>(coded >> (kValueBits<Coded> + digit * kDigitBits)) & (kDigits - 1);
}
/// The same with another digit.
template <class Coded>
__device__ __forceinline__ Coded with_digit(Coded coded, int digit, int value) {
  const int shift = kValueBits<Coded> + digit * kDigitBits;
  return (coded & ~(Coded{kDigits - 1} << shift)) | static_cast<Coded>(value) << shift;
}

/// The warp's number, which the compiler knows to be one for all lanes: else votes and reductions where it decides are
/// calls.
__device__ __forceinline__ int uniform_warp() {
  return ptx::uniform(static_cast<int>(threadIdx.x) / 32);
}

/// What the threads of a sort share.
struct DigitCounters {
  std::int32_t of_warps[kSortWarps][kDigits];
  std::int32_t of_parts[kSortThreads / kDigits][kDigits];  ///< of groups of warps
  std::int32_t before[kDigits];                            ///< values of smaller digits, of the same 32 digits
  std::int32_t of_digit_warps[kDigits / 32];               ///< values of 32 digits
};

/// From counts to where each warp's values of each digit begin. Returns how many values there are.
__device__ __forceinline__ int sum_up(DigitCounters& counters) {
  constexpr int kParts = kSortThreads / kDigits;
  constexpr int kWarps = kSortWarps / kParts;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int digit = thread % kDigits;
  const int part = thread / kDigits;
  int own[kWarps];
  int sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += own[w] = counters.of_warps[part * kWarps + w][digit];
  counters.of_parts[part][digit] = sum;
  __syncthreads();
  if (part == 0) {
    int total = 0;
#pragma unroll
    for (int other = 0; other < kParts; ++other) total += counters.of_parts[other][digit];
    int up_to = total;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int below = __shfl_up_sync(0xffffffffu, up_to, step);
      if (lane >= step) up_to += below;
    }
    counters.before[digit] = up_to - total;
    if (lane == 31) counters.of_digit_warps[digit / 32] = up_to;
  }
  __syncthreads();
  int values = 0;
  int begin = counters.before[digit];
#pragma unroll
  for (int w = 0; w < kDigits / 32; ++w) {
    if (w < digit / 32) begin += counters.of_digit_warps[w];
    values += counters.of_digit_warps[w];
  }
#pragma unroll
  for (int other = 0; other < kParts; ++other)
    if (other < part) begin += counters.of_parts[other][digit];
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    counters.of_warps[part * kWarps + w][digit] = begin;
    begin += own[w];
  }
  __syncthreads();
  return values;
}

/// Gives the coded values source(i), i < count, to destination(slot, coded value), in the order of the digit kDigit of
/// their codes and in their own where it is the same. Returns how many there are that are something. All threads of a
/// CTA of kSortThreads; what destination wrote is theirs to read.
template <class Coded, int kDigit, class Source, class Destination>
__device__ __forceinline__ int sort_by_digit(DigitCounters& counters, int count, const Source& source,
                                             const Destination& destination) {
  constexpr int kUnroll = 4;  // strips of 32 values whose loads are in flight together
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = uniform_warp();
  const int lane = thread % 32;
  for (int i = thread; i < kSortWarps * kDigits; i += kSortThreads) (&counters.of_warps[0][0])[i] = 0;
  __syncthreads();

  // The part of a warp: whole strips.
  const int strips_of_warp = ((count + 31) / 32 + kSortWarps - 1) / kSortWarps;
  const int begin = min(warp * strips_of_warp * 32, count);
  const int end = min(begin + strips_of_warp * 32, count);
  const auto load = [&](Coded(&coded)[kUnroll], int base) {
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      const int i = base + j * 32 + lane;
      coded[j] = i < end ? source(i) : kNothing<Coded>;
    }
  };
  for (int base = begin; base < end; base += 32 * kUnroll) {
    Coded coded[kUnroll];
    load(coded, base);
#pragma unroll
    for (int j = 0; j < kUnroll; ++j)
      if (coded[j] != kNothing<Coded>) atomicAdd(&counters.of_warps[warp][digit_of(coded[j], kDigit)], 1);
  }
  __syncthreads();

  const int values = sum_up(counters);

  for (int base = begin; base < end; base += 32 * kUnroll) {
    Coded coded[kUnroll];
    load(coded, base);
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      const bool something = coded[j] != kNothing<Coded>;
      if (!__any_sync(0xffffffffu, something)) continue;
      const int digit = digit_of(coded[j], kDigit);
      const unsigned peers = __match_any_sync(0xffffffffu, something ? digit : kDigits);
      const unsigned before = peers & ((1u << lane) - 1);
      if (something) destination(counters.of_warps[warp][digit] + __popc(before), coded[j]);
      __syncwarp();
      if (something && before == 0) counters.of_warps[warp][digit] += __popc(peers);
      __syncwarp();
    }
  }
  __syncthreads();
  return values;
}

}  // namespace flashdma_bwd
