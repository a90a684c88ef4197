// The problems that a command line asks for: named grids and problem files.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <string>
#include <vector>

namespace flashdma_bwd::tune {

/// Appends the problems of a grid. Returns what is wrong with the name, or an empty text.
std::string add_grid(const std::string& name, std::vector<Problem>& problems);

/// Appends the problems of a file, see selection/problem_text.hpp. Returns what is wrong with it, or an empty text.
std::string add_problem_file(const std::string& path, std::vector<Problem>& problems);

}  // namespace flashdma_bwd::tune
