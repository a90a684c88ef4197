// Messages on stderr.
#include "log.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <initializer_list>

#include "selection/explain.hpp"
#include "selection/kernel_family.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd {
namespace {

void print(const char* level, const std::string& text) {
  std::fprintf(stderr, "flashdma_bwd: %s: %s\n", level, text.c_str());
}

/// A set of numbers that only grows. Once it is full, whatever is new stays new.
class SeenSet {
 public:
  /// Whether `value`, not 0, is seen for the first time.
  bool is_new(std::uint64_t value) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      std::atomic<std::uint64_t>& slot = slots_[(value + i) % slots_.size()];
      std::uint64_t found = slot.load(std::memory_order_relaxed);
      if (found == value) return false;
      if (found == 0 && slot.compare_exchange_strong(found, value, std::memory_order_relaxed)) return true;
      if (found == value) return false;
    }
    return true;
  }

 private:
  std::array<std::atomic<std::uint64_t>, 1024> slots_{};
};

/// FNV-1a over the numbers of a problem; never 0.
std::uint64_t hash_of(const Problem& p, const DeviceTraits& device) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::int64_t number :
       {std::int64_t{static_cast<int>(p.data_type)}, std::int64_t{p.head_dim}, std::int64_t{static_cast<int>(p.bias)},
        std::int64_t{p.bias_copies}, std::int64_t{p.softcap}, std::int64_t{p.causal}, std::int64_t{p.deterministic},
        std::int64_t{p.masked}, std::int64_t{static_cast<int>(p.layout)}, std::int64_t{p.mask_density}, p.batch,
        p.heads, p.heads_kv, p.seqlen_q, p.seqlen_k, p.window, std::int64_t{device.compute_capability}})
    for (int shift = 0; shift < 64; shift += 8)
      hash = (hash ^ (static_cast<std::uint64_t>(number) >> shift & 0xffu)) * 0x100000001b3u;
  return hash | 1u;
}

void warn_of_lower_tier(const Request& request, const Resolution& resolution) {
  static SeenSet warned;
  const auto key = static_cast<std::uint64_t>(request.device.compute_capability * 8 + resolution.tier);
  if (!warned.is_new(key)) return;
  std::string text = device_text(request.device) + ": ";
  if (resolution.form == CodeForm::ptx)
    text += "no table and no machine code for it in this build, the PTX of " +
            std::string(word(resolution.config.architecture)) + " runs (tier " + std::to_string(resolution.tier) +
            "), which the driver compiles at the first use";
  else
    text += "its own kernels are not in this build, those of " + std::string(word(resolution.config.architecture)) +
            " run (tier " + std::to_string(resolution.tier) + ")";
  print("warning", text + ". Their tiles were not chosen for this GPU; see FLASHDMA_BWD_ARCHITECTURES");
}

/// That a GPU which has a family of its own runs the general one, whose time is another; the row says why. Once for
/// each row.
void tell_of_general_family(const Resolution& resolution) {
  const KernelConfig& config = resolution.config;
  if (resolution.row == nullptr || config.tile.family != KernelFamily::ampere) return;
  if (!runs_on(KernelFamily::hopper, config.architecture)) return;
  static SeenSet told;
  const Row& row = *resolution.row;
  if (told.is_new(reinterpret_cast<std::uintptr_t>(&row)))
    print("info", decider_text(resolution) + " runs the " + std::string(word(config.tile.family)) +
                      " family, not the " + std::string(word(KernelFamily::hopper)) +
                      " family: " + std::string(row.provenance_text));
}

}  // namespace

void log_warning(const Environment& environment, const std::string& text) {
  if (environment.log != LogLevel::off) print("warning", text);
}

void log_resolution(const Environment& environment, const Request& request, const Resolution& resolution) {
  if (environment.log == LogLevel::off) return;
  if (!environment.log_error.empty()) {
    static SeenSet warned;
    if (warned.is_new(1)) print("warning", environment.log_error);
  }
  // A cache may prefer a lower tier to the GPU's own; without its own there is nothing to prefer.
  if ((resolution.decision == Decision::table && resolution.tier > 0) ||
      (resolution.decision == Decision::cache && resolution.table_tier > 0))
    warn_of_lower_tier(request, resolution);
  if (environment.log != LogLevel::info) return;
  static SeenSet problems;
  if (!problems.is_new(hash_of(request.problem, request.device))) return;
  print("info", std::string(resolution.kernel->name) + " for " + problem_description(request.problem) + "; chosen by " +
                    decider_text(resolution));
  tell_of_general_family(resolution);
}

}  // namespace flashdma_bwd
