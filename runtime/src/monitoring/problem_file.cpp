// One write under a lock of the file.
#include "monitoring/problem_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>

#include "selection/line_text.hpp"
#include "selection/problem_text.hpp"

namespace flashdma_bwd {
namespace {

constexpr int kLockAttempts = 1000;
constexpr std::chrono::milliseconds kBetweenAttempts{1};
constexpr mode_t kReadableByAll = 0666;  // less the process's umask

/// "<what>: <the system's words>".
std::string system_error(const char* what) {
  return std::string(what) + ": " + std::error_code(errno, std::generic_category()).message();
}

/// Closes, which also unlocks.
class OpenFile {
 public:
  explicit OpenFile(const std::string& path)
      : file_(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, kReadableByAll)) {}
  ~OpenFile() {
    if (file_ >= 0) ::close(file_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int number() const { return file_; }

 private:
  int file_;
};

/// Returns what is wrong, or nothing.
std::string lock(int file) {
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) return {};
    if (errno != EWOULDBLOCK && errno != EINTR) return system_error("it cannot be locked");
    std::this_thread::sleep_for(kBetweenAttempts);
  }
  return "another process has kept it locked for a second";
}

/// Whether a file that is not empty begins as a problem file does.
bool has_header(int file) {
  std::array<char, kProblemFileHeader.size() + 2> start{};
  const ssize_t count = ::pread(file, start.data(), start.size(), 0);
  std::string_view text(start.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
  if (!text.starts_with(kProblemFileHeader)) return false;
  text.remove_prefix(kProblemFileHeader.size());
  return text.empty() || text[0] == '\n' || text == "\r\n";
}

bool ends_in_newline(int file, off_t size) {
  char last = 0;
  return ::pread(file, &last, 1, size - 1) == 1 && last == '\n';
}

/// Returns what is wrong, or nothing. The file is locked.
std::string append(int file, std::string_view line) {
  struct stat status = {};
  if (::fstat(file, &status) != 0) return system_error("its size cannot be read");
  if (!S_ISREG(status.st_mode)) return "it is no regular file";
  std::string text;
  if (status.st_size == 0)
    text = std::string(kProblemFileHeader) + '\n';
  else if (!has_header(file))
    return "it is there and no problem file: its first line is not " + quoted(kProblemFileHeader);
  else if (!ends_in_newline(file, status.st_size))
    text = "\n";  // somebody's last line
  text += std::string(line) + '\n';
  const ssize_t written = ::write(file, text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return {};
  if (written < 0) return system_error("it cannot be written");
  // Whoever else writes waits for the lock: what stands behind the old end is this line's part.
  if (::ftruncate(file, status.st_size) != 0) return system_error("the disk is full, and part of a line was left");
  return "the disk is full";
}

}  // namespace

std::string append_to_problem_file(const std::string& path, std::string_view line) {
  const OpenFile file(path);
  if (file.number() < 0) return system_error("it cannot be opened");
  if (std::string error = lock(file.number()); !error.empty()) return error;
  return append(file.number(), line);
}

}  // namespace flashdma_bwd
