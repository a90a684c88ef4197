// Temporary file, fsync, rename.
#include "atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace flashdma_bwd::tune {

std::string replace_file(const std::filesystem::path& path, std::string_view text) {
  std::string temporary = path.string() + ".XXXXXX";
  const auto failure = [&](const char* what) {
    return path.generic_string() + ": " + what + ": " + std::strerror(errno) + "; the file is as it was";
  };
  const int file = mkstemp(temporary.data());
  if (file < 0) return failure("no temporary file can be made beside it");
  std::string error;
  struct stat status {};
  const mode_t mode = stat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0644;
  if (fchmod(file, mode) != 0) error = failure("the permissions of its successor cannot be set");
  while (error.empty() && !text.empty()) {
    const ssize_t count = write(file, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      error = failure("its successor cannot be written");
    else
      text.remove_prefix(static_cast<std::size_t>(count));
  }
  if (error.empty() && fsync(file) != 0) error = failure("its successor cannot be brought to the disk");
  close(file);
  if (error.empty() && rename(temporary.c_str(), path.c_str()) != 0) error = failure("it cannot be replaced");
  if (!error.empty()) unlink(temporary.c_str());
  return error;
}

}  // namespace flashdma_bwd::tune
