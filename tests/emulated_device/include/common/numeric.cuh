// runtime/kernels/common/numeric.cuh with the specialisations of its templates that hold PTX: these are declared first,
// so that the templates' own bodies are never compiled.
#pragma once

#include "common/parameters.hpp"
#include "emulated_device/emulator.hpp"
#include "flashdma_bwd/kernel_table.hpp"

namespace flashdma_bwd {

template <DataType Type>
std::uint32_t pack(float low, float high);
template <>
inline std::uint32_t pack<DataType::bf16>(float low, float high) {
  return emulated::pack_bf16(low, high);
}
template <>
inline std::uint32_t pack<DataType::fp16>(float low, float high) {
  return emulated::pack_fp16(low, high);
}
template <DataType Type>
std::uint32_t packed_min(std::uint32_t a, std::uint32_t b);
template <>
inline std::uint32_t packed_min<DataType::bf16>(std::uint32_t a, std::uint32_t b) {
  return emulated::min_bf16(a, b);
}
template <>
inline std::uint32_t packed_min<DataType::fp16>(std::uint32_t a, std::uint32_t b) {
  return emulated::min_fp16(a, b);
}

}  // namespace flashdma_bwd

#include_next "common/numeric.cuh"
