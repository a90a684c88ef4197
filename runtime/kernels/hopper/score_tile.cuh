// The arithmetic on a warpgroup's share of S^T and dP^T: 64 keys x block_m queries in wgmma's accumulators.
//
// Element i of a lane is key row `lane / 4 + 8 (i / 2 % 2)` of its warp's 16 and query `8 (i / 4) + 2 (lane % 4) + i %
// 2` of the tile: a lane has two keys, and of every 8 queries two.
#pragma once

#include <flashdma_bwd/kernel_resources.hpp>
#include <limits>
#include <type_traits>

#include "common/item.cuh"
#include "common/numeric.cuh"
#include "common/statistic_terms.hpp"
#include "hopper/ptx.cuh"
#include "hopper/softcap.cuh"

namespace flashdma_bwd::hopper {

/// The bits from `low` on, and those below `high`, of 32.
__device__ __forceinline__ std::uint32_t bits_from(int low) {
  return low <= 0 ? 0xffffffffu : low >= 32 ? 0u : 0xffffffffu << low;
}
__device__ __forceinline__ std::uint32_t bits_below(int high) {
  return ~bits_from(high);
}

/// The queries that see a key, as causality, a window and the end of the keys leave them: [low, high) relative to the
/// tile's first. Keys past the end lie at kPastEnd.
struct VisibleQueries {
  int low;
  int high;
  __device__ __forceinline__ VisibleQueries(const Limits& limits, int position, int first_query)
      : low(position == kPastEnd ? 0 : position - limits.high - first_query),
        high(position == kPastEnd ? 0 : position - limits.low + 1 - first_query) {}
};

/// Mask bits of a lane's pairs with 64 queries.
struct MaskBits {
  std::uint32_t word;

  /// Reads bits that other lanes may need; arrange() gives each lane its own. `atom`: the words of the key atom, from
  /// the first query on; a bit is a key.
  __device__ __forceinline__ void read(const std::uint64_t* atom, int warp, int lane) {
    const auto* sixteen_keys = reinterpret_cast<const std::uint16_t*>(atom + first_query(lane)) + warp;
    word = __ldg(sixteen_keys) | static_cast<std::uint32_t>(__ldg(sixteen_keys + 4 * 32)) << 16;
  }
  /// The same of words in shared memory.
  __device__ __forceinline__ void read(std::uint32_t atom, int warp, int lane) {
    const std::uint32_t sixteen_keys = atom + first_query(lane) * 8 + warp * 2;
    word = ptx::ld_shared_u16(sixteen_keys) | ptx::ld_shared_u16(sixteen_keys + 8 * 32) << 16;
  }

  /// From 16 keys of two queries to two keys of 16 queries: a transposition of bits, three of the lane's number for
  /// three of the key's.
  __device__ __forceinline__ void arrange(int lane) {
    trade<4>(lane);
    trade<2>(lane);
    trade<1>(lane);
  }

  /// Masks all pairs of the lane's key `half`.
  __device__ __forceinline__ void mask_key(int half) { word &= half == 0 ? 0xff00ff00u : 0x00ff00ffu; }

  /// Calls clear(i) for the masked ones of the lane's 32 elements, which it counts from `first` on.
  template <class Clear>
  __device__ __forceinline__ void hide(Clear&& clear, int first) const {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int block = i / 4;  // of 8 queries
      const int bit = block / 4 * 16 + i / 2 % 2 * 8 + block % 4 * 2 + i % 2;
      if ((word >> bit & 1u) == 0) clear(first + i);
    }
  }

 private:
  /// Of which a lane reads; its other one is 32 further. Bits 4, 3 and 0 of it are the lane's bits 4, 3 and 2, which
  /// arrange() trades for those of a key.
  static __device__ __forceinline__ int first_query(int lane) {
    return (lane & 24) | (lane & 3) << 1 | (lane >> 2 & 1);
  }

  /// Trades bit log2(kKey) of the key for bit log2(4 kKey) of the lane.
  template <int kKey>
  __device__ __forceinline__ void trade(int lane) {
    constexpr std::uint32_t kLower = 0xffffffffu / ((1u << kKey) + 1u);  // keys whose bit is 0
    const bool upper = (lane & 4 * kKey) != 0;
    const std::uint32_t kept = upper ? ~kLower : kLower;
    const std::uint32_t received = __shfl_xor_sync(0xffffffffu, word, 4 * kKey);
    word = (word & kept) | (__funnelshift_l(received, received, upper ? 32 - kKey : kKey) & ~kept);
  }
};

