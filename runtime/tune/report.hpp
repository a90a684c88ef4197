// What measurements say of a table, as text: regrets now, with tuned rows, and on problems held back. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "config/model.hpp"
#include "measurement.hpp"
#include "tuning/merge.hpp"
#include "tuning/row_evidence.hpp"

namespace flashdma_bwd::tune {

struct ReportInput {
  const generator::Table* table = nullptr;
  std::span<const generator::MeasuredProblem> tuned_on;
  std::span<const generator::MeasuredProblem> held_back;  ///< not asked when rows were made
  std::span<const generator::TunedRow> rows;              ///< that `tuned_on` asks for
  std::span<const generator::RowEvidence> evidence;       ///< of the table's own rows; empty: not asked for
  DeviceTraits device;
  double bound = generator::kRegretBound;
  std::string times = "cold";  ///< by which choices are compared
};

std::string report_text(const ReportInput& input);

/// All candidates of all measurements, a line each.
std::string measurements_text(std::span<const Measurement> measurements);
std::string measurements_json(std::span<const Measurement> measurements);

}  // namespace flashdma_bwd::tune
