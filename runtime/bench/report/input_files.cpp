// Reading results and captures. See input_files.hpp.
#include "report/input_files.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "selection/problem_text.hpp"

namespace flashdma_bwd::bench {
namespace {

void read_capture(std::string_view text, const std::string& path, Inputs& inputs, std::vector<std::string>& errors) {
  Parsed<std::vector<flashdma_bwd::Problem>> problems = parse_problem_file(text, path);
  if (!problems) {
    errors.push_back(problems.error);
    return;
  }
  if (const auto fault = unfinished_line(text)) {
    errors.push_back(path + ':' + std::to_string(fault->line) + ": " + fault->why);
    return;
  }
  inputs.captures.push_back({path, std::move(*problems.value)});
}

std::string read_file(const std::string& path, std::string& text) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return "a folder, not a file";
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream stream;
  if (file && file.peek() != std::ifstream::traits_type::eof()) stream << file.rdbuf();
  if (!file.is_open() || file.bad()) return errno != 0 ? std::strerror(errno) : "cannot be read";
  text = stream.str();
  return {};
}

}  // namespace

void read_input(std::string_view text, const std::string& path, Inputs& inputs, std::vector<std::string>& errors) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) {
    errors.push_back(path + ":1: the file is empty");
  } else if (text[begin] == '{' || text[begin] == '[') {
    inputs.results.push_back(read_results(text, path, errors));
  } else if (text.starts_with("flashdma_bwd problems")) {
    read_capture(text, path, inputs, errors);
  } else {
    errors.push_back(path + ":1: neither results, as `flashdma-bench --json` writes them, nor a capture, whose first " +
                     "line is `" + std::string(kProblemFileHeader) + "`");
  }
}

Inputs read_input_files(const std::vector<std::string>& paths, std::vector<std::string>& errors) {
  Inputs inputs;
  for (const std::string& path : paths) {
    std::string text;
    if (const std::string why = read_file(path, text); !why.empty())
      errors.push_back(path + ": " + why);
    else
      read_input(text, path, inputs, errors);
  }
  return inputs;
}

}  // namespace flashdma_bwd::bench
