// The rules that concern meaning: resources, coverage and names. Pure: a model in, findings out.
#pragma once

#include "config/model.hpp"

namespace flashdma_bwd::generator {

/// Every rule over the whole configuration. What was not read without findings is left out, so that one mistake is
/// reported once.
void validate(const Configuration& configuration, Diagnostics& diagnostics);

/// Tiles against the architecture's limits.
void validate_resources(const Table& table, const ArchitectureSpec& spec, Diagnostics& diagnostics);

/// Holes, hidden rows, duplicates, defaults.
void validate_coverage(const Table& table, Diagnostics& diagnostics);

}  // namespace flashdma_bwd::generator
