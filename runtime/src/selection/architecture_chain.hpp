// Which architectures' kernels a GPU runs, best first: data, and questions about it.
#pragma once

#include <cstdint>
#include <flashdma_bwd/kernel_table.hpp>
#include <limits>
#include <optional>

namespace flashdma_bwd {

using ArchitectureSet = EnumSet<Architecture>;

/// In what form a GPU executes a set of kernels.
enum class CodeForm : std::uint8_t {
  native,  ///< machine code of the GPU's generation
  ptx,     ///< compiled by the driver when the kernel is first loaded
};

/// One step of the fallback: GPUs of these compute capabilities (10 * major + minor) run this architecture's rows.
struct FallbackStep {
  int lowest = 0;
  int highest = 0;
  Architecture architecture = Architecture::sm80;
  CodeForm form = CodeForm::native;
  int tier = 0;  ///< 0: the GPU's own table
};

inline constexpr int kAnyNewer = std::numeric_limits<int>::max();
inline constexpr int kOldestComputeCapability = 80;

/// In order of preference for each GPU. Machine code runs on later minor versions of the same generation. That of sm90
/// is specific to 9.0. The others carry PTX too; behind sm80's, whose tiles are the largest, those of sm86 and sm89
/// serve newer GPUs with little shared memory.
inline constexpr FallbackStep kFallbackChain[] = {
    // clang-format off
    {80, 80,        Architecture::sm80, CodeForm::native, 0},
    {81, 85,        Architecture::sm80, CodeForm::native, 1},
    {86, 86,        Architecture::sm86, CodeForm::native, 0},
    {86, 86,        Architecture::sm80, CodeForm::native, 1},
    {87, 88,        Architecture::sm86, CodeForm::native, 1},
    {87, 88,        Architecture::sm80, CodeForm::native, 2},
    {89, 89,        Architecture::sm89, CodeForm::native, 0},
    {89, 89,        Architecture::sm86, CodeForm::native, 1},
    {89, 89,        Architecture::sm80, CodeForm::native, 2},
    {90, 90,        Architecture::sm90, CodeForm::native, 0},
    {90, kAnyNewer, Architecture::sm80, CodeForm::ptx,    1},
    {90, kAnyNewer, Architecture::sm86, CodeForm::ptx,    2},
    {90, kAnyNewer, Architecture::sm89, CodeForm::ptx,    3},
    // clang-format on
};

constexpr bool applies(const FallbackStep& step, int compute_capability) {
  return step.lowest <= compute_capability && compute_capability <= step.highest;
}

/// The form in which a GPU runs an architecture's kernels, or nothing if it cannot. `also_native` is a compute
/// capability for which the build compiled every set, or 0.
constexpr std::optional<CodeForm> code_form(Architecture architecture, int compute_capability, int also_native = 0) {
  if (also_native != 0 && also_native == compute_capability) return CodeForm::native;
  for (const FallbackStep& step : kFallbackChain)
    if (step.architecture == architecture && applies(step, compute_capability)) return step.form;
  return std::nullopt;
}

/// Of the tables of an architecture whose kernels a GPU runs; 1 where only FLASHDMA_BWD_ALSO_NATIVE_FOR makes it run
/// them.
constexpr int tier_of(Architecture architecture, int compute_capability) {
  for (const FallbackStep& step : kFallbackChain)
    if (step.architecture == architecture && applies(step, compute_capability)) return step.tier;
  return 1;
}

}  // namespace flashdma_bwd
