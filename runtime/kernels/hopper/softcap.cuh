// tanh of a warp's scores over their cap, by the shortest function that holds for all of them.
//
// Where they are smaller than the cap, as nearly all are, a polynomial takes the place of two of three operations of
// the multi-function unit, whose time is not hidden; shorter ones where all are smaller than a third of it, or a sixth.
// How large they are takes an instruction a score; the short polynomials take the scores as they are, without their
// scale. The arithmetic behind tanh is there for each, since a polynomial in front of it could not run under its
// exponentials.
#pragma once

#include <flashdma_bwd/kernel_resources.hpp>

#include "common/numeric.cuh"
#include "common/tanh_polynomial.hpp"

namespace flashdma_bwd::hopper {

/// What a kernel's tanh is multiplied by.
template <KernelConfig kConfig>
inline constexpr float kTanhScale = tanh_scale(kConfig);

/// Calls run(tanh), where tanh(s[i]) is that of scale_by_softcap times the i-th score, times kTanhScale; the scores may
/// have become others. All lanes of the warp.
template <KernelConfig kConfig, int kCount, class Run>
__device__ __forceinline__ void with_tanh(const BackwardParameters& p, float (&s)[kCount], Run&& run) {
  constexpr float kScale = kTanhScale<kConfig>;
  // With 128 queries and a bias there are no registers for the short ones' coefficients.
  constexpr bool kTakesScale = kCount <= 32 || kConfig.bias == BiasKind::none;
  if constexpr (kTakesScale) {
    // Several at once: one would wait for itself.
    float largest[4] = {};
#pragma unroll
    for (int i = 0; i < kCount; ++i) largest[i % 4] = fmaxf(largest[i % 4], fabsf(s[i]));
    const float most = fmaxf(fmaxf(largest[0], largest[1]), fmaxf(largest[2], largest[3]));
    const auto all_below = [&](float end) { return __all_sync(0xffffffffu, most < end); };
    if (kConfig.data_type == DataType::bf16 && all_below(p.tanh_up_to_sixth.end))
      return run([&](float score) { return p.tanh_up_to_sixth(score); });
    if (all_below(p.tanh_up_to_third.end)) return run([&](float score) { return p.tanh_up_to_third(score); });
    const bool below_cap = all_below(3.0f * p.tanh_up_to_third.end);
#pragma unroll
    for (float& score : s) score *= 2.0f * p.scale_by_softcap;
    if (below_cap)
      run([](float twice) { return tanh_of_half(twice, kScale); });
    else
      run([](float twice) { return tanh_accurate(0.5f * twice) * kScale; });
  } else {
    // A number is below 2 if bit 30, the exponent's highest, is 0: half an instruction a score.
    const auto any_from_two = [&](float factor) {
      std::uint32_t bits = 0;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        s[i] *= factor;
        bits |= __float_as_uint(s[i]);
      }
      return __any_sync(0xffffffffu, (bits & 0x40000000u) != 0);
    };
    if (!any_from_two(6.0f * p.scale_by_softcap))
      run([](float sixfold) { return tanh_of_sixth(sixfold, kScale); });
    else if (!any_from_two(1.0f / 3.0f))
      run([](float twice) { return tanh_of_half(twice, kScale); });
    else
      run([](float twice) { return tanh_accurate(0.5f * twice) * kScale; });
  }
}

}  // namespace flashdma_bwd::hopper
