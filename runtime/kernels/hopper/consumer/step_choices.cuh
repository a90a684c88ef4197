// How a consumer's step is computed with a tile and a problem's features: what is read before which products, what is
// computed under which, what stays in registers. The choices follow from the registers and the shared memory that there
// are, and from measurements (notes/step.md).
#pragma once

#include "hopper/geometry.cuh"
#include "hopper/score_tile.cuh"

namespace flashdma_bwd::hopper {

/// How a step's LSE leaves its scores, and when.
enum class LseWay {
  product,             ///< by the first of S's products, of its terms
  read_before_scores,  ///< into registers, for the exponent
  read_before_d_probability,
  read_with_exponent,
};

/// Of a Consumer (consumer.cuh), with its parameters.
template <KernelConfig kConfig, bool kAddsDQuery>
struct StepChoices {
  using G = Geometry<kConfig>;
  static constexpr DataType kType = kConfig.data_type;
  static constexpr bool kBf16 = kType == DataType::bf16;
  static constexpr bool kKeyBias = kConfig.bias == BiasKind::key_vector;
  static constexpr bool kTileBias = kConfig.bias == BiasKind::tile;
  static constexpr bool kSoftcap = kConfig.softcap;
  static constexpr bool kSlopeTaken = kScoresTakeSlope<kConfig>;
  /// Whether the products subtract D, and whether they subtract LSE.
  static constexpr bool kDotTerms = G::kStatisticTerms;
  static constexpr bool kLseTerms = kDotTerms && !kSoftcap;
  static constexpr int kM = G::kM;
  static constexpr int kD = G::kD;
  /// Whether scores become tanh under dP's products, and P and dS together behind them: with 128 queries and a softcap
  /// there are no registers for both P and its weights meanwhile (notes/step.md).
  static constexpr bool kTanhFirst = kSlopeTaken && kM == 128;
  /// Whether the mask's bits are in shared memory; else whether they are asked for before the products that hide their
  /// latency: with 128 queries there are no registers for that. Before S's with 128 columns and without a bias, else
  /// before dP's (notes/step.md).
  static constexpr bool kMaskInShared = G::kMaskBytes > 0;
  static constexpr bool kReadMaskEarly = !kMaskInShared && kM == 64;
  static constexpr bool kMaskBeforeScores = kReadMaskEarly && kD == 128 && !kKeyBias;
  /// A masked key may hold anything, so that its products may overflow. Whether that is seen by dS, when all of it is
  /// there: two elements at a time, or by their sums where a key bias has them, and masked pairs are cleared then. Else
  /// dP is cleared in every masked step, or P and dP are tested, element by element, which several items without a bias
  /// are as fast or faster by, but with 64 columns. With a softcap registers are short (notes/step.md).
  static constexpr bool kTestsGradients = !kSoftcap && !kTileBias && (kKeyBias || !G::kSeveralItems || kD == 64);
  /// Whether only one warpgroup at a time computes what lies between S's products and those of dV: else both contend
  /// for it, while the tensor cores wait for both. Where it was faster (notes/step.md).
  static constexpr bool kTakesTurns = kM == 128 && kD == 64 && !kSoftcap && !kTileBias;
  static_assert(!kTakesTurns || (G::kConsumers == 2 && !G::kSkipsEmptyHalves));
  /// Of a lane's scores, those that become probabilities under dP's products, in quarters. The others wait as
  /// exponents, so that their exponentials run under the multiplications behind these products, which nothing else
  /// hides. Where it was faster (notes/step.md).
  static constexpr int kEarlyQuarters = [] {
    if (kTakesTurns) return 1;
    if (kSoftcap || kTileBias) return 4;
    if (kM == 128) return kKeyBias ? 4 : 3;
    if (kKeyBias) return kD == 128 ? 2 : 4;
    return kD == 96 && !G::kSeveralItems ? 3 : 4;
  }();
  static constexpr int kEarlyProbabilities = kM / 2 * kEarlyQuarters / 4;
  static constexpr bool kSomeLate = kEarlyProbabilities < kM / 2;
  /// Whether P is made an operand under dP's products. With 128 queries there are no registers for both, unless P is
  /// all that needs them; with 128 columns it is as fast either way, but for a softcap (notes/step.md), where a bias
  /// leaves no registers for it.
  static constexpr bool kPackEarly = !kTanhFirst && !kSomeLate && (kSlopeTaken || (kM == 64 && kD <= 96));
  /// Whether P and dS are packed when all of either is there.
  static constexpr bool kPacksLast = kTanhFirst || kSomeLate;
  /// Whether the warpgroup's rows of V stay in registers, as dP's operand, instead of being read from shared memory in
  /// every step. With 96 columns they leave no registers for the terms' operands.
  static constexpr bool kValueInRegisters =
      kD <= 32 || (kM == 64 && (kD <= 64 || (kD <= 96 && !(kSoftcap && (kKeyBias || kTileBias)) && !kDotTerms)));
  /// Whether what a step is, and a key's bias, are read before its score products are issued: a read behind products
  /// waits until the tensor cores have taken them (notes/step.md). 128 queries leave registers for that here and there
  /// only.
  static constexpr bool kFactsFirst = kM == 64 || (kKeyBias && G::kSeveralItems);
  /// The same of whose head's step it is, which with 128 columns is faster, though a branch (notes/step.md).
  static constexpr bool kHeadFirst = kKeyBias && kFactsFirst && kD == 128;
  /// The same of the LSE, but where there are no registers for it.
  static constexpr bool kLseReadEarly = kM == 64 && !kSoftcap && !(kTileBias && kAddsDQuery);
  /// Read early, before S's products with 128 columns, with fewer before dP's (notes/step.md).
  static constexpr LseWay kLse = kLseTerms                 ? LseWay::product
                                 : !kLseReadEarly          ? LseWay::read_with_exponent
                                 : kD == 128 && !kTileBias ? LseWay::read_before_scores
                                                           : LseWay::read_before_d_probability;
  /// Whether a tile bias, and the LSE, are read between S and dP's products, for the same reason: before S there are no
  /// registers for them. With dQ's products it is slower (notes/step.md).
  static constexpr bool kBiasFirst = kTileBias && kLseReadEarly;
  /// Whether steps without a pair of the warpgroup's keys are left out.
  static constexpr bool kLeavesOut = G::kSkipsEmptyHalves;
  /// Whether a step's facts are kept from when they were read to see whether it is left out.
  static constexpr bool kFactsAhead = kLeavesOut && kFactsFirst;
  static constexpr bool kLseInRegisters =
      kLse == LseWay::read_before_scores || kLse == LseWay::read_before_d_probability;
};

}  // namespace flashdma_bwd::hopper
