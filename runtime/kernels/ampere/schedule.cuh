// How the Ampere kernel orders a step's work, by what was measured and what fits the registers.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>

namespace flashdma_bwd::ampere {

/// What a step's code knows about masked pairs when it is compiled.
enum class MaskedPairs {
  none,        ///< there are none
  this_step,   ///< there are some
  some_steps,  ///< the step says
};

template <KernelConfig kConfig>
struct Schedule {
  static constexpr int kD = kConfig.head_dim;
  static constexpr bool kTwoStages = kConfig.tile.q_stages == 2 && kConfig.tile.do_stages == 2;
  /// Whether a reduction instruction adds four values to dQ, which decides dQ's layout: d_q_vectorised says the same.
  static constexpr bool kVectorReduction = kConfig.architecture == Architecture::sm90;
  /// Whether steps with and without masked pairs have code of their own. Even the masking code that does not run costs
  /// the compiler's schedule up to 4 %; with a bias or a softcap two copies of the loop do not fit the registers.
  static constexpr bool kSplitMasked = kConfig.bias == BiasKind::none && !kConfig.softcap;
  /// Whether dP's products start from -D instead of 0, which saves a subtraction a pair. On an H200 it gains 1 to 3 %
  /// at head dims 96, 128 and 192 and loses 2 % at 64 and 256, where the compiler then schedules the products worse. At
  /// 128 its registers are there only without a bias, a softcap and scalar reductions.
  static constexpr bool kStartFromMinusDot =
      kD == 96 || kD == 192 || (kD == 128 && kConfig.bias == BiasKind::none && !kConfig.softcap && kVectorReduction);
  /// Whether D is read only when it is subtracted. It frees registers under dP's products, and costs them elsewhere,
  /// where head dim 128 has none.
  static constexpr bool kReadDotLate = kSplitMasked && !kStartFromMinusDot && kD != 128;
  /// Whether dQ's products come before dK's, whose products then hide dQ's reduction. On an H200 it gains 2 % at head
  /// dims 64 and 256 and loses 5 % at 128. With one stage dQ comes last: it hides the next tile's loads.
  static constexpr bool kDQueryFirst = kTwoStages && (kD == 64 || kD == 256);
};

}  // namespace flashdma_bwd::ampere