/// Calls clear(i) for the elements of a lane's key `half` with those of the queries 32 w ... 32 w + 31 whose bit is 0.
template <class Clear>
__device__ __forceinline__ void keep_visible(Clear&& clear, std::uint32_t queries, int w, int half, int lane) {
  const std::uint32_t word = queries >> (lane % 4 * 2);
#pragma unroll
  for (int block = 0; block < 4; ++block)
#pragma unroll
    for (int e = 0; e < 2; ++e)
      if ((word >> (block * 8 + e) & 1u) == 0) clear((w * 4 + block) * 4 + half * 2 + e);
}

/// Calls clear(i) for the elements of a lane's key `half`, of `Elements` of both keys, with the queries that do not see
/// it. It clears by selection: their scores may have overflowed.
template <int Elements, class Clear>
__device__ __forceinline__ void hide_invisible(Clear&& clear, const VisibleQueries& visible, int half, int lane) {
#pragma unroll
  for (int w = 0; w < Elements / 16; ++w)
    keep_visible(clear, bits_from(visible.low - 32 * w) & bits_below(visible.high - 32 * w), w, half, lane);
}

/// Reads a warp's share of a tile of biases, [queries][keys] in panels of 64 keys: stmatrix's way back.
template <DataType Type>
struct BiasFragments {
  std::uint32_t rows;  ///< shared address of the lane's row of 8 keys
  int row_bytes;
  std::uint32_t lowest = 0;  ///< of the biases that were read, packed

  /// Biases of the k-th 16 queries, packed in pairs of queries: [query 8-block][key half].
  __device__ __forceinline__ void read(int k, std::uint32_t (&words)[4]) {
    ptx::ldmatrix_x4_trans(words, rows + k * 16 * row_bytes);
#pragma unroll
    for (int i = 0; i < 4; ++i) lowest = packed_min<Type>(lowest, words[i]);
  }
  /// Whether one of the lane's is minus infinity.
  __device__ __forceinline__ bool masks() const {
    const float2 both = unpack<Type>(lowest);
    return both.x == -INFINITY || both.y == -INFINITY;
  }
  /// Clears the probabilities of the pairs whose bias is minus infinity, by selection: their scores may have
  /// overflowed.
  template <int Count>
  __device__ __forceinline__ void hide(float (&p)[Count]) {
#pragma unroll
    for (int k = 0; k < Count / 8; ++k) {
      std::uint32_t words[4];
      read(k, words);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 bias = unpack<Type>(words[i]);
        if (bias.x == -INFINITY) p[k * 8 + i * 2] = 0.0f;
        if (bias.y == -INFINITY) p[k * 8 + i * 2 + 1] = 0.0f;
      }
    }
  }
};

/// The same of biases that have been read: `words` as BiasFragments::read() gives them.
template <DataType Type, int kSteps>
struct LoadedBias : BiasFragments<Type> {
  const std::uint32_t (&loaded)[kSteps][4];

  __device__ __forceinline__ LoadedBias(std::uint32_t rows, int row_bytes, const std::uint32_t (&words)[kSteps][4])
      : BiasFragments<Type>{rows, row_bytes}, loaded(words) {}
  __device__ __forceinline__ void read(int k, std::uint32_t (&words)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = loaded[k][i];
      this->lowest = packed_min<Type>(this->lowest, words[i]);
    }
  }
};

/// Clears element i of a lane's, packed in pairs of queries in the order of wgmma's A operand.
template <int Words>
__device__ __forceinline__ void clear_packed(std::uint32_t (&packed)[Words][4], int i) {
  packed[i / 8][i / 2 % 4] &= i % 2 == 0 ? 0xffff0000u : 0x0000ffffu;
}

/// Whether scores become weights, P (1 - tanh^2), which multiply dP - D, and P is packed beside them: with a softcap. A
/// bias's gradient needs dS without the slope 1 - tanh^2; it leaves P in the scores, and the slope is packed.
template <KernelConfig kConfig>
inline constexpr bool kScoresTakeSlope = (kConfig.softcap && kConfig.bias == BiasKind::none);

/// Whether weights are made in the scale of those handed over as fp16.
template <KernelConfig kConfig>
inline constexpr bool kScaledWeights = packs_weights(kConfig);

/// What exponentiate() has nothing to do with.
struct Absent {};
template <class T>
inline constexpr bool kPresent = !std::is_same_v<std::remove_cvref_t<T>, Absent>;

/// The LSE of the j-th two queries of a lane, from the shared address of the first, or of those that have been read.
__device__ __forceinline__ float2 lse_of(std::uint32_t lse, int j) {
  return ptx::ld_shared_v2(lse + j * 32);
}
template <int kPairs>
__device__ __forceinline__ float2 lse_of(const float2 (&lse)[kPairs], int j) {
  return lse[j];
}

