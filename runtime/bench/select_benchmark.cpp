// How long the choice of a kernel takes. See select_benchmark.hpp.
//
// Two figures: select_kernel, the pure function over the table's rows, and flashdma_bwd_select, which also checks the
// arguments, reads the overrides and copies names. A shared library hides the first.
#include "select_benchmark.hpp"

#include <cstdint>
#include <cstdio>
#include <flashdma_bwd/flashdma_bwd.hpp>

#include "call_time.hpp"

#if !defined(FLASHDMA_BWD_SHARED)
#include "dispatch_table.hpp"
#include "selection/select_kernel.hpp"
#endif

namespace flashdma_bwd::bench {
namespace {

constexpr Device kDevices[] = {
    {80, 108, 166912}, {86, 82, 101376}, {89, 128, 101376}, {90, 132, 232448}, {100, 148, 232448}};
constexpr std::int32_t kHeadDims[] = {32, 64, 96, 128, 192, 256};

// A line for each GPU, a column for each head dim. `time` gives nanoseconds, or a negative number: shown as a dash.
// False if all are.
template <class Time>
bool print_table(const char* heading, const Time& time) {
  bool any = false;
  std::printf("%s, nanoseconds a call\n%-24s", heading, "head dim");
  for (const std::int32_t head_dim : kHeadDims) std::printf("%8d", head_dim);
  for (const Device& device : kDevices) {
    std::printf("\ncompute capability %-5d", device.compute_capability);
    for (const std::int32_t head_dim : kHeadDims) {
      const double value = time(device, head_dim);
      if (value < 0) {
        std::printf("%8s", "-");
        continue;
      }
      std::printf("%8.1f", value);
      any = true;
    }
  }
  std::printf("\n");
  return any;
}

// Of a valid call, what selection reads: sizes, flags and which tensors there are.
Arguments dense_arguments(std::int32_t head_dim) {
  alignas(16) static std::uint64_t storage[2];  // stands for tensors: addresses are checked, contents are never read
  Arguments arguments;
  arguments.data_type = FLASHDMA_BWD_BF16;
  arguments.batch = 2;
  arguments.heads = arguments.heads_kv = 16;
  arguments.head_dim = head_dim;
  arguments.seqlen_q = arguments.seqlen_k = 4096;
  arguments.causal = 1;
  for (Tensor* tensor : {&arguments.q, &arguments.k, &arguments.v, &arguments.out, &arguments.d_out, &arguments.d_q,
                         &arguments.d_k, &arguments.d_v})
    *tensor = {storage, 4096 * 16 * head_dim, 16 * head_dim, head_dim};
  arguments.lse = reinterpret_cast<const float*>(storage);
  arguments.lse_stride_row = 1;
  arguments.lse_stride_head = 4096;
  arguments.lse_stride_batch = 16 * 4096;
  return arguments;
}

}  // namespace

bool print_select_benchmark() {
#if !defined(FLASHDMA_BWD_SHARED)
  const bool selected = print_table("select_kernel", [](const Device& device, std::int32_t head_dim) {
    const DeviceTraits traits{device.compute_capability, device.sm_count, device.shared_memory_per_block};
    Problem problem;
    problem.head_dim = head_dim;
    problem.causal = true;
    problem.batch = 2;
    problem.heads = problem.heads_kv = 16;
    problem.seqlen_q = problem.seqlen_k = 4096;
    return nanoseconds(
        [&] { return select_kernel(traits, problem, dispatch_table().rows).status == SelectionStatus::ok; });
  });
  if (!selected) {
    std::fprintf(stderr, "flashdma-bench: select_kernel found no kernel\n");
    return false;
  }
#endif
  if (kernels().empty()) {
    std::printf("flashdma_bwd_select: this build has no kernels to select\n");
    return true;
  }
  const bool any = print_table("flashdma_bwd_select", [](const Device& device, std::int32_t head_dim) {
    const Arguments arguments = dense_arguments(head_dim);
    Selection selection{};
    return nanoseconds([&] { return select(arguments, selection, &device).ok(); });
  });
  if (!any) std::fprintf(stderr, "flashdma-bench: select: %s\n", flashdma_bwd_last_message());
  return any;
}

}  // namespace flashdma_bwd::bench
