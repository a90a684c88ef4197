// From a problem and a GPU to a compiled kernel: overrides, selection, look-up. Pure; the cache of measured choices is
// asked behind it.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <string>
#include <string_view>

#include "dispatch_table.hpp"
#include "environment.hpp"
#include "failure.hpp"
#include "selection/select_kernel.hpp"

namespace flashdma_bwd {

/// Who chose the kernel.
enum class Decision : std::uint8_t {
  table,
  argument,                  ///< flashdma_bwd_arguments.kernel
  schedule,                  ///< flashdma_bwd_arguments.schedule, which is one kernel's
  environment_kernel,        ///< FLASHDMA_BWD_KERNEL
  environment_architecture,  ///< the rows of FLASHDMA_BWD_ARCH
  cache,                     ///< of measured choices, see tune_cache/cache_choice.hpp
};

/// What the cache of measured choices had for a problem.
enum class CacheAnswer : std::uint8_t {
  not_asked,
  unknown,   ///< no choice
  withheld,  ///< one that a deterministic problem may not have
  chosen,
};

struct TunedChoice;  // tune_cache/choice_table.hpp

struct Request {
  Problem problem;
  DeviceTraits device;
  std::string_view kernel;  ///< of the arguments, or of their schedule; empty: none
  bool scheduled = false;   ///< `kernel` is the schedule's
  bool table_only = false;  ///< ignore the environment
};

struct Resolution {
  Decision decision = Decision::table;
  KernelConfig config;
  const KernelEntry* kernel = nullptr;  ///< nullptr if it is not compiled in
  const Row* row = nullptr;             ///< nullptr if a kernel was named, or the cache decided
  int tier = 0;
  CodeForm form = CodeForm::native;
  CacheAnswer cache = CacheAnswer::not_asked;
  const TunedChoice* tuned = nullptr;  ///< of the cache, if it decided
  int table_tier = 0;                  ///< if it did: the tier of the table's choice
  const char* cache_file = "";         ///< where that stands; empty: in memory
};

/// The file of the row or of the cache that decided, or the name of what named the kernel; "first use" of a choice that
/// is in memory only. Ends in a NUL and is for the library's lifetime.
const char* deciding_place(const Resolution& resolution);
/// The line of that file; 0: it is none.
int deciding_line(const Resolution& resolution);
/// "<file>:<line>", or what has no lines.
std::string decider_text(const Resolution& resolution);

/// Fills `resolution` as far as it gets: with NOT_COMPILED, everything but the kernel is there.
Check resolve(const DispatchTable& table, const Environment& environment, const Request& request,
              Resolution& resolution);

/// Why a compiled kernel does not serve a problem on a GPU, whose code it can run; empty: it does.
std::string why_not_served(const KernelConfig& config, const Problem& problem, const DeviceTraits& device);

/// Whether a row is of FLASHDMA_BWD_TABLE.
bool is_environment_row(const Environment& environment, const Row& row);

/// What `resolve` gives as text: who decided, every candidate row, and the outcome.
std::string explain_resolution(const DispatchTable& table, const Environment& environment, const Request& request);

}  // namespace flashdma_bwd
