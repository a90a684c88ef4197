// The GPU behind a process of its own: a kernel that faults takes that process with it, and nothing else.
//
// They speak lines of JSON. The process first says {"protocol", "environment", "kernels"}; it answers a request
// {"problem", "kernels", "rounds", "stop_share"} with a line {"running": kernel} before each kernel that it tries for
// the first time, and then {"results": [...]}, or {"failure": why nothing could be measured}.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "device.hpp"

namespace flashdma_bwd::tune {

inline constexpr int kProtocolVersion = 1;

class MeasuringProcess final : public Device {
 public:
  /// `program` and `arguments` are what is run. A line that takes longer than `seconds` ends the process.
  explicit MeasuringProcess(std::string program, std::vector<std::string> arguments = {}, int seconds = 900);
  ~MeasuringProcess() override;

  std::string describe(DeviceDescription& description) override;
  std::string measure(const Request& request, std::vector<Candidate>& results) override;

 private:
  /// How a conversation about some kernels went.
  struct Answer {
    std::vector<Candidate> results;
    std::string failure;  ///< of the request as a whole
    std::string died;     ///< the process ended, or was ended: how
    std::string running;  ///< the kernel that was tried then
  };

  std::string start();
  void stop();
  std::string send_line(const std::string& line);
  std::optional<std::string> read_line(std::string& why);
  std::string how_it_ended();
  Answer ask(const Request& request, const std::vector<std::string>& kernels);

  std::string program_;
  std::vector<std::string> arguments_;
  int seconds_;
  DeviceDescription description_;
  pid_t child_ = -1;
  int socket_ = -1;
  std::string received_;
};

}  // namespace flashdma_bwd::tune
