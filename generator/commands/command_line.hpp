// The command line of flashdma-gen.
#pragma once

#include <cstdint>
#include <flashdma_bwd/kernel_table.hpp>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace flashdma_bwd::generator {

/// Exit codes: an interface.
enum ExitCode : int {
  kFine = 0,
  kFindings = 1,  ///< the tables, or the generated tree, are not in order
  kUsage = 2,
  kInternal = 3,  ///< the disk refused, or a bug
};

enum class Format : std::uint8_t { text, json, table };
/// A mask's layout, or what the library makes of a mask with a row for each query.
enum class AskedLayout : std::uint8_t { automatic, natural, compacted, reordered };
enum class ListSubject : std::uint8_t { kernels, rows, profiles, architectures };

struct Options {
  Format format = Format::text;
  std::string configs = "configs";
  std::string output = "generated";
  std::string profile = "full";
  std::string filter;
  bool dry_run = false;
  bool rules = false;                          ///< check: list the rules instead
  ListSubject subject = ListSubject::kernels;  ///< list
  std::string before, after;                   ///< diff
  std::vector<std::string> gpus;               ///< explain: presets
  DeviceTraits device;                         ///< explain: where no preset is named
  Problem problem;                             ///< explain
  std::optional<AskedLayout> layout;           ///< explain: of the mask's plan
  std::optional<int> mask_density;             ///< explain: 0 is unknown
};

/// Where a command writes: data, diagnostics, and whether diagnostics may be coloured.
struct Streams {
  std::ostream& out;
  std::ostream& err;
  bool colour = false;
};

/// Parses, runs a command, returns its exit code. `arguments` are those after the program's name.
int run_command_line(std::vector<std::string> arguments, const Streams& streams);

}  // namespace flashdma_bwd::generator
