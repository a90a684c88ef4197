// See tune_session.hpp.
#include "tune_cache/tune_session.hpp"

#include <cmath>
#include <ctime>
#include <filesystem>
#include <utility>

#include "absolute_path.hpp"
#include "selection/problem_text.hpp"
#include "tune_cache/usable_record.hpp"

namespace flashdma_bwd {
namespace {

std::string now_in_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[sizeof "2026-01-31T12:00:00Z"];
  if (gmtime_r(&now, &parts) == nullptr || std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
    return "1970-01-01T00:00:00Z";
  return text;
}

TuneOptions with_absolute_path(TuneOptions options) {
  options.cache = absolute_path(options.cache);
  return options;
}

/// To the nanosecond, so that the text is short.
double rounded(double ms) {
  return std::round(ms * 1e6) / 1e6;
}

CacheRecord record_of(const Race& race, const Problem& problem, int feasible, const CacheEnvironment& environment) {
  CacheRecord record;
  record.environment = environment;
  record.problem = problem;
  record.kernel = race.measured.front().candidate.kernel->name;
  record.ms = rounded(race.measured.front().ms);
  record.spread_ms = rounded(race.measured.front().spread_ms);
  if (race.measured.size() > 1) {
    record.runner_up = race.measured[1].candidate.kernel->name;
    record.runner_up_ms = rounded(race.measured[1].ms);
  }
  record.measured = static_cast<int>(race.measured.size());
  record.feasible = feasible;
  record.date = now_in_utc();
  return record;
}

}  // namespace

TuneSession::TuneSession(TuneOptions options, const DispatchTable& table, std::string toolkit, Warn warn,
                         std::string error)
    : options_(with_absolute_path(std::move(options))),
      table_(table),
      toolkit_(std::move(toolkit)),
      warn_(std::move(warn)),
      error_(std::move(error)),
      frozen_(options_.mode == TuneMode::read_only || !options_.hash.empty()) {
  if (!error_.empty() || options_.cache.empty()) return;
  Parsed<std::vector<CacheLine>> lines = read_cache(options_.cache);
  std::error_code ignored;
  if (!lines)
    error_ = "the cache of measured choices: " + lines.error;
  else if (frozen() && !std::filesystem::exists(options_.cache, ignored))
    error_ = "the cache of measured choices: " + options_.cache + " is not there, and nothing is measured";
  else
    lines_ = std::move(*lines.value);
}

TuneSession::~TuneSession() {
  for (DeviceChoices* choices = devices_.load(std::memory_order_relaxed); choices != nullptr;)
    delete std::exchange(choices, choices->next);
}

CacheEnvironment TuneSession::environment_of(const DeviceTraits& device) const {
  return {device.compute_capability, device.sm_count, std::string(table_.hash), toolkit_};
}

DeviceChoices& TuneSession::choices_for(const DeviceTraits& device) {
  const auto find = [&] {
    DeviceChoices* choices = devices_.load(std::memory_order_acquire);
    while (choices != nullptr && choices->device != device) choices = choices->next;
    return choices;
  };
  if (DeviceChoices* found = find()) return *found;
  const std::lock_guard lock(devices_mutex_);
  if (DeviceChoices* found = find()) return *found;
  std::unique_ptr<DeviceChoices> fresh = read_choices(device);
  fresh->next = devices_.load(std::memory_order_relaxed);
  devices_.store(fresh.get(), std::memory_order_release);
  return *fresh.release();
}

std::unique_ptr<DeviceChoices> TuneSession::read_choices(const DeviceTraits& device) const {
  auto choices = std::make_unique<DeviceChoices>();
  choices->device = device;
  std::vector<Usable> usable;
  for (const CacheLine& line : lines_) {
    usable.push_back(usable_record(line, table_, environment_of(device), device));
    const Usable& last = usable.back();
    if (last.usability != Usability::usable) continue;
    TunedChoice& choice = choices->table.add(line.record, *last.kernel, last.form, last.tier);
    if (choice.line.load(std::memory_order_relaxed) == 0) choice.line.store(line.number, std::memory_order_relaxed);
  }
  choices->ignored = ignored_lines(options_.cache, lines_, usable);
  if (options_.hash.empty()) return choices;
  const std::string hash = hash_text(*choices);
  choices->hash_is_given = hash == options_.hash;
  if (!choices->hash_is_given)
    choices->error = options_.cache + " has hash " + hash + " for this GPU and library, and " + options_.hash +
                     " was asked for: give all processes the same file, or ask for its hash";
  return choices;
}

void TuneSession::tell_ignored(const DeviceChoices& choices) {
  if (choices.ignored.empty() || told_ignored_.load(std::memory_order_relaxed)) return;
  if (!told_ignored_.exchange(true)) warn_(choices.ignored);
}

void TuneSession::tell_capture(const Problem& problem) {
  if (told_capture_.load(std::memory_order_relaxed) || told_capture_.exchange(true)) return;
  warn_("nothing is measured while a stream captures: the table chooses for `" + problem_text(problem) +
        "`, and for whatever else has no choice yet. Run such problems once before they are captured");
}

Check TuneSession::measure(DeviceChoices& choices, const Problem& problem, std::span<const Candidate> candidates,
                           ConfigurationTimer& timer) {
  const std::unique_lock lock(measuring_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !measures() || choices.table.find(problem) != nullptr) return {};
  Race race;
  if (Check failure = run_race(candidates, options_.budget_ms, timer, race)) return failure;
  for (const std::string& failure : race.failures) warn_("a kernel that cannot be measured is passed over: " + failure);
  keep(choices, problem, race, static_cast<int>(candidates.size()));
  return {};
}

void TuneSession::keep(DeviceChoices& choices, const Problem& problem, const Race& race, int feasible) {
  const std::lock_guard lock(keeping_mutex_);
  if (frozen()) return;
  const CacheRecord record = record_of(race, problem, feasible, environment_of(choices.device));
  const Candidate& winner = race.measured.front().candidate;
  TunedChoice& choice = choices.table.add(record, *winner.kernel, winner.form, winner.tier);
  if (options_.cache.empty()) return;
  unsaved_.push_back(&choice);
  save();
}

/// The keeping mutex is held.
void TuneSession::save() {
  if (unsaved_.empty()) return;
  unsaved_count_.store(unsaved_.size(), std::memory_order_relaxed);
  std::vector<CacheRecord> records;
  for (const TunedChoice* choice : unsaved_) records.push_back(choice->record);
  const Parsed<std::vector<int>> saved = append_to_cache(options_.cache, records);
  if (!saved) {
    if (std::exchange(told_unsaved_, saved.error) != saved.error)
      warn_("the cache of measured choices: " + saved.error +
            ". The choices stay in memory, and are written with the next one if that can be");
    return;
  }
  for (std::size_t i = 0; i < unsaved_.size(); ++i)
    unsaved_[i]->line.store(saved.value->at(i), std::memory_order_relaxed);
  unsaved_.clear();
  unsaved_count_.store(0, std::memory_order_relaxed);
  told_unsaved_.clear();
}

void TuneSession::freeze() {
  const std::lock_guard lock(keeping_mutex_);
  save();
  frozen_.store(true, std::memory_order_relaxed);
}

std::string TuneSession::hash_text(const DeviceChoices& choices) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  // The build's tables and toolkit need not go in: a library of others does not take these records.
  Problem kind;  // to be mixed as the fields of a problem are
  kind.batch = choices.device.compute_capability;
  kind.heads = choices.device.sm_count;
  std::uint64_t hash = choices.table.hash() + problem_hash(kind);
  std::string text;
  for (int digit = 0; digit < 16; ++digit, hash <<= 4) text += kDigits[hash >> 60];
  return text;
}

}  // namespace flashdma_bwd
