// Which CTA of the main kernel takes which item or piece of one: a table that one CTA writes before.
//
// Only that CTA knows the steps of all items where a mask, or the lengths of packed sequences, decides them. It chooses
// the length of pieces unless the host did. Pieces of split items come first, for they are the longest there are. The
// table begins after the first `whole_items`, which the host may leave out.
#pragma once

#include "common/item.cuh"

namespace flashdma_bwd {

inline constexpr int kTableThreads = 256;

/// The steps of an item, of all its heads; -1: it has no keys.
__device__ inline int steps_of_item(const BackwardParameters& p, int index) {
  KeyItem item;
  HeadWalk walk = {};
  if (!find_whole_item(item, p, index, p.block_n)) return -1;
  for (int h = 0; h < p.heads_per_item; ++h) find_head(walk, item, p, h, p.block_m, p.block_n);
  return walk.end_step;
}

/// The sum of the lanes' tallies.
__device__ inline SplitTally sum_of_lanes(SplitTally tally) {
  for (int mask = 16; mask > 0; mask /= 2) {
    tally.steps += __shfl_xor_sync(0xffffffffu, tally.steps, mask);
    tally.pieces += __shfl_xor_sync(0xffffffffu, tally.pieces, mask);
    tally.slots += __shfl_xor_sync(0xffffffffu, tally.slots, mask);
    tally.longest = max(tally.longest, __shfl_xor_sync(0xffffffffu, tally.longest, mask));
  }
  return tally;
}

/// One CTA of kTableThreads threads.
class WorkTableWriter {
  static constexpr int kWarps = kTableThreads / 32;
  /// A tally as shared memory can hold it.
  struct Numbers {
    std::int64_t steps, pieces, slots;
    int longest;
  };
  struct Shared {
    Numbers warps[kWarps];
    std::int64_t estimates[kMostPieces + 1];  ///< by the pieces of the longest item
    std::uint64_t sums[kWarps];
  };

 public:
  __device__ explicit WorkTableWriter(const BackwardParameters& parameters)
      : p(parameters), items_(parameters.items - parameters.whole_items), thread_(static_cast<int>(threadIdx.x)) {}

  __device__ void run() {
    __shared__ Shared shared;
    for (int i = thread_; i < items_; i += kTableThreads) p.item_steps[i] = steps_of_item(p, p.whole_items + i);
    __syncthreads();
    const int piece_steps = p.piece_steps > 0 ? p.piece_steps : choose_piece_steps(shared);
    const std::int64_t pieces = write(shared, piece_steps);
    for (std::int64_t i = pieces + thread_; i < p.ctas - p.whole_items; i += kTableThreads)
      p.work[i] = {-1, 0, 0, 0, 0};
    for (std::int64_t i = thread_; i < std::int64_t{p.piece_slots} * kPieceParts; i += kTableThreads)
      p.piece_arrivals[i] = 0;
  }

 private:
  __device__ SplitTally tally_of(int piece_steps, int first, int step) const {
    SplitTally tally;
    for (int i = first; i < items_; i += step)
      if (p.item_steps[i] >= 0) tally.add(p.item_steps[i], piece_steps, 1);
    return tally;
  }

  /// The tally of all items, for all threads.
  __device__ SplitTally tally_of_all(Shared& shared, int piece_steps) const {
    const SplitTally mine = sum_of_lanes(tally_of(piece_steps, thread_, kTableThreads));
    __syncthreads();
    if (thread_ % 32 == 0) shared.warps[thread_ / 32] = {mine.steps, mine.pieces, mine.slots, mine.longest};
    __syncthreads();
    SplitTally all;
    for (const Numbers& warp : shared.warps) {
      all.steps += warp.steps;
      all.pieces += warp.pieces;
      all.slots += warp.slots;
      all.longest = max(all.longest, warp.longest);
    }
    return all;
  }

  /// The length whose time is estimated shortest among those for which there is room. Each warp tries some.
  __device__ int choose_piece_steps(Shared& shared) const {
    const SplitTally whole = tally_of_all(shared, kAllSteps);
    if (!whole.may_gain(p.running, p.overhead)) return kAllSteps;
    for (int n = 2 + thread_ / 32; n <= kMostPieces; n += kWarps) {
      const SplitTally tally = sum_of_lanes(tally_of(piece_steps_for(whole.longest, n, p.overhead), thread_ % 32, 32));
      if (thread_ % 32 == 0)
        shared.estimates[n] = tally.slots <= p.piece_slots ? tally.estimate(p.running, p.overhead)
                                                           : whole.estimate(p.running, p.overhead);
    }
    __syncthreads();
    std::int64_t best = whole.estimate(p.running, p.overhead);
    int steps = kAllSteps;
    for (int n = 2; n <= kMostPieces; ++n)
      if (shared.estimates[n] < best) {
        best = shared.estimates[n];
        steps = piece_steps_for(whole.longest, n, p.overhead);
      }
    return steps;
  }

  /// The sum of the values of all smaller threads, and of all.
  __device__ std::uint64_t sum_before(Shared& shared, std::uint64_t value, std::uint64_t& all) const {
    const int lane = thread_ % 32;
    std::uint64_t sum = value;
    for (int step = 1; step < 32; step *= 2) {
      const std::uint64_t other = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane >= step) sum += other;
    }
    __syncthreads();
    if (lane == 31) shared.sums[thread_ / 32] = sum;
    __syncthreads();
    std::uint64_t before = sum - value;
    all = 0;
    for (int warp = 0; warp < kWarps; ++warp) {
      if (warp < thread_ / 32) before += shared.sums[warp];
      all += shared.sums[warp];
    }
    return before;
  }

  /// Writes the table but for its end. Returns the number of pieces.
  __device__ std::int64_t write(Shared& shared, int piece_steps) const {
    const SplitTally tally = tally_of_all(shared, piece_steps);
    // In deterministic mode a CTA waits for those with earlier key tiles of the same heads, so these come first; and
    // CTAs start in the order of the table. The pieces of a key tile visit different tiles of dQ and do not wait for
    // each other, nor for the sums of dK and dV, which whoever is last makes: the first CTA that has not finished waits
    // for none, so that there is always one that goes on.
    const bool in_order = p.d_q_turns != nullptr;
    std::uint64_t before = 0;  // low half: pieces of split items; high half: other items
    for (int base = 0; base < items_; base += kTableThreads) {
      const int item = base + thread_;
      const int steps = item < items_ ? p.item_steps[item] : -1;
      const int pieces = steps < 0 ? 0 : pieces_of(steps, piece_steps);
      std::uint64_t all;
      const std::uint64_t mine =
          pieces > 1 ? static_cast<std::uint64_t>(pieces) : static_cast<std::uint64_t>(pieces) << 32;
      const std::uint64_t place = before + sum_before(shared, mine, all);
      before += all;
      const auto slot = static_cast<std::int64_t>(place & 0xffffffffu);
      const auto unsplit = static_cast<std::int64_t>(place >> 32);
      const std::int64_t first = in_order ? slot + unsplit : pieces > 1 ? slot : tally.slots + unsplit;
      for (int piece = 0; piece < pieces; ++piece)
        p.work[first + piece] = {p.whole_items + item, static_cast<std::int16_t>(piece),
                                 static_cast<std::int16_t>(pieces), static_cast<std::int32_t>(slot), steps};
    }
    return tally.pieces;
  }

  const BackwardParameters& p;
  int items_;  ///< of the table, counted from the first after the whole ones
  int thread_;
};

}  // namespace flashdma_bwd
