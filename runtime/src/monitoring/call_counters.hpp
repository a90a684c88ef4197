// What was called how often, and how long it took: numbers that only grow until they are reset, added without a lock.
#pragma once

#include <flashdma_bwd/flashdma_bwd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace flashdma_bwd {

class CallCounters {
 public:
  explicit CallCounters(std::size_t kernels) : kernels_(kernels) {}

  /// `kernel` is an index into the kernels of the build.
  void add_call(std::size_t kernel, int tier);
  void add_time(std::size_t kernel, double milliseconds);
  void add_untimed_call();
  /// Of the cache of measured choices.
  void add_cache_hit();
  void add_cache_miss();

  void reset();
  /// Changes with each reset: times of calls from before one are not added behind it.
  std::uint32_t generation() const { return generation_.load(std::memory_order_relaxed); }

  /// Fills all but struct_size and unfinished_calls.
  void read(flashdma_bwd_counters& counters) const;
  /// Fills all but struct_size. Zeros for a kernel that there is not.
  void read(std::size_t kernel, flashdma_bwd_kernel_counters& counters) const;

 private:
  using Number = std::atomic<std::uint64_t>;
  struct Kernel {
    Number calls{0};
    Number timed_calls{0};
    Number nanoseconds{0};
  };
  std::vector<Kernel> kernels_;
  std::array<Number, FLASHDMA_BWD_TIERS> tier_calls_{};
  Number untimed_calls_{0};
  Number cache_hits_{0};
  Number cache_misses_{0};
  std::atomic<std::uint32_t> generation_{0};
};

/// The process's, made at the first use for this number of kernels and never taken away.
CallCounters& make_call_counters(std::size_t kernels);
/// The same, or nullptr if they have not been made.
CallCounters* call_counters();

}  // namespace flashdma_bwd
