// When CTAs are done that start in order, each as soon as a multiprocessor is free. Pure, and without memory of its
// own.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace flashdma_bwd {

/// Time is a whole number. What a CTA takes of it, as it is added in the order of the CTAs, is 1 to kLongest.
class ListSchedule {
 public:
  static constexpr int kLongest = 1023;

  /// `running`: CTAs at once.
  explicit ListSchedule(int running) : free_now_(running) {}

  /// The next CTA.
  void add(int time) {
    if (free_now_ == 0) advance();
    --free_now_;
    const unsigned then = static_cast<unsigned>(now_ + time) % kTimes;
    ++free_[then];
    some_[then / 64] |= std::uint64_t{1} << then % 64;
    if (now_ + time > end_) end_ = now_ + time;
  }

  /// When the last is done.
  std::int64_t end() const { return end_; }

 private:
  static constexpr unsigned kTimes = kLongest + 1;
  static constexpr unsigned kWords = kTimes / 64;

  /// To the next time at which multiprocessors become free.
  void advance() {
    const unsigned now = static_cast<unsigned>(now_ % kTimes);
    unsigned word = now / 64;
    std::uint64_t later = some_[word] >> now % 64 << now % 64;
    while (later == 0) {
      word = (word + 1) % kWords;
      later = some_[word];
    }
    const unsigned next = word * 64 + static_cast<unsigned>(std::countr_zero(later));
    some_[word] &= ~(std::uint64_t{1} << next % 64);
    now_ += (next - now) % kTimes;
    free_now_ = free_[next];
    free_[next] = 0;
  }

  std::array<int, kTimes> free_{};            ///< multiprocessors that become free later, by the time modulo kTimes
  std::array<std::uint64_t, kWords> some_{};  ///< bits: whether there are any
  int free_now_;
  std::int64_t now_ = 0;  ///< when the last CTA started
  std::int64_t end_ = 0;
};

}  // namespace flashdma_bwd
