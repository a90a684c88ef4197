// What an attempt says in a child process: one whose disk is full, or one that may not write into a folder.
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>

#include "support/catch.hpp"

namespace flashdma_bwd::testing {

/// The text that `function` returns in a child process. No assertion may stand in it: nobody would see it fail.
template <class Function>
std::string said_in_child(Function function) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::string text;
    try {
      text = function();
    } catch (const std::exception& error) {
      text = std::string("an exception: ") + error.what();
    } catch (...) {
      text = "an exception";
    }
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t count = ::write(ends[1], text.data() + done, text.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) _exit(1);
      done += static_cast<std::size_t>(count);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char block[4096];
  for (;;) {
    const ssize_t count = ::read(ends[0], block, sizeof block);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(block, static_cast<std::size_t>(count));
  }
  close(ends[0]);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  INFO("the child said: " << text);
  REQUIRE(status == 0);
  return text;
}

/// What `attempt` returns in a child process whose files cannot grow beyond so many bytes.
template <class Attempt>
std::string said_on_full_disk(rlim_t bytes, Attempt attempt) {
  return said_in_child([&]() -> std::string {
    const rlimit limit{bytes, bytes};
    if (signal(SIGXFSZ, SIG_IGN) == SIG_ERR || setrlimit(RLIMIT_FSIZE, &limit) != 0)
      return std::string("the size of files cannot be limited: ") + std::strerror(errno);
    return attempt();
  });
}

inline constexpr unsigned kNobody = 65534;

inline bool become_nobody() {
  return setresgid(kNobody, kNobody, kNobody) == 0 && setresuid(kNobody, kNobody, kNobody) == 0;
}

/// Whether there is somebody here who may not write everywhere: root cannot become nobody in every container. Says so
/// where there is not.
inline bool somebody_may_not_write() {
  if (geteuid() != 0 || said_in_child([] { return become_nobody() ? "yes" : "no"; }) == "yes") return true;
  WARN("root cannot give up its rights here: what an unwritable folder does is not tested");
  return false;
}

/// What `attempt` returns in a child process that can read `folder` and search it, and cannot write into it. Root may
/// write everywhere: where these tests are root's, the child is nobody's. The folder's permissions are then what they
/// were. Where somebody_may_not_write().
template <class Attempt>
std::string said_in_unwritable_folder(const std::filesystem::path& folder, Attempt attempt) {
  namespace fs = std::filesystem;
  constexpr auto kAllRead = fs::perms{0555};
  const fs::perms before = fs::status(folder).permissions();
  fs::permissions(folder, kAllRead);
  const std::string said = said_in_child([&]() -> std::string {
    if (geteuid() == 0 && !become_nobody())
      return std::string("root's rights cannot be given up: ") + std::strerror(errno);
    // A folder that cannot even be reached would be refused in the same words.
    if (access(folder.c_str(), R_OK | X_OK) != 0)
      return std::string("the folder cannot be reached: ") + std::strerror(errno);
    if (access(folder.c_str(), W_OK) == 0) return "the folder can be written";
    return attempt();
  });
  fs::permissions(folder, before);
  return said;
}

}  // namespace flashdma_bwd::testing
