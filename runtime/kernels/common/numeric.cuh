// Conversions between float32 and the 16-bit types, and the few functions that the kernels evaluate.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common/parameters.hpp"
#include "common/ptx.cuh"
#include "flashdma_bwd/kernel_table.hpp"

namespace flashdma_bwd {

/// Two values rounded to nearest even and packed, `low` in the lower half.
template <DataType Type>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  if constexpr (Type == DataType::bf16)
    return ptx::cvt_rn_bf16x2_f32(high, low);
  else
    return ptx::cvt_rn_f16x2_f32(high, low);
}

template <DataType Type>
__device__ __forceinline__ float2 unpack(std::uint32_t packed) {
  if constexpr (Type == DataType::bf16)
    return {__uint_as_float(packed << 16), __uint_as_float(packed & 0xffff0000u)};
  else
    return __half22float2(*reinterpret_cast<const __half2*>(&packed));
}

/// The smaller of each of two packed values; a NaN is no value.
template <DataType Type>
__device__ __forceinline__ std::uint32_t packed_min(std::uint32_t a, std::uint32_t b) {
  if constexpr (Type == DataType::bf16)
    return ptx::min_bf16x2(a, b);
  else
    return ptx::min_f16x2(a, b);
}

/// a * b + c of each of two packed values.
template <DataType Type>
__device__ __forceinline__ std::uint32_t packed_fma(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  if constexpr (Type == DataType::bf16)
    return ptx::fma_rn_bf16x2(a, b, c);
  else
    return ptx::fma_rn_f16x2(a, b, c);
}

template <DataType Type>
__device__ __forceinline__ float to_float(std::uint16_t bits) {
  return unpack<Type>(bits).x;
}

template <DataType Type>
__device__ __forceinline__ std::uint16_t from_float(float value) {
  return static_cast<std::uint16_t>(pack<Type>(value, 0.0f));
}

/// What a softcap's slope 1 - tanh^2, a number of [0, 1], is packed as until it multiplies dS: bf16 would be as coarse
/// as the rounding of dS that follows.
inline constexpr DataType kSlopeType = DataType::fp16;

/// tanh with a relative error of about 1e-6, which tanh.approx does not have: the error is multiplied by the softcap
/// and goes into an exponent. Small arguments take the series, where the quotient would cancel.
__device__ __forceinline__ float tanh_accurate(float x) {
  const float square = x * x;
  const float series = x * fmaf(square, fmaf(square, 2.0f / 15.0f, -1.0f / 3.0f), 1.0f);
  const float quotient = 1.0f - 2.0f * ptx::rcp(1.0f + ptx::ex2(x * (2.0f * kLog2E)));
  return square < 0.01f ? series : quotient;
}

}  // namespace flashdma_bwd
