// What monitoring costs a launch on the CPU. See monitoring_benchmark.hpp.
//
// The launch does nothing, so that all that is left is what stands around it. A shared library hides that path.
#include "monitoring_benchmark.hpp"

#include <cstdio>

#if defined(FLASHDMA_BWD_SHARED)

bool flashdma_bwd::bench::print_monitoring_benchmark() {
  std::printf("a shared library hides the launch path: build with BUILD_SHARED_LIBS=OFF\n");
  return true;
}

#else

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <flashdma_bwd/flashdma_bwd.hpp>
#include <string>

#include "call_time.hpp"
#include "monitoring/monitored_launch.hpp"
#include "monitoring/problem_capture.hpp"

namespace flashdma_bwd::bench {
namespace {

CallDescription description() {
  CallDescription call;
  call.problem.head_dim = 128;
  call.problem.causal = true;
  call.problem.batch = 2;
  call.problem.heads = call.problem.heads_kv = 16;
  call.problem.seqlen_q = call.problem.seqlen_k = 4096;
  call.kernel = "bwd_sm90_d128_bf16_hopper_m64n128_wg2_q2_do2_ds2_r24c240_nobias";
  call.row_file = "configs/tables/sm90.yaml";
  return call;
}

// Not inlined, as no launch is.
[[gnu::noinline]] LaunchResult empty_launch() {
  asm volatile("" ::: "memory");
  return {};
}

bool monitored() {
  return monitored_launch(description, empty_launch).error == cudaSuccess;
}

void print_line(const char* what, double value, double base) {
  std::printf("%-44s%8.1f%+10.1f\n", what, value, value - base);
}

// With these flags, and nothing else. False if they cannot be set.
bool print_flags(const char* what, std::uint32_t flags, double base) {
  if (const Status status = set_monitoring(flags); !status) {
    std::fprintf(stderr, "flashdma-bench: %s: %s\n", what, status.message().c_str());
    return false;
  }
  print_line(what, nanoseconds(monitored), base);
  return static_cast<bool>(set_monitoring(0));
}

bool print_hooks(double base) {
  Hooks hooks;
  hooks.before = hooks.after = [](const CallReport*, void*) {};
  if (!set_hooks(hooks)) return false;
  print_line("two hooks that do nothing", nanoseconds(monitored), base);
  return static_cast<bool>(clear_hooks());
}

// A problem that was seen before: the first time, a file is written.
void print_capture(double base) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("flashdma-bench-capture-" + std::to_string(getpid()));
  ProblemCapture capture(file.string());
  const CallDescription call = description();
  const ProblemTextBuffer text(call.problem);
  const double time = nanoseconds([&] { return capture.add(call.problem, text.view()).empty(); });
  print_line("capture of a problem that is there", base + time, base);
  std::filesystem::remove(file);
}

}  // namespace

bool print_monitoring_benchmark() {
  if (monitored(); monitoring_switches.load() != 0) {
    std::fprintf(stderr, "flashdma-bench: unset FLASHDMA_BWD_NVTX and FLASHDMA_BWD_CAPTURE, which are on already\n");
    return false;
  }
  const double bare = nanoseconds([] { return empty_launch().error == cudaSuccess; });
  std::printf("%-44s%8s%10s\n", "around a launch that does nothing", "ns", "more");
  print_line("the launch alone", bare, bare);
  print_line("nothing monitored", nanoseconds(monitored), bare);
  bool fine = print_hooks(bare);
  fine = print_flags("NVTX ranges", FLASHDMA_BWD_MONITOR_NVTX, bare) && fine;
  fine = print_flags("counters", FLASHDMA_BWD_MONITOR_COUNTERS, bare) && fine;
  print_capture(bare);
  if (!set_monitoring(FLASHDMA_BWD_MONITOR_TIMING)) {
    std::printf("%-44s%8s\n", "counters and times", "no GPU");
    return fine;
  }
  return print_flags("counters and times", FLASHDMA_BWD_MONITOR_TIMING, bare) && fine;
}

}  // namespace flashdma_bwd::bench

#endif
