// Hooks, and what a launch costs that nobody watches. Launches are pretended: the library's are tested on a GPU.
#include "monitoring/hooks.hpp"

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "allocations.hpp"
#include "monitoring/monitored_launch.hpp"
#include "support/catch.hpp"
#include "tables.hpp"

namespace flashdma_bwd::testing {
namespace {

CallDescription description() {
  CallDescription call;
  call.problem = ordinary_problem();
  call.tag = 0x1234567890abcdef;
  call.kernel = "bwd_kernel";
  call.row_file = "configs/tables/sm90.yaml";
  call.row_line = 17;
  call.tier = 1;
  call.workspace_bytes = 4096;
  call.stream = reinterpret_cast<cudaStream_t>(0x10);
  return call;
}

/// A launch that enqueues `kernels`, or fails.
LaunchResult pretended_launch(int kernels = 4, cudaError_t error = cudaSuccess) {
  return monitored_launch(description, [&] { return LaunchResult{error, "main kernel", kernels}; });
}

flashdma_bwd_hooks no_hooks() {
  return {sizeof(flashdma_bwd_hooks), nullptr, nullptr, nullptr};
}

void require_hooks(const flashdma_bwd_hooks& hooks) {
  REQUIRE_FALSE(set_hooks(&hooks));
}

/// What hooks were told, as text.
struct Journal {
  std::vector<std::string> lines;
  flashdma_bwd_hooks hooks() {
    flashdma_bwd_hooks hooks = no_hooks();
    hooks.before = [](const flashdma_bwd_call_report* report, void* user) { write(user, "before ", *report); };
    hooks.after = [](const flashdma_bwd_call_report* report, void* user) { write(user, "after ", *report); };
    hooks.user = this;
    return hooks;
  }
  static void write(void* user, const std::string& when, const flashdma_bwd_call_report& r) {
    static_cast<Journal*>(user)->lines.push_back(
        when + r.problem + " tag " + std::to_string(r.tag) + ' ' + r.kernel + ' ' + r.row_file + ':' +
        std::to_string(r.row_line) + " tier " + std::to_string(r.tier) + ' ' + std::to_string(r.workspace_bytes) +
        " bytes, code " + std::to_string(r.code) + ", " + std::to_string(r.launches) + " kernels, stream " +
        std::to_string(reinterpret_cast<std::uintptr_t>(r.stream)) + ", size " + std::to_string(r.struct_size));
  }
};

/// No hooks and no monitoring, before and after a test.
struct Quiet {
  Quiet() { silence(); }
  ~Quiet() { silence(); }
  static void silence() {
    static_cast<void>(set_hooks(nullptr));
    set_monitor_flags(0);
  }
};

}  // namespace

TEST_CASE("a launch that nobody watches is launched and no more") {
  const Quiet quiet;
  REQUIRE(monitoring_switches.load() == 0);
  int described = 0;
  int launched = 0;
  const std::size_t allocated = allocations();
  const LaunchResult result = monitored_launch(
      [&] {
        ++described;
        return description();
      },
      [&] {
        ++launched;
        return LaunchResult{cudaSuccess, nullptr, 3};
      });
  CHECK(allocations() == allocated);
  CHECK(described == 0);
  CHECK(launched == 1);
  CHECK(result.kernels == 3);
}

TEST_CASE("hooks are told of a call before and after its launch") {
  const Quiet quiet;
  Journal journal;
  require_hooks(journal.hooks());
  bool told_before_launch = false;
  monitored_launch(description, [&] {
    told_before_launch = journal.lines.size() == 1;
    return LaunchResult{cudaSuccess, nullptr, 4};
  });
  CHECK(told_before_launch);
  const std::string common =
      "bf16 d=128 b=2 h=16 hk=4 sq=4096 sk=4096 tag 1311768467294899695 bwd_kernel configs/tables/sm90.yaml:17 tier 1 "
      "4096 bytes, code 0, ";
  const std::string end = " kernels, stream 16, size " + std::to_string(sizeof(flashdma_bwd_call_report));
  CHECK(journal.lines == std::vector<std::string>{"before " + common + "0" + end, "after " + common + "4" + end});
}

TEST_CASE("the hook after a launch that failed has its code and what was enqueued") {
  const Quiet quiet;
  static std::int32_t code = -1;
  static std::int32_t launches = -1;
  flashdma_bwd_hooks hooks = no_hooks();
  hooks.after = [](const flashdma_bwd_call_report* report, void*) {
    code = report->code;
    launches = report->launches;
  };
  require_hooks(hooks);
  CHECK(pretended_launch(2, cudaErrorInvalidValue).error == cudaErrorInvalidValue);
  CHECK(code == FLASHDMA_BWD_CUDA_ERROR);
  CHECK(launches == 2);
}

TEST_CASE("hooks that are replaced or cleared are told nothing more") {
  const Quiet quiet;
  Journal first;
  Journal second;
  require_hooks(first.hooks());
  pretended_launch();
  require_hooks(second.hooks());
  pretended_launch();
  REQUIRE_FALSE(set_hooks(nullptr));
  pretended_launch();
  CHECK(first.lines.size() == 2);
  CHECK(second.lines.size() == 2);
  require_hooks(no_hooks());
  CHECK(monitoring_switches.load() == 0);
}

TEST_CASE("a hook's own calls are not reported, and it cannot set hooks") {
  const Quiet quiet;
  static Check refused;
  static int reports = 0;
  refused = {};
  reports = 0;
  flashdma_bwd_hooks hooks = no_hooks();
  hooks.before = [](const flashdma_bwd_call_report*, void*) {
    ++reports;
    refused = set_hooks(nullptr);
    pretended_launch();
  };
  require_hooks(hooks);
  pretended_launch();
  CHECK(reports == 1);
  REQUIRE(refused);
  CHECK(refused->code == FLASHDMA_BWD_INVALID_ARGUMENT);
  CHECK(refused->message.find("from within a hook") != std::string::npos);
  pretended_launch();
  CHECK(reports == 2);
}

TEST_CASE("hooks can be set and cleared while threads launch") {
  const Quiet quiet;
  /// Alive while its hooks may run; each call is told to it twice.
  struct Listener {
    std::atomic<bool> alive{true};
    std::atomic<int> before{0};
    std::atomic<int> after{0};
  };
  static std::atomic<int> told_to_the_dead{0};
  told_to_the_dead = 0;
  flashdma_bwd_hooks hooks = no_hooks();
  hooks.before = [](const flashdma_bwd_call_report*, void* user) {
    auto& listener = *static_cast<Listener*>(user);
    if (!listener.alive) ++told_to_the_dead;
    ++listener.before;
  };
  hooks.after = [](const flashdma_bwd_call_report*, void* user) {
    auto& listener = *static_cast<Listener*>(user);
    if (!listener.alive) ++told_to_the_dead;
    ++listener.after;
  };
  std::atomic<bool> stop{false};
  std::atomic<int> launched{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      while (!stop) {
        pretended_launch();
        ++launched;
      }
    });
  int unpaired = 0;
  int told = 0;
  for (int i = 0; i < 300 || (told == 0 && i < 100000); ++i) {
    Listener listener;
    hooks.user = &listener;
    if (set_hooks(&hooks)) break;
    std::this_thread::yield();
    if (set_hooks(nullptr)) break;
    listener.alive = false;
    unpaired += listener.before != listener.after ? 1 : 0;
    told += listener.before;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(launched > 0);
  CHECK(told > 0);
  CHECK(unpaired == 0);
  CHECK(told_to_the_dead == 0);
}

TEST_CASE("hooks of another size are refused and those that are set stay") {
  const Quiet quiet;
  Journal journal;
  require_hooks(journal.hooks());
  flashdma_bwd_hooks wrong = no_hooks();
  wrong.struct_size = 8;
  const Check failure = set_hooks(&wrong);
  REQUIRE(failure);
  CHECK(failure->code == FLASHDMA_BWD_INVALID_ARGUMENT);
  CHECK(failure->message.find("hooks.struct_size is 8: set it to sizeof(flashdma_bwd_hooks)") == 0);
  pretended_launch();
  CHECK(journal.lines.size() == 2);
}

TEST_CASE("ranges and hooks can be on at once") {
  const Quiet quiet;
  Journal journal;
  set_monitor_flags(FLASHDMA_BWD_MONITOR_NVTX);
  pretended_launch();  // no profiler is there to see the range
  require_hooks(journal.hooks());
  pretended_launch();
  CHECK(monitoring_switches.load() == (FLASHDMA_BWD_MONITOR_NVTX | kMonitorHooks));
  CHECK(journal.lines.size() == 2);
}

}  // namespace flashdma_bwd::testing
