// Pairs of CUDA events around calls: a fixed number of them, made once, that calls take and whose times are added to
// the counters when the GPU has come past them. Nothing here waits for the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "monitoring/call_counters.hpp"

namespace flashdma_bwd {

/// What is asked of CUDA; tests answer themselves.
struct EventFunctions {
  cudaError_t (*create)(cudaEvent_t* event);
  cudaError_t (*destroy)(cudaEvent_t event);
  cudaError_t (*record)(cudaEvent_t event, cudaStream_t stream);
  cudaError_t (*query)(cudaEvent_t event);
  cudaError_t (*elapsed)(float* milliseconds, cudaEvent_t start, cudaEvent_t stop);
};

class EventPool {
 public:
  /// `counters` outlives the pool.
  EventPool(const EventFunctions& functions, CallCounters& counters) : functions_(functions), counters_(counters) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  /// Makes the pool's pairs, on the current device.
  cudaError_t create(int pairs);

  /// Takes a pair and records its first event. Its number, or -1 if there is none, or CUDA refuses.
  int start(cudaStream_t stream);
  /// Records the second event of a call that start() gave a pair. False if CUDA refuses: the call will have no time.
  bool stop(int pair, cudaStream_t stream, std::size_t kernel);
  /// Takes back a pair whose call has come to nothing.
  void give_back(int pair);

  /// Asks about `most` pairs in flight, each time about others, and adds the times of those that are finished.
  void harvest(int most);
  /// Pairs in flight since the counters were last reset.
  int unfinished() const;

 private:
  struct Pair {
    cudaEvent_t start = nullptr;
    cudaEvent_t stop = nullptr;
    std::size_t kernel = 0;
    std::uint32_t generation = 0;  ///< of the counters when the call began
  };
  void add(const Pair& pair, cudaError_t outcome);

  const EventFunctions functions_;
  CallCounters& counters_;
  std::vector<Pair> pairs_;
  mutable std::mutex mutex_;  ///< guards what follows; a pair belongs to its call until that has stopped
  std::vector<int> idle_;
  std::vector<int> running_;
  std::size_t next_ = 0;  ///< place in running_ to ask about
};

}  // namespace flashdma_bwd
