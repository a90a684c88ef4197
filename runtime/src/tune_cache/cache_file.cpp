// Reading a cache, and adding to it under its lock.
#include "tune_cache/cache_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>

#include "selection/line_text.hpp"

namespace flashdma_bwd {
namespace {

constexpr auto kLongestWaitForLock = std::chrono::seconds(5);
constexpr auto kLockInterval = std::chrono::milliseconds(2);

std::string system_failure(const std::string& what) {
  return what + ": " + std::generic_category().message(errno);
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }
  bool is_open() const { return number_ >= 0; }
  int number() const { return number_; }
  bool close() {
    const bool closed = number_ < 0 || ::close(number_) == 0;
    number_ = -1;
    return closed;
  }

 private:
  int number_;
};

int open_file(const std::string& path, int flags) {
  for (;;) {
    const int number = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    if (number >= 0 || errno != EINTR) return number;
  }
}

struct Contents {
  bool exists = false;
  mode_t permissions = 0;
  std::string text;
};

Parsed<Contents> read_file(const std::string& path) {
  Contents contents;
  // Without O_NONBLOCK a pipe would wait for its writer.
  const Descriptor file(open_file(path, O_RDONLY | O_NONBLOCK));
  if (!file.is_open()) {
    if (errno == ENOENT) return contents;
    return Parsed<Contents>::failure(system_failure(path + " cannot be opened"));
  }
  struct stat status {};
  if (::fstat(file.number(), &status) != 0)
    return Parsed<Contents>::failure(system_failure(path + " cannot be examined"));
  if (!S_ISREG(status.st_mode)) return Parsed<Contents>::failure(path + " is no regular file");
  contents.exists = true;
  contents.permissions = status.st_mode & 0777;
  char block[1 << 14];
  for (;;) {
    const ssize_t count = ::read(file.number(), block, sizeof block);
    if (count == 0) return contents;
    if (count > 0)
      contents.text.append(block, static_cast<std::size_t>(count));
    else if (errno != EINTR)
      return Parsed<Contents>::failure(system_failure(path + " cannot be read"));
  }
}

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(file, text.data(), text.size());
    if (count > 0)
      text.remove_prefix(static_cast<std::size_t>(count));
    else if (count == 0 || errno != EINTR)
      return false;
  }
  return true;
}

/// Puts `contents` in the place of the file at `path`, whole or not at all. The lock is held: there is one temporary.
std::string replace_file(const std::string& path, const Contents& contents) {
  const std::string temporary = path + ".tmp";
  Descriptor file(open_file(temporary, O_WRONLY | O_CREAT | O_TRUNC));
  if (!file.is_open()) return system_failure(temporary + " cannot be created");
  const bool written = (!contents.exists || ::fchmod(file.number(), contents.permissions) == 0) &&
                       write_all(file.number(), contents.text) && ::fsync(file.number()) == 0 && file.close();
  if (written && std::rename(temporary.c_str(), path.c_str()) == 0) return {};
  std::string error = system_failure(temporary + " cannot be written and renamed to " + path);
  ::unlink(temporary.c_str());
  return error;
}

/// Holds <path>.lock. The file stays: whoever deleted it would have others lock another.
std::string take_lock(const Descriptor& lock, const std::string& path) {
  if (!lock.is_open()) return system_failure(path + " cannot be created");
  const auto deadline = std::chrono::steady_clock::now() + kLongestWaitForLock;
  while (::flock(lock.number(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return system_failure(path + " cannot be locked");
    if (std::chrono::steady_clock::now() > deadline) return path + " is locked by another process for too long";
    std::this_thread::sleep_for(kLockInterval);
  }
  return {};
}

/// Behind symbolic links, so that a rename does not replace the link.
std::string real_path(const std::string& path) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::weakly_canonical(path, error);
  return error ? path : real.string();
}

/// Adds records to a file's text; returns the line of each.
std::vector<int> add_lines(std::string& text, std::span<const CacheRecord> records) {
  std::vector<CacheLine> lines = parse_cache(text);
  if (!text.empty() && text.back() != '\n') text += '\n';
  auto next = static_cast<int>(std::count(text.begin(), text.end(), '\n')) + 1;
  std::vector<int> numbers;
  for (const CacheRecord& record : records) {
    auto found = std::find_if(lines.begin(), lines.end(), [&](const CacheLine& line) {
      return line.kind == LineKind::record && same_choice(line.record, record);
    });
    if (found == lines.end()) {
      text += record_text(record) + '\n';
      found = lines.insert(lines.end(), {next++, LineKind::record, record, {}});
    }
    numbers.push_back(found->number);
  }
  return numbers;
}

}  // namespace

std::vector<CacheLine> parse_cache(std::string_view text) {
  std::vector<CacheLine> lines;
  for (int number = 1; !text.empty(); ++number) {
    std::string_view line = take_until(text, '\n');
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    CacheLine parsed;
    parsed.number = number;
    const int version = version_of(line);
    if (version != 0 && version != kCacheVersion) {
      parsed.kind = LineKind::other_version;
      parsed.why = "a record of version " + std::to_string(version) + ", and this library reads version " +
                   std::to_string(kCacheVersion);
    } else if (Parsed<CacheRecord> record = parse_record(line)) {
      parsed.kind = LineKind::record;
      parsed.record = std::move(*record.value);
    } else {
      parsed.why = std::move(record.error);
    }
    lines.push_back(std::move(parsed));
  }
  return lines;
}

Parsed<std::vector<CacheLine>> read_cache(const std::string& path) {
  using Result = Parsed<std::vector<CacheLine>>;
  const Parsed<Contents> contents = read_file(path);
  if (!contents) return Result::failure(contents.error);
  std::string_view text = contents.value->text;
  bool any_line = false;
  while (!text.empty()) {
    const std::string_view line = take_until(text, '\n');
    if (line.starts_with('{')) return parse_cache(contents.value->text);
    any_line = any_line || !line.empty();
  }
  if (any_line) return Result::failure(path + " is no cache: no line of it begins with `{`, as a record does");
  return std::vector<CacheLine>();
}

Parsed<std::vector<int>> append_to_cache(const std::string& path, std::span<const CacheRecord> records) {
  using Result = Parsed<std::vector<int>>;
  const std::string real = real_path(path);
  const std::string lock_path = real + ".lock";
  const Descriptor lock(open_file(lock_path, O_RDWR | O_CREAT));
  if (const std::string error = take_lock(lock, lock_path); !error.empty()) return Result::failure(error);
  Parsed<Contents> contents = read_file(real);
  if (!contents) return Result::failure(contents.error);
  const std::size_t size = contents.value->text.size();
  std::vector<int> numbers = add_lines(contents.value->text, records);
  if (contents.value->text.size() == size) return numbers;
  if (const std::string error = replace_file(real, *contents.value); !error.empty()) return Result::failure(error);
  return numbers;
}

}  // namespace flashdma_bwd