/// Shared address of the first where they lie in StatisticTerms.
struct LseInTerms {
  std::uint32_t address;
};
__device__ __forceinline__ float2 lse_of(const LseInTerms& lse, int j) {
  constexpr int kTerms = sizeof(StatisticTerms);
  return {ptx::ld_shared_f32(lse.address + j * (8 * kTerms)),
          ptx::ld_shared_f32(lse.address + j * (8 * kTerms) + kTerms)};
}

/// Scores to probabilities: softcap, bias, exponential. `lse`: as lse_of() takes it; Absent: the products have
/// subtracted it.
/// `key_bias`: float[2] of the lane's two keys, in units of log2. `tile_bias`: BiasFragments. Softcap: `packed` become
/// P or the slopes of pairs of queries, as kScoresTakeSlope has it, in the order of wgmma's A operand. Each of these
/// may be Absent. Elements from kProbabilities on are left as exponents, in units of log2. All lanes of the warp.
template <KernelConfig kConfig, int kProbabilities = std::numeric_limits<int>::max(), int Count, class Lse,
          class KeyBias, class TileBias, class Packed>
__device__ __forceinline__ void exponentiate(const BackwardParameters& p, float (&s)[Count], const Lse& lse,
                                             KeyBias&& key_bias, TileBias&& tile_bias, Packed&& packed) {
  constexpr DataType kType = kConfig.data_type;
  constexpr bool kSoftcap = kConfig.softcap;
  static_assert(kPresent<Packed> == kSoftcap && (!kSoftcap || kProbabilities >= Count));
  // The slopes' scale is that of tanh, squared.
  constexpr float kOne = kSoftcap ? kTanhScale<kConfig> * kTanhScale<kConfig> : 1.0f;
  static_assert(!kScaledWeights<kConfig> || kOne == kPackedWeightScale);
  const float to_log2 = kSoftcap ? p.score_log2 * (1.0f / kTanhScale<kConfig>) : p.score_log2;
  const auto run = [&](auto&& scaled_tanh) {
    [[maybe_unused]] std::uint32_t bias_words[4];
#pragma unroll
    for (int j = 0; j < Count / 4; ++j) {
      float2 column{};
      if constexpr (kPresent<Lse>) column = lse_of(lse, j);
      if constexpr (kPresent<TileBias>)
        if (j % 2 == 0) tile_bias.read(j / 2, bias_words);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float2 offset = {-column.x, -column.y};
        if constexpr (kPresent<KeyBias>) offset = {key_bias[half] - column.x, key_bias[half] - column.y};
        if constexpr (kPresent<TileBias>) {
          const float2 bias = unpack<kType>(bias_words[j % 2 * 2 + half]);
          offset = {fmaf(bias.x, kLog2E, offset.x), fmaf(bias.y, kLog2E, offset.y)};
        }
        float& x = s[j * 4 + half * 2];
        float& y = s[j * 4 + half * 2 + 1];
        [[maybe_unused]] float2 slope;
        if constexpr (kSoftcap) {
          x = scaled_tanh(x);
          y = scaled_tanh(y);
          slope = {kOne - x * x, kOne - y * y};
        }
        if constexpr (kPresent<Lse> || kPresent<KeyBias>) {
          x = fmaf(x, to_log2, offset.x);
          y = fmaf(y, to_log2, offset.y);
        } else {
          x *= to_log2;
          y *= to_log2;
        }
        if (j * 4 >= kProbabilities) continue;
        x = ptx::ex2(x);
        y = ptx::ex2(y);
        if constexpr (kScoresTakeSlope<kConfig>) {
          packed[j / 2][j % 2 * 2 + half] = pack<kType>(x, y);
          x *= slope.x;
          y *= slope.y;
        } else if constexpr (kSoftcap) {
          packed[j / 2][j % 2 * 2 + half] = pack<kSlopeType>(slope.x, slope.y);
        }
      }
    }
  };
  if constexpr (!kSoftcap) {
    run(nullptr);
  } else {
    with_tanh<kConfig>(p, s, run);
  }
}

/// Elements from the bias's first to that of an item's head.
__device__ __forceinline__ std::int64_t bias_head_offset(const BackwardParameters& p, const KeyItem& item, int head) {
  return item.batch * p.bias.stride_batch + (head / p.bias.heads_per_head) * p.bias.stride_head;
}

/// A key bias; 0 past the end of the keys.
template <DataType Type>
__device__ __forceinline__ float key_bias_of(const BackwardParameters& p, const KeyItem& item, int head, int key) {
  if (key == kPastEnd) return 0.0f;
  const std::int64_t element = bias_head_offset(p, item, head) + key * p.bias.stride_column;
  return p.bias_is_float ? static_cast<const float*>(p.bias.data)[element]
                         : to_float<Type>(static_cast<const std::uint16_t*>(p.bias.data)[element]);
}

}  // namespace flashdma_bwd::hopper
