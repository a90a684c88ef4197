// The text of a table with tuned rows put into it, and with the measurements of rows that it has: everything else stays
// as it is, byte for byte. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "config/model.hpp"
#include "tuning/row_evidence.hpp"
#include "tuning/row_yaml.hpp"

namespace flashdma_bwd::generator {

/// Puts the rows `added` before the first row of their head dim, takes out the lines of rows that they leave nothing to
/// decide, and writes the rows that `evidence` backs anew, with `measured`. Reports what the text that comes out would
/// be refused for, with places in that text, which `edited` becomes in any case; then there is no table to be written.
/// `table` is what `source` says, and valid.
std::optional<Table> edit_table(const SourceFile& source, const Table& table, const ArchitectureSpec& spec,
                                std::span<const TunedRow> added, std::span<const RowEvidence> evidence,
                                const MeasuredWhere& where, SourceFile& edited, Diagnostics& diagnostics);

}  // namespace flashdma_bwd::generator
