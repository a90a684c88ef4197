// The files that a report is made of: results, and captures, which are files of problems without times.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "report/results_file.hpp"

namespace flashdma_bwd::bench {

struct Capture {
  std::string path;
  std::vector<flashdma_bwd::Problem> problems;
};

struct Inputs {
  std::vector<ResultsFile> results;
  std::vector<Capture> captures;
};

/// Adds what `text` holds, known by its beginning: '{' begins results, the header of problem files a capture. What is
/// wrong goes to `errors`, each with "<path>:<line>: ".
void read_input(std::string_view text, const std::string& path, Inputs& inputs, std::vector<std::string>& errors);

/// The same for files on the disk.
Inputs read_input_files(const std::vector<std::string>& paths, std::vector<std::string>& errors);

}  // namespace flashdma_bwd::bench
