// Appending to a problem file that other processes append to as well.
#pragma once

#include <string>
#include <string_view>

namespace flashdma_bwd {

/// Appends a line to the problem file at `path` and begins the file where there is none or an empty one. All of the
/// line is there afterwards or none of it, whatever other processes append and whether or not the disk is full. Returns
/// what is wrong, or nothing. Waits for other writers, for a second at most.
std::string append_to_problem_file(const std::string& path, std::string_view line);

}  // namespace flashdma_bwd
