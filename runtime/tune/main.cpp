// flashdma-tune: the streams, the clock and the devices of a process around run_command_line.
#include <signal.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "tune/commands/command_line.hpp"
#include "tune/measuring_process.hpp"

namespace {

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  gmtime_r(&now, &date);
  std::array<char, 16> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d", &date);
  return text.data();
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string program_folder() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : program.parent_path().string();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace flashdma_bwd::tune;
  // A file that may not grow is an error of write(), not the end of the process.
  signal(SIGXFSZ, SIG_IGN);
  const char* no_color = std::getenv("NO_COLOR");
  const bool terminal = isatty(STDERR_FILENO) == 1;
  const bool colour = terminal && (no_color == nullptr || *no_color == '\0');
  const auto device = [](const std::string& program) -> std::unique_ptr<Device> {
    return std::make_unique<MeasuringProcess>(program);
  };
  try {
    return run_command_line(
        std::vector<std::string>(argv + 1, argv + argc),
        {std::cout, std::cerr, terminal, colour, program_folder(), device, run_command, seconds, today});
  } catch (const std::exception& exception) {
    std::cerr << "flashdma-tune: internal error: " << exception.what() << '\n';
    return kFailure;
  }
}
