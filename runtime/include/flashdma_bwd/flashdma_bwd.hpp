// The C++ API of flashdma_bwd: the backward pass of dynamic mask attention on NVIDIA GPUs.
//
// A thin layer over the C ABI (flashdma_bwd.h, which states the mathematics, shapes, strides and units): the same
// argument block, with a status that owns its message. Nothing here throws, except std::bad_alloc for a message.
#pragma once

#include <flashdma_bwd/flashdma_bwd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flashdma_bwd {

using Code = flashdma_bwd_code;
using Tensor = flashdma_bwd_tensor;
using PairTensor = flashdma_bwd_pair_tensor;
using MaskPlan = flashdma_bwd_mask_plan;
using Schedule = flashdma_bwd_schedule;
using PlanParts = flashdma_bwd_plan_parts;
using PlanSummary = flashdma_bwd_plan_summary;
using Selection = flashdma_bwd_selection;
using Device = flashdma_bwd_device;
using Stream = flashdma_bwd_stream;
using TuningState = flashdma_bwd_tuning_state;
using CallReport = flashdma_bwd_call_report;
using Counters = flashdma_bwd_counters;

/// The arguments of one backward pass, with every field at its default.
struct Arguments : flashdma_bwd_arguments {
  Arguments() { flashdma_bwd_arguments_init(this); }
};

/// The outcome of a call.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  bool ok() const { return code_ == FLASHDMA_BWD_OK; }
  explicit operator bool() const { return ok(); }
  Code code() const { return code_; }
  /// What went wrong, where, and what to do; empty when ok.
  const std::string& message() const { return message_; }

 private:
  Code code_ = FLASHDMA_BWD_OK;
  std::string message_;
};

namespace detail {
inline Status status(Code code) {
  return code == FLASHDMA_BWD_OK ? Status() : Status(code, flashdma_bwd_last_message());
}
}  // namespace detail

/// Bytes of device memory that `backward` needs.
inline Status workspace_size(const Arguments& arguments, std::size_t& bytes) {
  return detail::status(flashdma_bwd_workspace_size(&arguments, &bytes));
}

/// Enqueues the backward on `stream`. `workspace` is 256-byte aligned device memory of at least `workspace_size` bytes.
inline Status backward(const Arguments& arguments, void* workspace, std::size_t workspace_bytes, Stream stream) {
  return detail::status(flashdma_bwd_backward(&arguments, workspace, workspace_bytes, stream));
}

/// Loads the kernels that these arguments select, so that the first backward is as fast as the next and can be
/// captured.
inline Status prepare(const Arguments& arguments) {
  return detail::status(flashdma_bwd_prepare(&arguments));
}

/// The CPU backend in double precision: the same arguments in host memory. `threads` 0 means all.
inline Status backward_reference(const Arguments& arguments, int threads = 0) {
  return detail::status(flashdma_bwd_backward_reference(&arguments, threads));
}

/// Device bytes of the plan of `arguments.mask`.
inline Status plan_size(const Arguments& arguments, std::size_t& bytes) {
  return detail::status(flashdma_bwd_plan_size(&arguments, &bytes));
}

/// Enqueues the building of a plan in caller-owned device memory.
inline Status plan_build(const Arguments& arguments, void* memory, std::size_t bytes, Stream stream, MaskPlan& plan) {
  return detail::status(flashdma_bwd_plan_build(&arguments, memory, bytes, stream, &plan));
}

/// Where the parts of a plan lie in its device memory.
inline Status plan_view(const MaskPlan& plan, PlanParts& parts) {
  parts.struct_size = sizeof(PlanParts);
  return detail::status(flashdma_bwd_plan_view(&plan, &parts));
}

/// The tiles that a reordered plan promises. `orders`: those at the beginning of the plan's memory, copied to the host.
inline Status plan_summarize(const MaskPlan& plan, const flashdma_bwd_key_order* orders, PlanSummary& summary) {
  summary.struct_size = sizeof(PlanSummary);
  return detail::status(flashdma_bwd_plan_summarize(&plan, orders, &summary));
}

/// Device bytes of the schedule of a call with `arguments.plan`.
inline Status schedule_size(const Arguments& arguments, std::size_t& bytes) {
  return detail::status(flashdma_bwd_schedule_size(&arguments, &bytes));
}

/// Enqueues the building of a schedule in caller-owned device memory.
inline Status schedule_build(const Arguments& arguments, void* memory, std::size_t bytes, Stream stream,
                             Schedule& schedule) {
  return detail::status(flashdma_bwd_schedule_build(&arguments, memory, bytes, stream, &schedule));
}

