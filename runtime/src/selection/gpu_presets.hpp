// GPUs known by name, so that nobody has to look up what selection asks about them.
//
// Names end here: selection itself sees compute capability, multiprocessors and shared memory only.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <string_view>

namespace flashdma_bwd {

struct GpuPreset {
  std::string_view name;
  DeviceTraits traits;
};

inline constexpr GpuPreset kGpuPresets[] = {
    {"A100", {80, 108, 166912}}, {"RTX3090", {86, 82, 101376}}, {"RTX4090", {89, 128, 101376}},
    {"H100", {90, 132, 232448}}, {"H200", {90, 132, 232448}},
};

}  // namespace flashdma_bwd
