// The command line of flashdma-tune.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "tune/device.hpp"
#include "tune/scratch_build.hpp"
#include "tune/tune_loop.hpp"

namespace flashdma_bwd::tune {

/// Exit codes: those of flashdma-gen.
enum ExitCode : int {
  kFine = 0,
  kFindings = 1,  ///< a file is not in order
  kUsage = 2,
  kFailure = 3,  ///< no GPU, a disk that refused, a build that failed, or a bug
};

enum class Format : std::uint8_t { text, json };

struct Options {
  std::vector<std::string> grids, problem_files, held_back;
  std::string store = "measurements.jsonl";
  std::string cache;  ///< a run-time cache of the library
  std::string configs = "configs";
  std::string source = ".";
  std::string build = "build/tune";
  std::string measure;  ///< the measuring program; empty: the one beside this program
  std::string commit = "unknown";
  LoopOptions loop;
  double bound_percent = 3;
  int environment = 0;  ///< of the cache, as `show` numbers them; 0: its only one
  int jobs = 0;
  bool dry_run = false;
  bool keep_table = false;
  bool write_table = false;  ///< of a report
  Format format = Format::text;
};

/// What surrounds a command: streams, and what tests put others in place of.
struct Surroundings {
  std::ostream& out;
  std::ostream& err;
  bool terminal = false;  ///< whether err is one
  bool colour = false;
  std::string program_folder;  ///< where the measuring program lies
  std::function<std::unique_ptr<Device>(const std::string& program)> device;
  RunCommand run;
  std::function<double()> seconds;
  std::function<std::string()> today;  ///< YYYY-MM-DD
};

/// Parses, runs a command, returns its exit code. `arguments` are those after the program's name.
int run_command_line(std::vector<std::string> arguments, const Surroundings& surroundings);

int run_tune(const Options& options, const Surroundings& surroundings);
int run_show(const Options& options, const Surroundings& surroundings);
int run_import(const Options& options, const Surroundings& surroundings);
int run_report(const Options& options, const Surroundings& surroundings);

}  // namespace flashdma_bwd::tune