/// What would run on the current device, or on `device`.
inline Status select(const Arguments& arguments, Selection& selection, const Device* device = nullptr) {
  selection.struct_size = sizeof(Selection);
  return detail::status(flashdma_bwd_select(&arguments, device, &selection));
}

/// Why: every candidate row in order, with the condition that failed.
inline std::string explain(const Arguments& arguments, const Device* device = nullptr) {
  // What is learned in another thread meanwhile may make it longer.
  std::string text;
  for (std::size_t length = flashdma_bwd_explain(&arguments, device, nullptr, 0); length != text.size();) {
    text.resize(length);
    length = flashdma_bwd_explain(&arguments, device, text.data(), text.size() + 1);
  }
  return text;
}

/// Canonical names of the compiled kernels, sorted.
inline std::vector<std::string_view> kernels() {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < flashdma_bwd_kernel_count(); ++i) names.emplace_back(flashdma_bwd_kernel_name(i));
  return names;
}

/// The compiled architectures.
inline std::vector<std::string_view> architectures() {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; flashdma_bwd_architecture_name(i) != nullptr; ++i)
    names.emplace_back(flashdma_bwd_architecture_name(i));
  return names;
}

/// What runs before and after the launch of each backward: none of it by default. See flashdma_bwd_hook.
struct Hooks : flashdma_bwd_hooks {
  Hooks() : flashdma_bwd_hooks{sizeof(flashdma_bwd_hooks), nullptr, nullptr, nullptr} {}
};

/// Replaces the process's hooks. Safe while other threads launch; the hooks of before have run when it returns.
inline Status set_hooks(const Hooks& hooks) {
  return detail::status(flashdma_bwd_set_hooks(&hooks));
}

/// Leaves the process without hooks. What their `user` pointed to may be freed then.
inline Status clear_hooks() {
  return detail::status(flashdma_bwd_set_hooks(nullptr));
}

/// Sets what is monitored beside hooks: FLASHDMA_BWD_MONITOR_* flags.
inline Status set_monitoring(std::uint32_t flags) {
  return detail::status(flashdma_bwd_set_monitoring(flags));
}

/// The flags that are set.
inline std::uint32_t monitoring() {
  return flashdma_bwd_monitoring();
}

/// How the library learns which kernel is the fastest: not at all by default. See flashdma_bwd_tuning.
struct Tuning : flashdma_bwd_tuning {
  Tuning() { flashdma_bwd_tuning_init(this); }
};

/// Replaces what the environment or an earlier call has set, and reads the cache.
inline Status set_tuning(const Tuning& tuning) {
  return detail::status(flashdma_bwd_set_tuning(&tuning));
}

/// No more measurements: from now on choices are what they are.
inline Status freeze_tuning() {
  return detail::status(flashdma_bwd_freeze_tuning());
}

/// The choices for the current device, or for `device`, and their hash, by which the ranks of a job compare them.
inline Status get_tuning(TuningState& state, const Device* device = nullptr) {
  state.struct_size = sizeof(TuningState);
  return detail::status(flashdma_bwd_get_tuning(device, &state));
}

/// What was called since counters were first switched on or reset; waits for nothing.
inline Status read_counters(Counters& counters) {
  counters.struct_size = sizeof(Counters);
  return detail::status(flashdma_bwd_read_counters(&counters));
}

/// The counters of one configuration.
struct KernelCounters {
  std::string_view kernel;  ///< canonical name
  std::uint64_t calls = 0;
  std::uint64_t timed_calls = 0;
  double milliseconds = 0;  ///< of the timed calls
};

/// Of the configurations that were called, sorted by name. Times are in it as far as calls and `read_counters` have
/// found them.
inline std::vector<KernelCounters> kernel_counters() {
  std::vector<KernelCounters> called;
  flashdma_bwd_kernel_counters counters{};
  counters.struct_size = sizeof counters;
  for (std::size_t i = 0; i < flashdma_bwd_kernel_count(); ++i)
    if (flashdma_bwd_read_kernel_counters(i, &counters) == FLASHDMA_BWD_OK && counters.calls != 0)
      called.push_back({flashdma_bwd_kernel_name(i), counters.calls, counters.timed_calls, counters.milliseconds});
  return called;
}

/// Sets all counters to 0.
inline Status reset_counters() {
  return detail::status(flashdma_bwd_reset_counters());
}

}  // namespace flashdma_bwd
