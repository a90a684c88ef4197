// Counting, reading and resetting.
#include "monitoring/call_counters.hpp"

#include <cmath>
#include <flashdma_bwd/kernel_table.hpp>

#include "selection/architecture_chain.hpp"

namespace flashdma_bwd {
namespace {

constexpr bool tiers_are_counted() {
  for (const FallbackStep& step : kFallbackChain)
    if (step.tier >= FLASHDMA_BWD_TIERS) return false;
  return true;
}
static_assert(tiers_are_counted(), "flashdma_bwd_counters.tier_calls has a number for each tier of kFallbackChain");

constexpr double kNanoseconds = 1e6;  // of a millisecond

void add(std::atomic<std::uint64_t>& number, std::uint64_t value = 1) {
  number.fetch_add(value, std::memory_order_relaxed);
}

std::uint64_t value_of(const std::atomic<std::uint64_t>& number) {
  return number.load(std::memory_order_relaxed);
}

std::atomic<CallCounters*> process_counters{nullptr};

}  // namespace

void CallCounters::add_call(std::size_t kernel, int tier) {
  if (kernel < kernels_.size()) add(kernels_[kernel].calls);
  add(tier_calls_[static_cast<std::size_t>(tier)]);
}

void CallCounters::add_time(std::size_t kernel, double milliseconds) {
  if (kernel >= kernels_.size()) return;
  add(kernels_[kernel].timed_calls);
  add(kernels_[kernel].nanoseconds, static_cast<std::uint64_t>(std::llround(milliseconds * kNanoseconds)));
}

void CallCounters::add_untimed_call() {
  add(untimed_calls_);
}
void CallCounters::add_cache_hit() {
  add(cache_hits_);
}
void CallCounters::add_cache_miss() {
  add(cache_misses_);
}

void CallCounters::reset() {
  generation_.fetch_add(1, std::memory_order_relaxed);
  for (Kernel& kernel : kernels_)
    for (Number* number : {&kernel.calls, &kernel.timed_calls, &kernel.nanoseconds})
      number->store(0, std::memory_order_relaxed);
  for (Number& calls : tier_calls_) calls.store(0, std::memory_order_relaxed);
  for (Number* number : {&untimed_calls_, &cache_hits_, &cache_misses_}) number->store(0, std::memory_order_relaxed);
}

void CallCounters::read(flashdma_bwd_counters& counters) const {
  counters.calls = 0;
  for (std::size_t tier = 0; tier < tier_calls_.size(); ++tier) {
    counters.tier_calls[tier] = value_of(tier_calls_[tier]);
    counters.calls += counters.tier_calls[tier];
  }
  counters.timed_calls = 0;
  counters.milliseconds = 0;
  for (const Kernel& kernel : kernels_) {
    counters.timed_calls += value_of(kernel.timed_calls);
    counters.milliseconds += static_cast<double>(value_of(kernel.nanoseconds)) / kNanoseconds;
  }
  counters.untimed_calls = value_of(untimed_calls_);
  counters.cache_hits = value_of(cache_hits_);
  counters.cache_misses = value_of(cache_misses_);
}

void CallCounters::read(std::size_t kernel, flashdma_bwd_kernel_counters& counters) const {
  counters.calls = counters.timed_calls = 0;
  counters.milliseconds = 0;
  if (kernel >= kernels_.size()) return;
  counters.calls = value_of(kernels_[kernel].calls);
  counters.timed_calls = value_of(kernels_[kernel].timed_calls);
  counters.milliseconds = static_cast<double>(value_of(kernels_[kernel].nanoseconds)) / kNanoseconds;
}

CallCounters& make_call_counters(std::size_t kernels) {
  static CallCounters* const made = [kernels] {
    auto* fresh = new CallCounters(kernels);  // kept for the library's lifetime: launches in flight add to it
    process_counters.store(fresh, std::memory_order_release);
    return fresh;
  }();
  return *made;
}

CallCounters* call_counters() {
  return process_counters.load(std::memory_order_acquire);
}

}  // namespace flashdma_bwd
