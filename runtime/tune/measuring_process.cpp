// A child with a socket for its standard input and output.
#include "measuring_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "diagnostics/render.hpp"
#include "json_reader.hpp"
#include "record_json.hpp"
#include "selection/problem_text.hpp"

namespace flashdma_bwd::tune {
namespace {

constexpr const char* kName = "the measuring program";

/// What is wrong with a line of the process, with its findings as text.
std::string misunderstood(const LinePlace& place, const generator::Diagnostics& diagnostics) {
  return std::string(kName) + " said what was not understood: " +
         generator::render_text(diagnostics, {{place.path, place.path, std::string(place.text)}}, false);
}

[[noreturn]] void become(const std::string& program, const std::vector<std::string>& arguments, int socket) {
  std::vector<char*> words{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  if (dup2(socket, STDIN_FILENO) >= 0 && dup2(socket, STDOUT_FILENO) >= 0) execvp(words[0], words.data());
  _exit(127);
}

}  // namespace

MeasuringProcess::MeasuringProcess(std::string program, std::vector<std::string> arguments, int seconds)
    : program_(std::move(program)), arguments_(std::move(arguments)), seconds_(seconds) {}

MeasuringProcess::~MeasuringProcess() {
  stop();
}

void MeasuringProcess::stop() {
  if (socket_ >= 0) close(std::exchange(socket_, -1));
  if (child_ < 0) return;
  kill(child_, SIGKILL);
  waitpid(std::exchange(child_, -1), nullptr, 0);
}

std::string MeasuringProcess::start() {
  if (child_ >= 0) return {};
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return std::string("no socket for ") + kName + ": " + std::strerror(errno);
  child_ = fork();
  if (child_ == 0) become(program_, arguments_, ends[1]);
  close(ends[1]);
  socket_ = ends[0];
  received_.clear();
  if (child_ < 0) {
    const int reason = errno;
    stop();
    return std::string("no process for ") + kName + ": " + std::strerror(reason);
  }
  std::string why;
  const std::optional<std::string> line = read_line(why);
  if (!line) return program_ + ": " + why;
  const LinePlace place{program_, 1, *line};
  generator::Diagnostics diagnostics;
  if (const std::optional<nlohmann::json> json = parse_json_line(place, diagnostics)) {
    const JsonReader reader(*json, "the description of a device", {"protocol", "environment", "kernels", "failure"},
                            place, diagnostics);
    if (reader.has("failure")) {
      std::string failure = reader.text("failure");
      stop();
      return program_ + ": " + failure;
    }
    reader.integer("protocol", kProtocolVersion, kProtocolVersion);
    description_ = {};
    if (const nlohmann::json* environment = reader.object("environment"))
      if (const auto read = read_environment(*environment, place, diagnostics)) description_.environment = *read;
    if (const nlohmann::json* kernels = reader.list("kernels"))
      for (const nlohmann::json& kernel : *kernels)
        if (kernel.is_string()) description_.kernels.push_back(kernel.get<std::string>());
  }
  if (diagnostics.empty()) return {};
  stop();
  return misunderstood(place, diagnostics);
}

std::string MeasuringProcess::send_line(const std::string& line) {
  const std::string text = line + '\n';
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = send(socket_, text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::strerror(errno);
    done += static_cast<std::size_t>(count);
  }
  return {};
}

std::string MeasuringProcess::how_it_ended() {
  int status = 0;
  close(std::exchange(socket_, -1));
  waitpid(std::exchange(child_, -1), &status, 0);
  if (WIFSIGNALED(status))
    return std::string(kName) + " was ended by signal " + std::to_string(WTERMSIG(status)) + " (" +
           strsignal(WTERMSIG(status)) + ')';
  if (WEXITSTATUS(status) == 127) return std::string(kName) + " cannot be run";
  return std::string(kName) + " ended with exit code " + std::to_string(WEXITSTATUS(status));
}

std::optional<std::string> MeasuringProcess::read_line(std::string& why) {
  for (;;) {
    if (const std::size_t end = received_.find('\n'); end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    pollfd waiting{socket_, POLLIN, 0};
    const int ready = poll(&waiting, 1, seconds_ * 1000);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      stop();
      why = std::string(kName) + " said nothing for " + std::to_string(seconds_) + " s and was ended";
      return std::nullopt;
    }
    char buffer[4096];
    const ssize_t count = recv(socket_, buffer, sizeof buffer, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      why = how_it_ended();
      return std::nullopt;
    }
    received_.append(buffer, static_cast<std::size_t>(count));
  }
}

std::string MeasuringProcess::describe(DeviceDescription& description) {
  std::string error = start();
  description = description_;
  return error;
}

MeasuringProcess::Answer MeasuringProcess::ask(const Request& request, const std::vector<std::string>& kernels) {
  Answer answer;
  const nlohmann::ordered_json json{{"problem", problem_text(request.problem)},
                                    {"kernels", kernels},
                                    {"rounds", request.rounds},
                                    {"stop_share", request.stop_share}};
  if (!send_line(json.dump()).empty()) {
    answer.died = how_it_ended();
    return answer;
  }
  for (;;) {
    const std::optional<std::string> line = read_line(answer.died);
    if (!line) return answer;
    const LinePlace place{program_, 1, *line};
    generator::Diagnostics diagnostics;
    if (const std::optional<nlohmann::json> said = parse_json_line(place, diagnostics)) {
      const JsonReader reader(*said, "an answer", {"running", "results", "failure"}, place, diagnostics);
      if (reader.has("running")) {
        answer.running = reader.text("running");
        if (diagnostics.empty()) continue;
      } else if (reader.has("failure")) {
        answer.failure = reader.text("failure");
      } else if (const nlohmann::json* results = reader.list("results")) {
        for (const nlohmann::json& result : *results)
          if (const auto candidate = read_candidate(result, place, diagnostics)) answer.results.push_back(*candidate);
      }
    }
    if (!diagnostics.empty()) {
      stop();
      answer.failure = misunderstood(place, diagnostics);
    }
    return answer;
  }
}

std::string MeasuringProcess::measure(const Request& request, std::vector<Candidate>& results) {
  std::map<std::string, Candidate> found;
  std::vector<std::string> left = request.kernels;
  while (!left.empty()) {
    if (std::string error = start(); !error.empty()) return error;
    Answer answer = ask(request, left);
    if (!answer.failure.empty()) return answer.failure;
    if (answer.died.empty()) {
      for (Candidate& candidate : answer.results) found[candidate.kernel] = std::move(candidate);
      break;
    }
    // The others are measured again without the one that it happened to.
    if (std::erase(left, answer.running) == 0) return answer.died + " before it tried a kernel";
    Candidate& failed = found[answer.running];
    failed.kernel = answer.running;
    failed.failure = answer.died;
  }
  results.clear();
  for (const std::string& kernel : request.kernels) {
    const auto candidate = found.find(kernel);
    if (candidate == found.end()) return std::string(kName) + " said nothing of " + kernel;
    results.push_back(candidate->second);
  }
  return {};
}

}  // namespace flashdma_bwd::tune
