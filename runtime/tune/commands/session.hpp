// What the verbs share: a valid configuration, a store's contents, what measurements say of a table, and its edit.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/model.hpp"
#include "tune/cache_choices.hpp"
#include "tune/commands/command_line.hpp"
#include "tune/store.hpp"
#include "tuning/merge.hpp"
#include "tuning/row_evidence.hpp"
#include "tuning/row_yaml.hpp"

namespace flashdma_bwd::tune {

/// "flashdma-tune: message" to the error stream; returns `code`.
int refuse(const Surroundings& surroundings, ExitCode code, const std::string& message);

void show_findings(const generator::Diagnostics& diagnostics, const std::vector<generator::SourceFile>& sources,
                   const Surroundings& surroundings);

/// Loads and validates --configs. Findings are shown; then there is no configuration.
std::optional<generator::Configuration> load_valid(const Options& options, const Surroundings& surroundings);

/// Reads a store's text; shows its warning and its findings, after which there are no contents.
std::optional<StoreContents> read_shown(const generator::SourceFile& source, const Surroundings& surroundings);

/// The same for a cache; what has findings is passed over, and `code` says so.
CacheContents read_shown_choices(const generator::SourceFile& source, const Surroundings& surroundings, int& code);

/// The table that a GPU runs first, where that is made for it, or nullptr.
const generator::Table* own_table(const generator::Configuration& configuration, int compute_capability);
/// Why there are no rows without it.
std::string no_table_text(int compute_capability);

/// The problems of --held-back; shows what is wrong with a name.
std::optional<std::vector<Problem>> held_back_problems(const Options& options, const Surroundings& surroundings);

/// Measured problems of one device, parted into those that rows are made from and those held back, and the rows.
/// Cannot be copied: rows refer into it.
struct Findings {
  Findings() = default;
  Findings(const Findings&) = delete;
  Findings& operator=(const Findings&) = delete;
  const generator::Table* table = nullptr;
  DeviceTraits device;
  std::vector<generator::MeasuredProblem> tuned_on, held_back;
  std::vector<generator::TunedRow> rows;
  std::vector<generator::RowEvidence> evidence;  ///< of the rows that the table has, where it was asked for

  /// Whether there is anything to write.
  bool change_rows() const;
};
void find_rows(const generator::Table& table, const DeviceTraits& device,
               std::vector<generator::MeasuredProblem> measured, std::span<const Problem> held_back, double bound,
               Findings& findings);

/// What the same measurements say of the rows that the table has, with those found before them.
void judge_rows(double bound, Findings& findings);

/// `times`: which times choices are compared by.
std::string report_of(const Findings& findings, double bound, const std::string& times = "cold");

/// What the rows of a store's measurements say of their origin.
generator::MeasuredWhere measured_where(const Environment& environment);

/// Puts the rows, and the measurements of those that the table has, into its file, or leaves that as it is; says which,
/// and what comes `next` after a build.
int write_table(const generator::Configuration& configuration, const Findings& findings,
                const generator::MeasuredWhere& where, const std::string& next, const Surroundings& surroundings);

}  // namespace flashdma_bwd::tune
