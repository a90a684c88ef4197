// Taking, recording and harvesting of event pairs.
#include "monitoring/event_pool.hpp"

namespace flashdma_bwd {

EventPool::~EventPool() {
  for (const Pair& pair : pairs_)
    for (const cudaEvent_t event : {pair.start, pair.stop})
      if (event != nullptr) functions_.destroy(event);
}

cudaError_t EventPool::create(int pairs) {
  pairs_.resize(static_cast<std::size_t>(pairs));
  idle_.reserve(pairs_.size());
  running_.reserve(pairs_.size());  // calls never allocate
  for (Pair& pair : pairs_)
    for (cudaEvent_t* event : {&pair.start, &pair.stop})
      if (const cudaError_t error = functions_.create(event); error != cudaSuccess) return error;
  for (int i = pairs - 1; i >= 0; --i) idle_.push_back(i);
  return cudaSuccess;
}

int EventPool::start(cudaStream_t stream) {
  int taken = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.empty()) return -1;
    taken = idle_.back();
    idle_.pop_back();
  }
  Pair& pair = pairs_[static_cast<std::size_t>(taken)];
  pair.generation = counters_.generation();
  if (functions_.record(pair.start, stream) == cudaSuccess) return taken;
  give_back(taken);
  return -1;
}

bool EventPool::stop(int pair, cudaStream_t stream, std::size_t kernel) {
  Pair& stopped = pairs_[static_cast<std::size_t>(pair)];
  stopped.kernel = kernel;
  if (functions_.record(stopped.stop, stream) != cudaSuccess) {
    give_back(pair);
    return false;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  running_.push_back(pair);
  return true;
}

void EventPool::give_back(int pair) {
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(pair);
}

void EventPool::harvest(int most) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (std::size_t left = running_.size(); left > 0 && most > 0; --left, --most) {
    if (next_ >= running_.size()) next_ = 0;
    const int number = running_[next_];
    const Pair& pair = pairs_[static_cast<std::size_t>(number)];
    const cudaError_t outcome = functions_.query(pair.stop);
    if (outcome == cudaErrorNotReady) {
      ++next_;
      continue;
    }
    add(pair, outcome);
    running_[next_] = running_.back();
    running_.pop_back();
    idle_.push_back(number);
  }
}

void EventPool::add(const Pair& pair, cudaError_t outcome) {
  if (pair.generation != counters_.generation()) return;
  float milliseconds = 0;
  if (outcome == cudaSuccess) outcome = functions_.elapsed(&milliseconds, pair.start, pair.stop);
  if (outcome == cudaSuccess)
    counters_.add_time(pair.kernel, static_cast<double>(milliseconds));
  else
    counters_.add_untimed_call();
}

int EventPool::unfinished() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  int count = 0;
  for (const int number : running_)
    if (pairs_[static_cast<std::size_t>(number)].generation == counters_.generation()) ++count;
  return count;
}

}  // namespace flashdma_bwd
