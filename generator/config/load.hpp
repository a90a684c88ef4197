// Reads all of configs/ from the disk.
#pragma once

#include <filesystem>

#include "config/model.hpp"

namespace flashdma_bwd::generator {

/// Reads architectures/, tables/ and profiles/ below `folder`. What cannot be read is reported and left out.
Configuration load_configuration(const std::filesystem::path& folder, Diagnostics& diagnostics);

/// The tables of `path`: a folder like configs/, or one table file.
Configuration load_tables(const std::filesystem::path& path, Diagnostics& diagnostics);

}  // namespace flashdma_bwd::generator
