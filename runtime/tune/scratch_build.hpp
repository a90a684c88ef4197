// A build of the library with kernels that no table asks for, in a folder of its own, to be timed and thrown away.
#pragma once

#include <filesystem>
#include <flashdma_bwd/kernel_table.hpp>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "config/model.hpp"

namespace flashdma_bwd::tune {

struct ScratchOptions {
  std::filesystem::path source;  ///< this repository
  std::filesystem::path folder;  ///< generated/, build/, build.log and tune.lock go below it
  Architecture architecture = Architecture::sm80;
  int jobs = 0;  ///< 0: as many as cores
};

/// The folder of a build, locked against every other process that would build into it. Whoever builds holds this for as
/// long as the built program may be started.
class BuildLock {
 public:
  BuildLock() = default;
  ~BuildLock();
  BuildLock(const BuildLock&) = delete;
  BuildLock& operator=(const BuildLock&) = delete;

  /// Makes the folder and locks it until this ends. Returns what is in the way, or an empty text.
  std::string take(const std::filesystem::path& folder);

 private:
  int file_ = -1;
};

/// Runs a command with its output appended to a file; its exit code, or -1 where it could not be run.
using RunCommand = std::function<int(const std::vector<std::string>& command, const std::filesystem::path& log)>;
int run_command(const std::vector<std::string>& command, const std::filesystem::path& log);

struct ScratchResult {
  std::string error;                 ///< what ended it, or empty
  std::filesystem::path program;     ///< flashdma-tune-measure
  std::vector<std::string> refused;  ///< kernels that did not build, most for want of registers: see build.log
};

/// Emits a tree with `kernels`, configures and builds it; the caller has the folder's lock. Kernels that the ptxas gate
/// refuses are left out and named.
ScratchResult build_candidates(const generator::Configuration& configuration, std::vector<KernelConfig> kernels,
                               const ScratchOptions& options, std::ostream& err, const RunCommand& run = run_command);

}  // namespace flashdma_bwd::tune
