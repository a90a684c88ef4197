// What the verbs share: a valid configuration, a store's contents, and what both say of a table.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/model.hpp"
#include "tune/commands/command_line.hpp"
#include "tune/store.hpp"
#include "tuning/merge.hpp"

namespace flashdma_bwd::tune {

/// "flashdma-tune: message" to the error stream; returns `code`.
int refuse(const Surroundings& surroundings, ExitCode code, const std::string& message);

void show_findings(const generator::Diagnostics& diagnostics, const std::vector<generator::SourceFile>& sources,
                   const Surroundings& surroundings);

/// Loads and validates --configs. Findings are shown; then there is no configuration.
std::optional<generator::Configuration> load_valid(const Options& options, const Surroundings& surroundings);

/// Reads a store's text; shows its warning and its findings, after which there are no contents.
std::optional<StoreContents> read_shown(const generator::SourceFile& source, const Surroundings& surroundings);

/// The architecture whose table a GPU runs first, where that is made for it.
std::optional<Architecture> own_architecture(int compute_capability);

/// The problems of --held-back; shows what is wrong with a name.
std::optional<std::vector<Problem>> held_back_problems(const Options& options, const Surroundings& surroundings);

/// Measurements of one environment, parted into those that rows are made from and those held back, and the rows.
/// Cannot be copied: rows refer into it.
struct Findings {
  Findings() = default;
  Findings(const Findings&) = delete;
  Findings& operator=(const Findings&) = delete;
  const generator::Table* table = nullptr;
  DeviceTraits device;
  std::vector<generator::MeasuredProblem> tuned_on, held_back;
  std::vector<generator::TunedRow> rows;
};
void find_rows(const generator::Table& table, std::span<const Measurement> measurements,
               std::span<const Problem> held_back, double bound, Findings& findings);

std::string report_of(const Findings& findings, double bound);

}  // namespace flashdma_bwd::tune
