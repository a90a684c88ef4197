// The choices of the cache for one kind of GPU: a hash table that is read without a lock and without allocation, in
// constant time, while one thread at a time adds to it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "dispatch_table.hpp"
#include "selection/architecture_chain.hpp"
#include "tune_cache/cache_record.hpp"

namespace flashdma_bwd {

/// A record whose kernel this build has and this GPU runs. Does not change once it is in a table, but for its line.
struct TunedChoice {
  CacheRecord record;
  const KernelEntry* kernel = nullptr;
  CodeForm form = CodeForm::native;
  int tier = 0;
  std::atomic<int> line{0};  ///< of the cache's file; 0: in memory only
};

class ChoiceTable {
 public:
  ChoiceTable();
  ChoiceTable(const ChoiceTable&) = delete;
  ChoiceTable& operator=(const ChoiceTable&) = delete;

  /// nullptr: there is none.
  const TunedChoice* find(const Problem& problem) const noexcept;
  std::size_t size() const { return size_.load(std::memory_order_relaxed); }
  /// Of all problems and their kernels, in whatever order they came; measurements and dates do not go into it.
  std::uint64_t hash() const { return hash_.load(std::memory_order_relaxed); }

  /// Adds a choice unless there is one for its problem, and returns that of the table. Callers exclude each other.
  TunedChoice& add(const CacheRecord& record, const KernelEntry& kernel, CodeForm form, int tier);

 private:
  struct Slots {
    explicit Slots(std::size_t count) : choices(count) {}
    std::vector<std::atomic<TunedChoice*>> choices;  ///< a power of two, at most half of them taken
  };
  static TunedChoice* find_in(const Slots& slots, const Problem& problem) noexcept;
  static void put(Slots& slots, TunedChoice& choice);
  void grow();

  std::deque<TunedChoice> choices_;            // addresses of elements stay
  std::vector<std::unique_ptr<Slots>> slots_;  // all that were ever published: readers may still be in the older ones
  std::atomic<Slots*> published_;
  std::atomic<std::size_t> size_{0};
  std::atomic<std::uint64_t> hash_{0};
};

/// Of all fields; never the same for two fields exchanged.
std::uint64_t problem_hash(const Problem& problem) noexcept;

}  // namespace flashdma_bwd
