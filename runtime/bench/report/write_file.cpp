// Writing a file whole or not at all. See write_file.hpp.
#include "report/write_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace flashdma_bwd::bench {
namespace {

namespace fs = std::filesystem;

/// Writes all of `text` and closes `file`. Returns what failed.
std::string write_and_close(int file, std::string_view text, bool on_disk) {
  int error = 0;
  while (!text.empty() && error == 0) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written >= 0)
      text.remove_prefix(static_cast<std::size_t>(written));
    else if (errno != EINTR)
      error = errno;
  }
  if (error == 0 && on_disk && ::fsync(file) != 0) error = errno;
  if (::close(file) != 0 && error == 0) error = errno;
  return error != 0 ? std::strerror(error) : std::string();
}

std::string write_directly(const fs::path& path, std::string_view text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  return file < 0 ? std::strerror(errno) : write_and_close(file, text, false);
}

/// The permissions of `target`, if it is there, go to the file that takes its place.
std::string replace(const fs::path& target, std::string_view text) {
  const fs::path staged = fs::path(target).concat(".staged-" + std::to_string(::getpid()));
  const int file = ::open(staged.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return std::strerror(errno);
  struct stat status {};
  if (::stat(target.c_str(), &status) == 0 && ::fchmod(file, status.st_mode & 07777) != 0) {
    const int refused = errno;
    ::close(file);
    ::unlink(staged.c_str());
    return std::strerror(refused);
  }
  std::string why = write_and_close(file, text, true);
  std::error_code error;
  if (why.empty()) {
    fs::rename(staged, target, error);
    if (error) why = error.message();
  }
  if (!why.empty()) fs::remove(staged, error);
  return why;
}

}  // namespace

std::string write_file(const std::string& path, std::string_view text) {
  std::error_code error;
  if (fs::is_directory(path, error)) return "cannot write " + path + ": a folder is in its place";
  const bool exists = fs::exists(path, error);
  std::string why;
  if (exists && !fs::is_regular_file(path, error)) {
    why = write_directly(path, text);
  } else {
    const fs::path target = exists ? fs::canonical(path, error) : fs::path(path);  // what a link leads to
    why = error && exists ? error.message() : replace(target, text);
  }
  return why.empty() ? why : "cannot write " + path + ": " + why;
}

}  // namespace flashdma_bwd::bench
