// The text of a table with tuned rows put into it: everything else stays as it is, byte for byte. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "config/model.hpp"
#include "tuning/row_yaml.hpp"

namespace flashdma_bwd::generator {

/// Puts the rows before the first row of their head dim and takes out the lines of rows that they leave nothing to
/// decide. Reports what the text that comes out would be refused for, with places in that text, which `edited` becomes
/// in any case; then there is no table to be written. `table` is what `source` says, and valid.
std::optional<Table> edit_table(const SourceFile& source, const Table& table, const ArchitectureSpec& spec,
                                std::span<const TunedRow> rows, const MeasuredWhere& where, SourceFile& edited,
                                Diagnostics& diagnostics);

}  // namespace flashdma_bwd::generator
