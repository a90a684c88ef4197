// IEEE binary16 (fp16) and bfloat16 on the host: exact widening, narrowing to nearest with ties to even.
#pragma once

#include <flashdma_bwd/flashdma_bwd.h>

#include <bit>
#include <cmath>
#include <cstdint>

namespace flashdma_bwd {

inline float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline float fp16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = bits >> 10 & 31u;
  const std::uint32_t fraction = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // subnormal: exact
  return sign != 0 ? -magnitude : magnitude;
}

namespace detail {

/// Rounds a double to the nearest value of a binary format, ties to even, in one step (never by way of float).
/// `fraction_bits` without the hidden one, exponents of normal numbers from `min_exponent` to `max_exponent`.
inline std::uint16_t narrow(double value, int fraction_bits, int min_exponent, int max_exponent) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(value);
  const unsigned sign = static_cast<unsigned>(bits >> 63) << 15;
  const unsigned infinity = static_cast<unsigned>(max_exponent - min_exponent + 2) << fraction_bits;
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity | 1u << (fraction_bits - 1));
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | infinity);
  int exponent = static_cast<int>(bits >> 52 & 0x7ffu) - 1023;
  if (exponent < min_exponent) exponent = min_exponent;  // subnormals of the target share its smallest exponent
  // The value in units of the last place: an integer and an exact remainder, because scaling by a power of two is exact
  // here.
  const double units = std::ldexp(std::fabs(value), fraction_bits - exponent);
  double whole = std::floor(units);
  const double rest = units - whole;
  if (rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2.0) != 0.0)) whole += 1.0;
  // Adding the fraction to the exponent field carries into it where rounding reached the next power of two.
  const double hidden = std::ldexp(1.0, fraction_bits);
  const bool normal = whole >= hidden;
  const unsigned field = normal ? static_cast<unsigned>(exponent - min_exponent + 1) << fraction_bits : 0u;
  const unsigned magnitude = field + static_cast<unsigned>(normal ? whole - hidden : whole);
  return static_cast<std::uint16_t>(sign | (magnitude < infinity ? magnitude : infinity));
}

}  // namespace detail

inline std::uint16_t fp16_from_double(double value) {
  return detail::narrow(value, 10, -14, 15);
}
inline std::uint16_t bf16_from_double(double value) {
  return detail::narrow(value, 7, -126, 127);
}

/// Element `index` of an array of `type` (a flashdma_bwd_data_type).
inline float load_element(const void* data, std::int32_t type, std::int64_t index) {
  if (type == FLASHDMA_BWD_FP32) return static_cast<const float*>(data)[index];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[index];
  return type == FLASHDMA_BWD_FP16 ? fp16_to_float(bits) : bf16_to_float(bits);
}

/// Rounds `value` to `type` and stores it as element `index`.
inline void store_element(void* data, std::int32_t type, std::int64_t index, double value) {
  if (type == FLASHDMA_BWD_FP32) {
    static_cast<float*>(data)[index] = static_cast<float>(value);
  } else {
    static_cast<std::uint16_t*>(data)[index] =
        type == FLASHDMA_BWD_FP16 ? fp16_from_double(value) : bf16_from_double(value);
  }
}

/// Bytes of an element of `type`.
inline std::int64_t element_bytes(std::int32_t type) {
  return type == FLASHDMA_BWD_FP32 ? 4 : 2;
}

}  // namespace flashdma_bwd
