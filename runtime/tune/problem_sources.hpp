// The problems that a command line asks for: named grids and problem files.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <string>
#include <vector>

#include "diagnostics/diagnostic.hpp"
#include "diagnostics/source_file.hpp"

namespace flashdma_bwd::tune {

/// Appends the problems of a grid. Returns what is wrong with the name, or an empty text.
std::string add_grid(const std::string& name, std::vector<Problem>& problems);

/// Appends the problems of a file, see selection/problem_text.hpp, and its text to `sources`, for whoever shows the
/// findings. All that is wrong with the file is a finding, also a last line without an end: a length may have lost a
/// digit, and would be tuned for as what is left of it.
void add_problem_file(const std::string& path, std::vector<Problem>& problems, generator::Diagnostics& diagnostics,
                      std::vector<generator::SourceFile>& sources);

}  // namespace flashdma_bwd::tune
