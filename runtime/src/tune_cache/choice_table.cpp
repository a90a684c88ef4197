// Open addressing with linear probing; a full table is replaced by one of twice its size.
#include "tune_cache/choice_table.hpp"

#include <string_view>

#include "number_hash.hpp"
#include "selection/problem_text.hpp"

namespace flashdma_bwd {
namespace {

constexpr std::size_t kFirstSlots = 64;

/// FNV-1a.
std::uint64_t text_hash(std::string_view text, std::uint64_t hash) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::uint64_t choice_hash(const TunedChoice& choice) {
  const std::uint64_t hash = text_hash(problem_text(choice.record.problem), 0xcbf29ce484222325u);
  return mixed(text_hash(choice.kernel->name, text_hash(" => ", hash)));
}

}  // namespace

std::uint64_t problem_hash(const Problem& p) noexcept {
  return number_hash({static_cast<std::uint64_t>(p.data_type) | static_cast<std::uint64_t>(p.bias) << 8 |
                          static_cast<std::uint64_t>(p.layout) << 16 | static_cast<std::uint64_t>(p.bias_copies) << 24 |
                          static_cast<std::uint64_t>(p.softcap) << 25 | static_cast<std::uint64_t>(p.causal) << 26 |
                          static_cast<std::uint64_t>(p.deterministic) << 27 |
                          static_cast<std::uint64_t>(p.masked) << 28 |
                          static_cast<std::uint64_t>(static_cast<unsigned>(p.head_dim)) << 32,
                      static_cast<std::uint64_t>(p.mask_density), static_cast<std::uint64_t>(p.batch),
                      static_cast<std::uint64_t>(p.heads), static_cast<std::uint64_t>(p.heads_kv),
                      static_cast<std::uint64_t>(p.seqlen_q), static_cast<std::uint64_t>(p.seqlen_k),
                      static_cast<std::uint64_t>(p.window)});
}

ChoiceTable::ChoiceTable() {
  slots_.push_back(std::make_unique<Slots>(kFirstSlots));
  published_.store(slots_.back().get(), std::memory_order_release);
}

TunedChoice* ChoiceTable::find_in(const Slots& slots, const Problem& problem) noexcept {
  const std::size_t mask = slots.choices.size() - 1;
  for (std::size_t i = problem_hash(problem) & mask;; i = (i + 1) & mask) {
    TunedChoice* choice = slots.choices[i].load(std::memory_order_acquire);
    if (choice == nullptr || choice->record.problem == problem) return choice;
  }
}

const TunedChoice* ChoiceTable::find(const Problem& problem) const noexcept {
  return find_in(*published_.load(std::memory_order_acquire), problem);
}

void ChoiceTable::put(Slots& slots, TunedChoice& choice) {
  const std::size_t mask = slots.choices.size() - 1;
  std::size_t i = problem_hash(choice.record.problem) & mask;
  while (slots.choices[i].load(std::memory_order_relaxed) != nullptr) i = (i + 1) & mask;
  slots.choices[i].store(&choice, std::memory_order_release);
}

void ChoiceTable::grow() {
  auto larger = std::make_unique<Slots>(2 * slots_.back()->choices.size());
  for (TunedChoice& choice : choices_) put(*larger, choice);
  slots_.push_back(std::move(larger));
  published_.store(slots_.back().get(), std::memory_order_release);
}

TunedChoice& ChoiceTable::add(const CacheRecord& record, const KernelEntry& kernel, CodeForm form, int tier) {
  if (TunedChoice* found = find_in(*slots_.back(), record.problem)) return *found;
  if (2 * (choices_.size() + 1) > slots_.back()->choices.size()) grow();
  TunedChoice& choice = choices_.emplace_back();
  choice.record = record;
  choice.kernel = &kernel;
  choice.form = form;
  choice.tier = tier;
  put(*slots_.back(), choice);
  size_.store(choices_.size(), std::memory_order_relaxed);
  hash_.store(hash_.load(std::memory_order_relaxed) + choice_hash(choice), std::memory_order_relaxed);
  return choice;
}

}  // namespace flashdma_bwd
