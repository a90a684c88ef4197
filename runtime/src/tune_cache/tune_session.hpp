// The learning library: the options, the choices that were read from the cache's file or measured, and what becomes of
// new ones. One of these is at work in a process, see tuning.hpp.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dispatch_table.hpp"
#include "tune_cache/cache_file.hpp"
#include "tune_cache/choice_table.hpp"
#include "tune_cache/race.hpp"
#include "tune_cache/tune_options.hpp"

namespace flashdma_bwd {

/// The choices for one kind of GPU.
struct DeviceChoices {
  DeviceTraits device;
  ChoiceTable table;
  std::string ignored;         ///< what to say of the file's lines that are none of these choices; empty: nothing
  std::string error;           ///< why the choices must not be used: another hash was asked for
  bool hash_is_given = false;  ///< the caller said which choices these are, and they are
  DeviceChoices* next = nullptr;
};

class TuneSession {
 public:
  using Warn = std::function<void(const std::string& text)>;

  /// Reads the cache's file. `toolkit`: that the library was built with. `error`: what is wrong with the options
  /// already.
  TuneSession(TuneOptions options, const DispatchTable& table, std::string toolkit, Warn warn, std::string error = {});
  TuneSession(const TuneSession&) = delete;
  TuneSession& operator=(const TuneSession&) = delete;
  ~TuneSession();

  /// Why the options cannot be honoured, or empty.
  const std::string& error() const { return error_; }
  const TuneOptions& options() const { return options_; }
  /// Whether problems without a choice are measured.
  bool measures() const { return options_.mode == TuneMode::first_use && !frozen(); }
  /// Whether choices stay as they are.
  bool frozen() const { return frozen_.load(std::memory_order_relaxed); }
  /// Saves what is unsaved. A measurement that another thread has begun is dropped.
  void freeze();

  /// Those of a GPU's kind, which are made at the first question. Without a lock from then on.
  DeviceChoices& choices_for(const DeviceTraits& device);
  /// Warns of the file's lines that these choices leave out, the first time for any GPU.
  void tell_ignored(const DeviceChoices& choices);
  /// Warns that a capturing stream had a problem without a choice, the first time.
  void tell_capture(const Problem& problem);

  /// Measures the candidates and keeps the winner, in memory and in the file. If another thread is measuring nothing
  /// happens: waiting for it could be waiting for a stream that waits for this thread.
  Check measure(DeviceChoices& choices, const Problem& problem, std::span<const Candidate> candidates,
                ConfigurationTimer& timer);

  /// 16 hexadecimal digits: the choices and the kind of GPU, but nothing of where and when they were measured.
  static std::string hash_text(const DeviceChoices& choices);
  /// How many choices are in memory only, although there is a file for them.
  std::size_t unsaved() const { return unsaved_count_.load(std::memory_order_relaxed); }

 private:
  CacheEnvironment environment_of(const DeviceTraits& device) const;
  std::unique_ptr<DeviceChoices> read_choices(const DeviceTraits& device) const;
  void keep(DeviceChoices& choices, const Problem& problem, const Race& race, int feasible);
  void save();

  const TuneOptions options_;
  const DispatchTable& table_;
  const std::string toolkit_;
  const Warn warn_;
  std::string error_;
  std::vector<CacheLine> lines_;
  std::atomic<bool> frozen_{false};
  std::atomic<bool> told_ignored_{false};
  std::atomic<bool> told_capture_{false};

  std::mutex devices_mutex_;  // of adding to the list
  std::atomic<DeviceChoices*> devices_{nullptr};

  std::mutex measuring_mutex_;  // is never waited for
  std::mutex keeping_mutex_;    // of adding choices, writing the file and freezing
  std::vector<TunedChoice*> unsaved_;
  std::atomic<std::size_t> unsaved_count_{0};
  std::string told_unsaved_;
};

}  // namespace flashdma_bwd
