// One function for each kind of file in configs/: text in, typed model and findings out.
#pragma once

#include <optional>

#include "config/model.hpp"

namespace flashdma_bwd::generator {

/// Empty where so much is wrong that nothing can be made of the file.
std::optional<ArchitectureSpec> read_architecture(const SourceFile& source, Diagnostics& diagnostics);
std::optional<Table> read_table(const SourceFile& source, Diagnostics& diagnostics);
std::optional<Profile> read_profile(const SourceFile& source, Diagnostics& diagnostics);

}  // namespace flashdma_bwd::generator
