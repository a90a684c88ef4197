// Appending under a lock.
#include "store.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "record_json.hpp"

namespace flashdma_bwd::tune {

namespace fs = std::filesystem;

StoreContents read_store(const generator::SourceFile& source, generator::Diagnostics& diagnostics) {
  StoreContents contents;
  std::string_view rest = source.text;
  for (int number = 1; !rest.empty(); ++number) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    if (end == std::string_view::npos) {
      contents.warning = source.path + ':' + std::to_string(number) +
                         ": warning: the last line has no end, its measurement was interrupted: it is passed over and "
                         "measured again";
      break;
    }
    rest.remove_prefix(end + 1);
    contents.whole_bytes += end + 1;
    if (line.empty()) continue;
    if (std::optional<Measurement> record = read_record({source.path, number, line}, diagnostics))
      contents.measurements.push_back(*std::move(record));
  }
  return contents;
}

bool read_text_file(const fs::path& path, bool may_be_absent, std::string& text, std::string& error) {
  text.clear();
  std::error_code ignored;
  if (may_be_absent && !fs::exists(path, ignored)) return true;
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream buffer;
  const bool is_folder = fs::is_directory(path, ignored);
  if (stream && !is_folder && stream.peek() != std::ifstream::traits_type::eof()) buffer << stream.rdbuf();
  if (is_folder || !stream.is_open() || stream.bad() || buffer.bad()) {
    error = path.generic_string() + ": the file cannot be read: " +
            (is_folder    ? "it is a folder"
             : errno != 0 ? std::strerror(errno)
                          : "reading failed");
    return false;
  }
  text = std::move(buffer).str();
  return true;
}

Store::~Store() {
  if (file_ >= 0) close(file_);  // which unlocks it
}

std::string Store::open(const fs::path& path) {
  source_.path = source_.name = path.generic_string();
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0)
    return source_.path + ": the store cannot be opened: " + std::strerror(errno) +
           "; --store names a file in a folder that can be written";
  if (flock(file_, LOCK_EX | LOCK_NB) != 0) {
    const int reason = errno;
    close(std::exchange(file_, -1));
    if (reason == EWOULDBLOCK)
      return source_.path +
             ": another flashdma-tune is measuring into this store: wait for it, or name another file with --store";
    return source_.path + ": the store cannot be locked: " + std::strerror(reason);
  }
  std::string error;
  if (!read_text_file(path, false, source_.text, error)) return error;
  const std::size_t end = source_.text.rfind('\n');
  bytes_ = end == std::string::npos ? 0 : end + 1;
  return {};
}

std::string Store::append(const Measurement& measurement) {
  const std::string line = record_line(measurement) + '\n';
  const auto failure = [&](const char* what) {
    const int reason = errno;
    // What was written of the line goes again; if even that fails, it is a last line without an end.
    if (ftruncate(file_, static_cast<off_t>(bytes_)) != 0) errno = reason;
    return source_.path + ": " + what + ": " + std::strerror(reason) +
           "; what was measured before is on the disk, and a run with this store goes on from there";
  };
  if (ftruncate(file_, static_cast<off_t>(bytes_)) != 0) return failure("a last line without an end cannot be cut off");
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t count = pwrite(file_, line.data() + done, line.size() - done, static_cast<off_t>(bytes_ + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return failure("a measurement cannot be written");
    done += static_cast<std::size_t>(count);
  }
  if (fsync(file_) != 0) return failure("a measurement cannot be brought to the disk");
  bytes_ += line.size();
  return {};
}

}  // namespace flashdma_bwd::tune
