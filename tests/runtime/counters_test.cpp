// Counters, and times by events of a GPU that is pretended.
#include <atomic>
#include <cmath>
#include <set>
#include <thread>
#include <vector>

#include "allocations.hpp"
#include "monitoring/event_pool.hpp"
#include "monitoring/monitored_launch.hpp"
#include "support/catch.hpp"
#include "tables.hpp"

namespace flashdma_bwd::testing {
namespace {

/// A GPU whose events are numbers, and which comes past them when it is told to.
struct PretendedGpu {
  static inline std::atomic<std::uintptr_t> created{0};
  static inline std::uintptr_t most_created = 1000;
  static inline std::vector<cudaEvent_t> destroyed;
  static inline std::atomic<bool> refuses_records{false};
  static inline std::atomic<bool> all_passed{false};
  static inline std::set<cudaEvent_t> passed;
  static inline std::atomic<int> queries{0};
  static inline std::atomic<cudaError_t> answer{cudaSuccess};  ///< for an event that was passed

  PretendedGpu() {
    created = 0;
    most_created = 1000;
    destroyed.clear();
    refuses_records = all_passed = false;
    passed.clear();
    queries = 0;
    answer = cudaSuccess;
  }
  static cudaEvent_t event(std::uintptr_t number) { return reinterpret_cast<cudaEvent_t>(number); }
  /// The second event of a pair: pairs are created one after the other.
  static cudaEvent_t stop_of(int pair) { return event(2 * static_cast<std::uintptr_t>(pair) + 2); }

