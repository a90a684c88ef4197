// Runs independent tasks on several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace flashdma_bwd {

/// Calls `make_worker()` once on each thread, then the worker it returned with task indices 0 ... tasks - 1, each
/// exactly once in all. `threads` 0 or less: one for each hardware thread. A worker holds a thread's scratch memory.
/// What a task throws is thrown again to the caller once all threads have ended. Where the system gives fewer threads,
/// fewer do the work.
template <class MakeWorker>
void parallel_tasks(std::int64_t tasks, int threads, const MakeWorker& make_worker) {
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const std::int64_t used = std::min<std::int64_t>(threads, tasks);
  std::atomic<std::int64_t> next{0};
  std::mutex failure_lock;
  std::exception_ptr failure;
  const auto run = [&] {
    try {
      auto worker = make_worker();
      for (std::int64_t task = next.fetch_add(1); task < tasks; task = next.fetch_add(1)) worker(task);
    } catch (...) {
      next = tasks;
      const std::lock_guard lock(failure_lock);
      failure = std::current_exception();
    }
  };
  std::vector<std::thread> helpers;
  helpers.reserve(static_cast<std::size_t>(std::max<std::int64_t>(used, 1) - 1));
  for (std::int64_t i = 1; i < used; ++i) {
    try {
      helpers.emplace_back(run);
    } catch (const std::system_error&) {
      break;
    }
  }
  run();
  for (std::thread& helper : helpers) helper.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace flashdma_bwd
