// The products of runtime/kernels/hopper/wgmma.cuh on the emulated device.
#pragma once

#include "emulated_device/emulator.hpp"

namespace flashdma_bwd::ptx {

template <int N, bool kBf16>
struct Wgmma {
  template <bool kTransA, bool kTransB, bool kAccumulate>
  static void ss(float (&d)[N / 2], std::uint64_t a, std::uint64_t b) {
    emulated::wgmma({d, {}, a, b, N, kBf16, kTransA, kTransB, kAccumulate});
  }
  template <bool kTransB, bool kAccumulate>
  static void rs(float (&d)[N / 2], const std::uint32_t (&a)[4], std::uint64_t b) {
    emulated::wgmma({d, {a[0], a[1], a[2], a[3]}, 0, b, N, kBf16, false, kTransB, kAccumulate});
  }
};

}  // namespace flashdma_bwd::ptx
