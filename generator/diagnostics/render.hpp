// Findings as text in the form of a compiler's, and as JSON.
#pragma once

#include <string>
#include <vector>

#include "diagnostics/diagnostic.hpp"
#include "diagnostics/source_file.hpp"

namespace flashdma_bwd::generator {

/// `path:line:col: error: message [rule-id]`, the source line, a caret and the notes, for each finding; then a count.
std::string render_text(const Diagnostics& diagnostics, const std::vector<SourceFile>& sources, bool colour);

/// A JSON array of {rule, path, line, column, length, message, notes}.
std::string render_json(const Diagnostics& diagnostics);

}  // namespace flashdma_bwd::generator
