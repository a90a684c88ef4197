// The gradient of a tile bias as float32: where heads or sequences share its elements, so that they are sums, or where
// the caller wants it so. Tensor copies, which store any other, neither convert nor add up what they convert.
#pragma once

#include "common/numeric.cuh"
#include "hopper/geometry.cuh"
#include "hopper/ptx.cuh"

namespace flashdma_bwd::hopper {

/// Adds rows [kFirst, kEnd) of a panel of dS to dBias, or stores them there, as p.bias_gradient has it. `panel`: its
/// shared address, of keys from the position `first_key` on. One warp, half of which takes a row, four keys to a lane:
/// a quarter with eight keys each needs fewer reads, but its additions touch each 32 bytes of dBias twice, which is
/// slower.
template <class Tile, int kFirst, int kEnd, DataType Type>
__device__ __forceinline__ void write_bias_floats(const BackwardParameters& p, std::uint32_t panel, int batch,
                                                  const StepInfo& info, int first_key, int lane) {
  constexpr int kLanesOfRow = 16;
  constexpr int kRowsAtOnce = 2;
  constexpr int kRowsAhead = 8;  // the swizzle repeats itself after these
  static_assert(Tile::kRowBytes == 128 && kFirst % kRowsAhead == 0 && kEnd % kRowsAhead == 0 && kFirst < kEnd);
  // Rows of dBias end with a multiple of eight elements, and past the ends of a sequence dS is 0.
  const int column = first_key + lane % kLanesOfRow * 4;
  if (column >= p.seqlen_k) return;
  const int first_row = kFirst + lane / kLanesOfRow;
  const int rows = p.seqlen_q - info.first_query - first_row;
  float* to = static_cast<float*>(p.d_bias.data) + batch * p.d_bias.stride_batch +
              info.head / p.d_bias.heads_per_head * p.d_bias.stride_head +
              (info.first_query + first_row) * p.d_bias.stride_row + column;
  const bool adds = p.bias_gradient == BiasGradient::accumulate;
  std::uint32_t from = panel + Tile::offset(first_row, lane % kLanesOfRow * 4);
  const auto read = [&](int u) {
    return ptx::ld_shared_v2_b32((from ^ u * kRowsAtOnce * 16) + u * kRowsAtOnce * Tile::kRowBytes);
  };
  // What binds is how long a warp takes from a read to its addition, so rows are read ahead.
  uint2 words[kRowsAhead / kRowsAtOnce];
#pragma unroll
  for (int u = 0; u < kRowsAhead / kRowsAtOnce; ++u) words[u] = read(u);
#pragma unroll 1
  for (int row = 0; row < kEnd - kFirst; row += kRowsAhead) {
    from += kRowsAhead * Tile::kRowBytes;
#pragma unroll
    for (int u = 0; u < kRowsAhead / kRowsAtOnce; ++u) {
      if (row + u * kRowsAtOnce < rows) {
        const float2 x = unpack<Type>(words[u].x);
        const float2 y = unpack<Type>(words[u].y);
        if (adds)
          ptx::red_add_v4(to, {x.x, x.y, y.x, y.y});
        else
          __stcs(reinterpret_cast<float4*>(to), make_float4(x.x, x.y, y.x, y.y));
      }
      to = ptx::opaque(to + kRowsAtOnce * p.d_bias.stride_row);  // else all of a loop's addresses at once, in registers
      if (row + kRowsAhead < kEnd - kFirst) words[u] = read(u);
    }
  }
}

/// Writes every step's dS so, from the ring of dS of a CTA with all keys of an item. The warps that add a consumer's dQ
/// do most of it, before they need the consumer's next dS, and the producer's last warp the rest.
template <KernelConfig kConfig>
class BiasGradientFloats {
  using G = Geometry<kConfig>;
  using State = typename G::State;
  using Tile = typename G::PairTile;
  static constexpr int kMostRows = G::kM * 5 / 8 / 8 * 8;

 public:
  __device__ __forceinline__ BiasGradientFloats(const BackwardParameters& parameters, std::uint32_t shared,
                                                State& shared_state)
      : p(parameters), shared_(shared), state(shared_state) {}

  __device__ __forceinline__ bool wanted() const {
    return p.bias_gradient == BiasGradient::store_float || p.bias_gradient == BiasGradient::accumulate;
  }

  /// The first queries of step i, whose dS of the consumer has been stored, with the consumer's keys. One warp for each
  /// consumer.
  __device__ __forceinline__ void write_most(int i, int consumer, int lane) const {
    write_rows<0, kMostRows>(i, consumer, lane);
    give_back(i, lane);
  }

  /// The other queries of all steps, with all keys. One warp.
  __device__ __forceinline__ void run_rest() const {
    const int lane = ptx::fresh_thread_index() % 32;
    const int steps = state.step_counts[0];
    for (int i = 0; i < steps; ++i) {
      const RingPosition<G::kDScoreStages> ring(i);
#pragma unroll 1
      for (int consumer = 0; consumer < G::kConsumers; ++consumer) {
        ptx::mbarrier_wait_parity(ptx::shared_address(&state.d_score_stored[consumer][ring.stage]), ring.parity);
        write_rows<kMostRows, G::kM>(i, consumer, lane);
      }
      give_back(i, lane);
    }
  }

 private:
  template <int kFirst, int kEnd>
  __device__ __forceinline__ void write_rows(int i, int consumer, int lane) const {
    const std::uint32_t tile = shared_ + G::kBias + RingPosition<G::kBiasStages>(i).stage * Tile::kBytes;
    const KeyItem& item = state.items[0];
    write_bias_floats<Tile, kFirst, kEnd, kConfig.data_type>(
        p, tile + consumer * Tile::kPanelBytes, item.batch, state.steps[i % kStepSlots],
        item.first_position + consumer * Tile::kPanelColumns, lane);
  }
  __device__ __forceinline__ void give_back(int i, int lane) const {
    __syncwarp();
    if (lane == 0)
      ptx::mbarrier_arrive(ptx::shared_address(&G::bias_empty(state, RingPosition<G::kBiasStages>(i).stage)));
  }

  const BackwardParameters& p;
  std::uint32_t shared_;
  State& state;
};

}  // namespace flashdma_bwd::hopper
