// The environment's overrides, log level and monitoring.
//
//     FLASHDMA_BWD_KERNEL=<canonical name>    run this kernel
//     FLASHDMA_BWD_TABLE=<file>               rows that are tried before the built-in ones, see selection/row_text.hpp
//     FLASHDMA_BWD_ARCH=sm80|sm86|sm89|sm90   choose among this architecture's rows, whatever the GPU
//     FLASHDMA_BWD_PIECE_STEPS=<steps>        split items of more query tiles into pieces of no more, see
//                                             kernels/common/pieces.hpp: for tests, whose problems are too small to
//                                             split
//     FLASHDMA_BWD_TUNE_MODE, _TUNE_CACHE, _TUNE_BUDGET_MS, _TUNE_HASH: see tune_cache/tune_options.hpp
//     FLASHDMA_BWD_LOG=off|warning|info       to stderr; warning if it is not set
//     FLASHDMA_BWD_CAPTURE=<file>             append the problems of backwards, see monitoring/problem_capture.hpp
//     FLASHDMA_BWD_NVTX=0|1                   an NVTX range for each backward; 0 if it is not set
//
// An empty value is as good as none.
#pragma once

#include <cstdint>
#include <flashdma_bwd/kernel_table.hpp>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "selection/row_text.hpp"
#include "tune_cache/tune_options.hpp"

namespace flashdma_bwd {

enum class LogLevel : std::uint8_t { off, warning, info };

struct Environment {
  std::string kernel;  ///< empty: not given
  std::optional<Architecture> architecture;
  TableFile table;
  std::vector<Row> rows;  ///< with a table: its rows, then the built-in ones
  bool has_table = false;
  std::string error;    ///< of the first override of selection that cannot be read
  int piece_steps = 0;  ///< 0: not given
  std::string piece_steps_error;
  TuneOptions tune;
  std::string tune_error;
  LogLevel log = LogLevel::warning;
  std::string log_error;
  std::string capture;  ///< empty: not given
  bool nvtx = false;
  std::string nvtx_error;

  bool overrides_selection() const { return !kernel.empty() || architecture || has_table || !error.empty(); }
};

/// Reads the variables through `get`, which returns nullptr for one that is not set.
void read_environment(Environment& environment, const std::function<const char*(const char*)>& get,
                      std::span<const Row> built_in);

/// The process's environment, read at the first use in any thread and never again.
const Environment& environment();

}  // namespace flashdma_bwd
