// A key-vector bias in a consumer warpgroup: the biases of its keys with the head at work, and the sums of dS that are
// their gradient.
#pragma once

#include "hopper/consumer/tiles.cuh"
#include "hopper/key_gradient.cuh"
#include "hopper/score_tile.cuh"

namespace flashdma_bwd::hopper {

/// Its functions are called with a key-vector bias only.
template <KernelConfig kConfig, bool kAddsDQuery>
class ConsumerKeyBias : protected ConsumerTiles<kConfig, kAddsDQuery> {
 protected:
  using Base = ConsumerTiles<kConfig, kAddsDQuery>;
  using Base::kType, Base::kKeyBias, Base::key_row, Base::consumer_thread, Base::position, Base::p, Base::shared_,
      Base::state, Base::slot_;
  using typename Base::G, typename Base::State;
  using BiasSums = std::conditional_t<Base::G::kBiasSumsOfThreads, ThreadSums, KeySums>;

  __device__ __forceinline__ ConsumerKeyBias(const BackwardParameters& parameters, const TensorMaps& tensor_maps,
                                             std::uint32_t shared, State& shared_state, int consumer)
      : Base(parameters, tensor_maps, shared, shared_state, consumer) {}

  __device__ __forceinline__ std::uint32_t key_bias_address(int half) const {
    return shared_ + G::kKeyBias + (key_row() + half * 8) * 4;
  }

  /// The biases of the warp's keys with the head at work, in units of log2, into shared memory, which no other warp
  /// reads. Each by two lanes: behind a branch of some lanes ptxas would keep nothing uniform
  /// (notes/compiler_and_copies.md).
  __device__ __forceinline__ void load_key_biases() const {
    __syncwarp();  // the last head's have been read
    const KeyItem& item = state.items[slot_];
    const int half = lane() % 2;
    const float value = key_bias_of<kType>(p, item, head_, position(item, half));
    ptx::st_shared_32(key_bias_address(half), __float_as_uint(value * kLog2E));
    __syncwarp();
  }

  __device__ __forceinline__ void read_key_biases(float (&biases)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) biases[half] = ptx::ld_shared_f32(key_bias_address(half));
  }

  /// What follows from a step's head, where it is another one than before. `biases`: of the lane's keys.
  __device__ __forceinline__ void take_head(int step_head, float (&biases)[2]) {
    const int head = ptx::in_uniform_register(step_head);
    if (head == head_) return;
    write_bias_sums_of_head();
    head_ = head;
    load_key_biases();
    read_key_biases(biases);
  }

  /// Behind an item's last step.
  __device__ __forceinline__ void leave_head() {
    write_bias_sums_of_head();
    head_ = kNoHead;
  }

  // --- The gradient ---
  //
  // In shared memory, for there are no registers for them: the thread's sums of dS over its queries for its two keys;
  // or, where there is room for one sum of a key only, which the quad of lanes adds up in every step, that of the first
  // key is the first lane's and that of the second key the second's.

  __device__ __forceinline__ std::uint32_t bias_sums_address() const {
    if constexpr (G::kBiasSumsOfThreads)
      return shared_ + G::kBiasSums + consumer_thread() * 8;
    else
      return shared_ + G::kBiasSums + (key_row() + lane() % 2 * 8) * 4;
  }

  __device__ __forceinline__ void clear_bias_sums() const {
    if constexpr (G::kBiasSumsOfThreads)
      ptx::st_shared_v2(bias_sums_address(), 0.0f, 0.0f);
    else if (lane() % 4 < 2)
      ptx::st_shared_f32(bias_sums_address(), 0.0f);
  }

  /// Writes the sums of the head at work, and starts anew.
  __device__ __forceinline__ void write_bias_sums_of_head() const {
    const KeyItem& item = state.items[slot_];
    if constexpr (G::kBiasSumsOfThreads) {
      const float2 sums = ptx::ld_shared_v2(bias_sums_address());
      clear_bias_sums();
      if (head_ == kNoHead) return;
      write_bias_sum(p, item, head_, position(item, 0), sums.x, lane());
      write_bias_sum(p, item, head_, position(item, 1), sums.y, lane());
    } else {
      if (lane() % 4 >= 2) return;
      const float sum = ptx::ld_shared_f32(bias_sums_address());
      clear_bias_sums();
      if (head_ != kNoHead) store_bias_sum(p, item, head_, position(item, lane() % 2), sum);
    }
  }

  static constexpr int kNoHead = -1;  ///< the head at work before the first
  int head_ = kNoHead;                ///< whose sums and biases are in shared memory
};

}  // namespace flashdma_bwd::hopper
