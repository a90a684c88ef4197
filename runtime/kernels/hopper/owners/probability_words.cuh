// P on its way from the value owner to the key owner: two of them, or of the weights that a softcap makes of them, in a
// word of shared memory.
//
// Of a bf16 problem they are fp16, times 16384. An fp16 problem rounds dS as finely as that, and the two roundings
// together are 1.25 times the error of one; so its P keep 12 significant bits instead of 11. They have no sign and are
// at most 1, give or take what the exponential is off: of a float's bits only 27 to 12 differ between 2^-31 and 2, five
// of the exponent and eleven of the fraction. The first P of a word keeps these where they are, and so does the second
// in the word turned by 16 bits.
#pragma once

#include "common/numeric.cuh"
#include "hopper/score_tile.cuh"

namespace flashdma_bwd::hopper::owners {

template <KernelConfig kConfig>
class ProbabilityWords {
  static constexpr bool kTwelveBits = kConfig.data_type == DataType::fp16;
  static constexpr std::uint32_t kKept = 0x0ffff000u;
  /// Of the values that are packed: a weight's is 16384 already.
  static constexpr float kScale = kScaledWeights<kConfig> ? kPackedWeightScale : 1.0f;

  static __device__ __forceinline__ std::uint32_t turned(std::uint32_t word) { return __byte_perm(word, 0, 0x1032); }

 public:
  /// What multiplies an unpacked value to give P. Twelve bits: the exponent's upper bits are 0, which makes a 0 of a 0,
  /// and leaves room for factors below 2^32.
  static constexpr float kUnit = kTwelveBits ? 0x1p96f : 1.0f / kPackedWeightScale;

  /// `first` and `second` in kScale.
  static __device__ __forceinline__ std::uint32_t pack(float first, float second) {
    if constexpr (kTwelveBits) {
      // The bits below the kept ones are cut off: on average 0.72 times 2^-12 of a number. The smallest one keeps the
      // numbers below it from taking the bits of large ones.
      constexpr float kFactor = (1.0f + 0.7213f * 0x1p-12f) / kScale;
      constexpr float kSmallest = 0x1p-31f;
      const std::uint32_t a = __float_as_uint(fmaf(first, kFactor, kSmallest));
      const std::uint32_t b = __float_as_uint(fmaf(second, kFactor, kSmallest));
      return (a & kKept) | (turned(b) & ~kKept);
    } else {
      constexpr float kFactor = kPackedWeightScale / kScale;
      return flashdma_bwd::pack<DataType::fp16>(first * kFactor, second * kFactor);
    }
  }

  /// In kUnit; a 0 is exact.
  static __device__ __forceinline__ float2 unpack(std::uint32_t word) {
    if constexpr (kTwelveBits)
      return {__uint_as_float(word & kKept), __uint_as_float(turned(word) & kKept)};
    else
      return flashdma_bwd::unpack<DataType::fp16>(word);
  }
};

}  // namespace flashdma_bwd::hopper::owners
