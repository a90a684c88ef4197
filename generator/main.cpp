// flashdma-gen: the streams and the environment of a process around run_command_line.
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "commands/command_line.hpp"

int main(int argc, char** argv) {
  using namespace flashdma_bwd::generator;
  // https://no-color.org: set and not empty means no colour.
  const char* no_color = std::getenv("NO_COLOR");
  const bool colour = isatty(STDERR_FILENO) == 1 && (no_color == nullptr || *no_color == '\0');
  try {
    const int code = run_command_line(std::vector<std::string>(argv + 1, argv + argc), {std::cout, std::cerr, colour});
    if (std::cout.flush()) return code;
    std::cerr << "flashdma-gen: standard output cannot be written, so that what it has is not whole: see whether its "
                 "disk is full or whoever reads it has ended\n";
    return kInternal;
  } catch (const std::exception& exception) {
    std::cerr << "flashdma-gen: internal error: " << exception.what() << '\n';
    return kInternal;
  }
}