  static constexpr EventFunctions kFunctions = {
      [](cudaEvent_t* made) {
        if (created >= most_created) return cudaErrorMemoryAllocation;
        *made = event(++created);
        return cudaSuccess;
      },
      [](cudaEvent_t event) {
        destroyed.push_back(event);
        return cudaSuccess;
      },
      [](cudaEvent_t, cudaStream_t) { return refuses_records ? cudaErrorInvalidResourceHandle : cudaSuccess; },
      [](cudaEvent_t event) {
        ++queries;
        return all_passed || passed.count(event) != 0 ? answer.load() : cudaErrorNotReady;
      },
      [](float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
        *milliseconds = 0.25f * static_cast<float>(reinterpret_cast<std::uintptr_t>(stop));
        return reinterpret_cast<std::uintptr_t>(stop) == reinterpret_cast<std::uintptr_t>(start) + 1
                   ? cudaSuccess
                   : cudaErrorInvalidResourceHandle;
      }};
};

/// A pool on that GPU, with counters of three kernels.
struct TimedGpu : PretendedGpu {
  explicit TimedGpu(int pairs) { REQUIRE(pool.create(pairs) == cudaSuccess); }
  /// The pair of a call that was timed.
  int call(std::size_t kernel) {
    const int pair = pool.start(nullptr);
    REQUIRE(pair >= 0);
    REQUIRE(pool.stop(pair, nullptr, kernel));
    return pair;
  }
  flashdma_bwd_counters read() const {
    flashdma_bwd_counters read{};
    counters.read(read);
    return read;
  }
  flashdma_bwd_kernel_counters read(std::size_t kernel) const {
    flashdma_bwd_kernel_counters read{};
    counters.read(kernel, read);
    return read;
  }
  CallCounters counters{3};
  EventPool pool{kFunctions, counters};
};

bool is_near(double value, double expected) {
  return std::abs(value - expected) < 1e-6;
}

/// Counters of the process that start at 0, with the flags while it lives.
struct Counted {
  explicit Counted(std::uint32_t flags) : counters(make_call_counters(0)) {
    counters.reset();
    set_monitor_flags(flags);
  }
  ~Counted() { set_monitor_flags(0); }
  flashdma_bwd_counters read() const {
    flashdma_bwd_counters read{};
    counters.read(read);
    return read;
  }
  CallCounters& counters;
};

LaunchResult call(std::size_t kernel, int tier, cudaError_t error = cudaSuccess,
                  CacheAnswer cache = CacheAnswer::not_asked) {
  return monitored_launch(
      [&] {
        CallDescription description;
        description.problem = ordinary_problem();
        description.kernel = description.row_file = "";
        description.kernel_index = kernel;
        description.tier = tier;
        description.cache = cache;
        return description;
      },
      [&] {
        return LaunchResult{error, "main kernel", 3};
      });
}

}  // namespace

TEST_CASE("calls are counted by kernel") {
  CallCounters counters(3);
  for (const std::size_t kernel : {0, 2, 2, 3}) counters.add_call(kernel, 0);
  flashdma_bwd_kernel_counters read{};
  for (const auto& [kernel, calls] : {std::pair{0u, 1u}, std::pair{1u, 0u}, std::pair{2u, 2u}, std::pair{3u, 0u}}) {
    counters.read(kernel, read);
    CHECK(read.calls == calls);
  }
}

TEST_CASE("launches are counted by tier, those that fail are not") {
  const Counted counted(FLASHDMA_BWD_MONITOR_COUNTERS);
  call(0, 0);
  call(2, 1);
  call(2, 3);
  call(1, 0, cudaErrorInvalidValue);
  const flashdma_bwd_counters all = counted.read();
  CHECK(all.calls == 3);
  CHECK(all.tier_calls[0] == 1);
  CHECK(all.tier_calls[1] == 1);
  CHECK(all.tier_calls[2] == 0);
  CHECK(all.tier_calls[3] == 1);
  CHECK(all.timed_calls == 0);
  CHECK(all.untimed_calls == 0);
}

TEST_CASE("a launch counts what the cache of measured choices had for it") {
  const Counted counted(FLASHDMA_BWD_MONITOR_COUNTERS);
  call(0, 0, cudaSuccess, CacheAnswer::chosen);
  call(0, 0, cudaErrorInvalidValue, CacheAnswer::chosen);
  CHECK(counted.read().cache_hits == 1);
  CHECK(counted.read().cache_misses == 0);
  call(0, 0, cudaSuccess, CacheAnswer::unknown);
  call(0, 0, cudaSuccess, CacheAnswer::withheld);
  call(0, 0, cudaSuccess, CacheAnswer::not_asked);
  CHECK(counted.read().cache_hits == 1);
  CHECK(counted.read().cache_misses == 2);
  CHECK(counted.read().calls == 4);
}

TEST_CASE("a call that is counted allocates nothing") {
  const Counted counted(FLASHDMA_BWD_MONITOR_COUNTERS);
  const std::size_t allocated = allocations();
  call(0, 0);
  CHECK(allocations() == allocated);
  CHECK(counted.read().calls == 1);
}

TEST_CASE("a call that cannot be timed is counted as untimed, one that failed is not") {
  // There are no events: nobody has switched timing on for this device.
  const Counted counted(FLASHDMA_BWD_MONITOR_COUNTERS | FLASHDMA_BWD_MONITOR_TIMING);
  call(0, 0);
  call(0, 0, cudaErrorInvalidValue);
  CHECK(counted.read().calls == 1);
  CHECK(counted.read().untimed_calls == 1);
}

TEST_CASE("the cache's hits and misses are counted, and a reset clears everything") {
  CallCounters counters(1);
  counters.add_call(0, 2);
  counters.add_time(0, 1.5);
  counters.add_untimed_call();
  counters.add_cache_hit();
  counters.add_cache_hit();
  counters.add_cache_miss();
  flashdma_bwd_counters read{};
  counters.read(read);
  CHECK(read.cache_hits == 2);
  CHECK(read.cache_misses == 1);
  CHECK(read.timed_calls == 1);
  CHECK(is_near(read.milliseconds, 1.5));
  counters.reset();
  counters.read(read);
  CHECK(read.calls + read.tier_calls[2] + read.timed_calls + read.untimed_calls + read.cache_hits + read.cache_misses ==
        0);
  CHECK(read.milliseconds == 0);
}

TEST_CASE("look-ups in the cache are counted where calls are") {
  const Counted counted(0);
  count_cache_lookup(true);
  CHECK(counted.read().cache_hits == 0);
  set_monitor_flags(FLASHDMA_BWD_MONITOR_COUNTERS);
  count_cache_lookup(true);
  count_cache_lookup(false);
  count_cache_lookup(false);
  CHECK(counted.read().cache_hits == 1);
  CHECK(counted.read().cache_misses == 2);
}

TEST_CASE("times are added when the GPU has come past a call, in any order") {
  TimedGpu gpu(4);
  const int first = gpu.call(0);
  const int second = gpu.call(1);
  const int third = gpu.call(1);
  gpu.pool.harvest(10);
  CHECK(gpu.read().timed_calls == 0);
  CHECK(gpu.pool.unfinished() == 3);
  PretendedGpu::passed = {PretendedGpu::stop_of(second)};
  gpu.pool.harvest(10);
  CHECK(gpu.read(1).timed_calls == 1);
  CHECK(is_near(gpu.read(1).milliseconds, 0.25 * (2 * second + 2)));
  CHECK(gpu.read(0).timed_calls == 0);
  PretendedGpu::all_passed = true;
  gpu.pool.harvest(10);
  CHECK(gpu.read().timed_calls == 3);
  CHECK(is_near(gpu.read().milliseconds, 0.25 * (2 * (first + second + third) + 6)));
  CHECK(gpu.pool.unfinished() == 0);
}

TEST_CASE("a pool whose events are all in flight has none until some are finished") {
  TimedGpu gpu(2);
  const int first = gpu.call(0);
  gpu.call(0);
  CHECK(gpu.pool.start(nullptr) == -1);
  PretendedGpu::passed = {PretendedGpu::stop_of(first)};
  gpu.pool.harvest(1);
  gpu.pool.harvest(1);  // the other one of the two
  CHECK(gpu.pool.start(nullptr) == first);
  CHECK(gpu.pool.start(nullptr) == -1);
}

TEST_CASE("a harvest asks no more than it may, and the next goes on behind it") {
  TimedGpu gpu(6);
  for (int i = 0; i < 6; ++i) gpu.call(0);
  for (int i = 0; i < 3; ++i) {
    PretendedGpu::queries = 0;
    gpu.pool.harvest(2);
    CHECK(PretendedGpu::queries == 2);
  }
  PretendedGpu::all_passed = true;
  gpu.pool.harvest(4);
  CHECK(gpu.read().timed_calls == 4);
  PretendedGpu::queries = 0;
  gpu.pool.harvest(100);
  CHECK(PretendedGpu::queries == 2);
}

TEST_CASE("a pair that CUDA refuses to record is not lost") {
  TimedGpu gpu(1);
  PretendedGpu::refuses_records = true;
  for (int i = 0; i < 5; ++i) CHECK(gpu.pool.start(nullptr) == -1);
  PretendedGpu::refuses_records = false;
  for (int i = 0; i < 5; ++i) {
    const int pair = gpu.pool.start(nullptr);
    REQUIRE(pair == 0);
    PretendedGpu::refuses_records = true;
    CHECK_FALSE(gpu.pool.stop(pair, nullptr, 0));
    PretendedGpu::refuses_records = false;
  }
  gpu.pool.give_back(gpu.pool.start(nullptr));
  CHECK(gpu.pool.start(nullptr) == 0);
  CHECK(gpu.pool.unfinished() == 0);
}

TEST_CASE("a call whose events fail on the device is untimed") {
  TimedGpu gpu(1);
  gpu.call(0);
  PretendedGpu::all_passed = true;
  PretendedGpu::answer = cudaErrorLaunchFailure;
  gpu.pool.harvest(1);
  CHECK(gpu.read().timed_calls == 0);
  CHECK(gpu.read().untimed_calls == 1);
  CHECK(gpu.pool.start(nullptr) == 0);
}

TEST_CASE("times of calls from before a reset are dropped") {
  TimedGpu gpu(3);
  gpu.call(0);
  gpu.counters.reset();
  CHECK(gpu.pool.unfinished() == 0);
  gpu.call(0);
  CHECK(gpu.pool.unfinished() == 1);
  PretendedGpu::all_passed = true;
  gpu.pool.harvest(10);
  CHECK(gpu.read().timed_calls == 1);
}

TEST_CASE("a pool that could not make its events destroys those that it made") {
  const PretendedGpu gpu;
  PretendedGpu::most_created = 5;
  CallCounters counters(1);
  {
    EventPool pool(PretendedGpu::kFunctions, counters);
    CHECK(pool.create(4) == cudaErrorMemoryAllocation);
  }
  CHECK(PretendedGpu::destroyed.size() == 5);
}

TEST_CASE("threads share a pool without losing calls or allocating") {
  TimedGpu gpu(3);
  PretendedGpu::all_passed = true;
  constexpr int kCalls = 2000;
  std::atomic<int> timed{0};
  std::atomic<std::size_t> allocated{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      const std::size_t before = allocations();
      for (int run = 0; run < kCalls; ++run) {
        gpu.pool.harvest(4);
        const int pair = gpu.pool.start(nullptr);
        if (pair >= 0 && gpu.pool.stop(pair, nullptr, 1)) ++timed;
      }
      allocated += allocations() - before;
    });
  for (std::thread& thread : threads) thread.join();
  gpu.pool.harvest(10);
  CHECK(timed > 0);
  CHECK(gpu.read(1).timed_calls == static_cast<std::uint64_t>(timed));
  CHECK(gpu.pool.unfinished() == 0);
  CHECK(allocated == 0);
}

}  // namespace flashdma_bwd::testing
