// Emit, configure, build what builds, emit again without the rest.
#include "scratch_build.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ostream>
#include <set>
#include <thread>
#include <utility>

#include "emit/emit.hpp"
#include "output/output_tree.hpp"
#include "selection/configuration_name.hpp"
#include "selection/vocabulary.hpp"
#include "tuning/candidate_plan.hpp"

namespace flashdma_bwd::tune {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTarget = "flashdma-tune-measure";

std::string write_tree(const generator::Configuration& configuration, const std::vector<KernelConfig>& kernels,
                       const fs::path& root) {
  const std::vector<generator::EmittedFile> files = emit(generator::candidate_plan(configuration, kernels));
  return update_tree(root, files, generator::compare_tree(root, files));
}

/// Kernels that have an object file below the folder of the build.
std::set<std::string> built_kernels(const fs::path& build) {
  constexpr std::string_view kEnding = ".cu.o";
  std::set<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator it(build, error), end; !error && it != end; it.increment(error))
    if (const std::string name = it->path().filename().string(); name.ends_with(kEnding))
      names.insert(name.substr(0, name.size() - kEnding.size()));
  return names;
}

class Build {
 public:
  Build(const ScratchOptions& options, const RunCommand& run)
      : options_(options),
        run_(run),
        jobs_(options.jobs > 0 ? options.jobs : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))) {}

  fs::path generated() const { return options_.folder / "generated"; }
  fs::path build() const { return options_.folder / "build"; }
  fs::path log() const { return options_.folder / "build.log"; }

  bool configure() {
    ninja_ = run_({"ninja", "--version"}, log()) == 0;
    return run_({"cmake", "-S", options_.source.string(), "-B", build().string(), "-G",
                 ninja_ ? "Ninja" : "Unix Makefiles", "-DCMAKE_BUILD_TYPE=Release",
                 "-DFLASHDMA_BWD_GENERATED_DIR=" + fs::absolute(generated()).string(),
                 "-DFLASHDMA_BWD_ARCHITECTURES=" + architecture(), "-DFLASHDMA_BWD_KERNELS=ON",
                 "-DFLASHDMA_BWD_BUILD_TUNE=ON", "-DFLASHDMA_BWD_BUILD_TESTS=OFF", "-DFLASHDMA_BWD_BUILD_GENERATOR=OFF",
                 "-DFLASHDMA_BWD_BUILD_BENCH=OFF"},
                log()) == 0;
  }
  /// Everything that builds, whatever does not.
  bool build_kernels() {
    return run_({"cmake", "--build", build().string(), "--parallel", std::to_string(jobs_), "--target",
                 "flashdma_bwd_kernels_" + architecture(), "--", ninja_ ? "-k0" : "-k"},
                log()) == 0;
  }
  bool build_program() {
    return run_({"cmake", "--build", build().string(), "--parallel", std::to_string(jobs_), "--target", kTarget},
                log()) == 0;
  }

 private:
  std::string architecture() const { return std::string(word(options_.architecture)); }

  const ScratchOptions& options_;
  const RunCommand& run_;
  int jobs_;
  bool ninja_ = false;
};

}  // namespace

BuildLock::~BuildLock() {
  if (file_ >= 0) close(file_);  // which unlocks it
}

std::string BuildLock::take(const fs::path& folder) {
  constexpr const char* kWhatToDo = "; --build names a folder that can be written";
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    return folder.generic_string() + ": the folder of the build cannot be made: " + error.message() + kWhatToDo;
  // The file stays: whoever deleted it would have others lock another.
  const fs::path path = folder / "tune.lock";
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0)
    return path.generic_string() + ": the lock of the build cannot be opened: " + std::strerror(errno) + kWhatToDo;
  if (flock(file_, LOCK_EX | LOCK_NB) == 0) return {};
  const int reason = errno;
  close(std::exchange(file_, -1));
  if (reason == EWOULDBLOCK)
    return folder.generic_string() +
           ": another flashdma-tune builds in this folder, or measures what it built there: wait for it, or name "
           "another folder with --build";
  return path.generic_string() + ": the lock of the build cannot be taken: " + std::strerror(reason) +
         "; name another folder with --build";
}

int run_command(const std::vector<std::string>& command, const fs::path& log) {
  const pid_t child = fork();
  if (child < 0) return -1;
  if (child == 0) {
    std::vector<char*> words;
    words.reserve(command.size() + 1);
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
    const int nothing = open("/dev/null", O_RDONLY);
    if (file >= 0 && nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 && dup2(file, STDOUT_FILENO) >= 0 &&
        dup2(file, STDERR_FILENO) >= 0)
      execvp(words[0], words.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

ScratchResult build_candidates(const generator::Configuration& configuration, std::vector<KernelConfig> kernels,
                               const ScratchOptions& options, std::ostream& err, const RunCommand& run) {
  ScratchResult result;
  std::error_code error;
  fs::create_directories(options.folder, error);
  Build build(options, run);
  fs::remove(build.log(), error);
  const auto failed = [&](const std::string& what) {
    result.error = what + "; what was said is in " + build.log().generic_string();
    return result;
  };
  for (;;) {
    if (result.error = write_tree(configuration, kernels, build.generated()); !result.error.empty()) return result;
    if (!build.configure()) return failed("the build of the candidates cannot be configured");
    err << "building " << kernels.size() << " kernels in " << build.build().generic_string() << '\n' << std::flush;
    if (build.build_kernels()) break;
    const std::set<std::string> built = built_kernels(build.build());
    const std::size_t before = kernels.size();
    std::erase_if(kernels, [&](const KernelConfig& kernel) {
      const std::string name = configuration_name(kernel);
      if (built.contains(name)) return false;
      result.refused.push_back(name);
      return true;
    });
    if (kernels.empty()) return failed("none of the candidates can be built");
    if (kernels.size() == before) return failed("the candidates cannot be built");
  }
  if (!build.build_program()) return failed(std::string(kTarget) + " cannot be built with the candidates");
  result.program = build.build() / "runtime/tune" / kTarget;
  return result;
}

}  // namespace flashdma_bwd::tune
