// The functions of flashdma_bwd.h: validate, choose, and hand over. No exception leaves this file.
#include <cuda_runtime_api.h>
#include <flashdma_bwd/flashdma_bwd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "arguments.hpp"
#include "device_traits.hpp"
#include "dispatch_table.hpp"
#include "environment.hpp"
#include "guarded.hpp"
#include "launch/launch.hpp"
#include "log.hpp"
#include "monitoring/monitored_launch.hpp"
#include "plan_view.hpp"
#include "prepared_call.hpp"
#include "reference/reference_backward.hpp"
#include "resolve.hpp"
#include "selection/vocabulary.hpp"
#include "tune_cache/cache_choice.hpp"
#include "tune_cache/first_use.hpp"
#include "tune_cache/tuning.hpp"
#include "workspace_query.hpp"

#ifndef FLASHDMA_BWD_VERSION
#error "the build must define FLASHDMA_BWD_VERSION as a string: major.minor.patch"
#endif

namespace flashdma_bwd {
namespace {

constexpr std::size_t kWorkspaceAlignment = 256;

Check cuda_check(const LaunchResult& result) {
  if (result.error == cudaSuccess) return {};
  cudaGetLastError();  // it is reported here, the next call of the program must not find it
  return Failure{FLASHDMA_BWD_CUDA_ERROR, std::string(result.call) + " failed: " + cudaGetErrorName(result.error) +
                                              ", " + cudaGetErrorString(result.error)};
}

/// For whatever monitors the call.
CallDescription description_of(const PreparedCall& call, std::size_t workspace_bytes, cudaStream_t stream) {
  const Resolution& resolution = call.resolution;
  CallDescription description;
  description.problem = call.request.problem;
  description.tag = call.arguments.tag;
  description.kernel = resolution.kernel->name.data();
  description.kernel_index = static_cast<std::size_t>(resolution.kernel - dispatch_table().kernels.data());
  description.row_file = deciding_place(resolution);
  description.row_line = deciding_line(resolution);
  description.tier = resolution.tier;
  description.cache = call.cache;
  description.workspace_bytes = workspace_bytes;
  description.stream = stream;
  return description;
}

/// The arguments of a plan's functions: with a mask, and without a plan and what is made of one.
Check plan_arguments(const flashdma_bwd_arguments* arguments, flashdma_bwd_arguments& of_mask) {
  if (arguments == nullptr || arguments->struct_size != sizeof(of_mask)) return check_problem(arguments);
  flashdma_bwd_arguments given = *arguments;
  given.plan = nullptr;
  given.schedule = nullptr;
  if (Check failure = take_problem(&given, of_mask)) return failure;
  if (of_mask.mask.data == nullptr) return invalid("mask.data is NULL: a plan is made of a mask");
  return {};
}

Check check_block(const char* what, const void* memory, std::size_t given, std::size_t needed) {
  if (needed == 0) return {};
  if (memory == nullptr)
    return invalid(std::string(what) + " is NULL: " + std::to_string(needed) + " bytes of device memory are needed");
  if (reinterpret_cast<std::uintptr_t>(memory) % kWorkspaceAlignment != 0)
    return invalid(std::string(what) + " must be 256-byte aligned, as memory from cudaMalloc is");
  if (given < needed)
    return Failure{FLASHDMA_BWD_WORKSPACE_TOO_SMALL, std::string(what) + " has " + std::to_string(given) +
                                                         " bytes: " + std::to_string(needed) + " are needed"};
  return {};
}

/// What check_block() found: a kernel that was chosen since the size was asked for may need more.
Check told_of_tuning(const PreparedCall& call, Check failure) {
  if (call.resolution.decision == Decision::cache)
    failure->message += " by the kernel that " + decider_text(call.resolution) +
                        " chose. Ask for the size again after the tuning was set";
  return failure;
}

/// Copies a text into a field of fixed size. Of one that is too long the end is kept, which tells paths apart.
template <std::size_t Size>
void copy_text(char (&field)[Size], std::string_view text) {
  constexpr std::string_view kCut = "...";
  const bool cut = text.size() >= Size;
  if (cut) text.remove_prefix(text.size() - (Size - 1 - kCut.size()));
  char* end = cut ? std::copy(kCut.begin(), kCut.end(), field) : field;
  *std::copy(text.begin(), text.end(), end) = '\0';
}

std::int32_t public_layout(KeyLayout layout) {
  switch (layout) {
    case KeyLayout::compacted:
      return FLASHDMA_BWD_LAYOUT_COMPACTED;
    case KeyLayout::reordered:
      return FLASHDMA_BWD_LAYOUT_REORDERED;
    case KeyLayout::natural:
      break;
  }
  return FLASHDMA_BWD_LAYOUT_NATURAL;
}

void describe(const Request& request, const Resolution& resolution, flashdma_bwd_selection& selection) {
  selection.compute_capability = request.device.compute_capability;
  selection.tier = resolution.tier;
  selection.row_line = deciding_line(resolution);
  copy_text(selection.row_file, deciding_place(resolution));
  copy_text(selection.row_architecture, word(resolution.config.architecture));
  copy_text(selection.kernel, resolution.kernel->name);
  selection.layout = request.problem.masked ? public_layout(request.problem.layout) : -1;
}

/// Where the tiles are that a mask of this layout leaves: the GPU counts them with the order of the keys, and nothing
/// here waits for it.
std::string tiles_text(KeyLayout layout) {
  if (layout != KeyLayout::reordered) return {};
  return "tiles: counted on the GPU with each mask's order of keys; flashdma_bwd_plan_summarize reads them from a "
         "plan\n";
}

/// What the mask's plan is made of, and which rule decides its layout: nothing that selection asks for.
std::string mask_text(const flashdma_bwd_arguments& a) {
  if (a.plan != nullptr)
    return "mask: a plan that is there already\nlayout: " + std::string(word(layout_of_plan(*a.plan))) +
           ", the plan's\n" + tiles_text(layout_of_plan(*a.plan));
  if (a.mask.data == nullptr) return {};
  constexpr std::string_view kEncodings[] = {"bytes, one a pair", "bits, one a pair", "lists of keys",
                                             "an interval of queries a key", "bytes, one a block"};
  std::string text = "mask: " + std::string(kEncodings[a.mask.encoding]);
  if (a.mask.encoding == FLASHDMA_BWD_ENCODING_BLOCKS)
    text += " of " + std::to_string(a.mask_block_q) + " queries x " + std::to_string(a.mask_block_k) + " keys";
  const LayoutChoice choice = layout_choice_of(a);
  return text + ", " + std::to_string(a.mask.batch) + " x " + std::to_string(a.mask.heads) +
         " masks\nlayout: " + std::string(word(choice.layout)) + " (" + layout_rule_text(choice.rule) + ")\n" +
         tiles_text(choice.layout);
}

std::string explanation(const flashdma_bwd_arguments* arguments, const flashdma_bwd_device* device) {
  flashdma_bwd_arguments a;
  if (const Check failure = take_problem(arguments, a)) return "the arguments are refused: " + failure->message + '\n';
  if (has_no_rows(a)) return "there are neither queries nor keys: no kernel is chosen\n";
  a = without_idle_parts(a);
  Request request;
  if (const Check failure = take_request(a, request)) return "the arguments are refused: " + failure->message + '\n';
  if (const Check failure = device_traits(device, request.device)) return failure->message + '\n';
  if (Resolution resolution; !choose_kernel(dispatch_table(), environment(), tuning(), request, resolution))
    if (const Check failure = check_schedule_fits(a, request, resolution.config))
      return "the arguments are refused: " + failure->message + '\n';
  return mask_text(a) + explain_choice(dispatch_table(), environment(), tuning(), request);
}

/// Whether a backward on this GPU would run kernels of sm90, and launch early (BackwardParameters::early_launches), so
/// that the building of a plan may, too.
bool runs_sm90(const DeviceTraits& device) {
  constexpr Architecture kSm90 = Architecture::sm90;
  return dispatch_table().compiled.contains(kSm90) && tier_of(kSm90, device.compute_capability) == 0 &&
         environment().architecture.value_or(kSm90) == kSm90;
}

}  // namespace
}  // namespace flashdma_bwd

using namespace flashdma_bwd;

const char* flashdma_bwd_version(void) {
  return FLASHDMA_BWD_VERSION;
}

const char* flashdma_bwd_table_hash(void) {
  return dispatch_table().hash.data();
}

const char* flashdma_bwd_code_name(flashdma_bwd_code code) {
  switch (code) {
    case FLASHDMA_BWD_OK:
      return "ok";
    case FLASHDMA_BWD_INVALID_ARGUMENT:
      return "invalid argument";
    case FLASHDMA_BWD_UNSUPPORTED:
      return "unsupported";
    case FLASHDMA_BWD_UNSUPPORTED_ARCHITECTURE:
      return "unsupported architecture";
    case FLASHDMA_BWD_NOT_COMPILED:
      return "not compiled";
    case FLASHDMA_BWD_WORKSPACE_TOO_SMALL:
      return "workspace too small";
    case FLASHDMA_BWD_CUDA_ERROR:
      return "CUDA error";
    case FLASHDMA_BWD_OVERRIDE_ERROR:
      return "override error";
  }
  return "unknown code";
}

const char* flashdma_bwd_last_message(void) {
  const LastMessage& message = last_message();
  return message.fixed != nullptr ? message.fixed : message.text.c_str();
}

void flashdma_bwd_arguments_init(flashdma_bwd_arguments* arguments) {
  if (arguments == nullptr) return;
  *arguments = {};
  arguments->struct_size = sizeof(flashdma_bwd_arguments);
  arguments->window_left = arguments->window_right = -1;
}

flashdma_bwd_code flashdma_bwd_workspace_size(const flashdma_bwd_arguments* arguments, size_t* bytes) {
  return guarded([&]() -> Check {
    if (Check failure = check_pointer(bytes, "bytes")) return failure;
    PreparedCall call;
    if (Check failure = prepare_request(arguments, call)) return failure;
    *bytes = 0;
    if (call.idle) return {};
    const auto bytes_of = [&](const KernelConfig& config) {
      return backward_workspace_bytes(call.arguments, config, call.request.device, call.piece_steps);
    };
    return largest_workspace(dispatch_table(), environment(), tuning(), call.request,
                             is_copied_bias(call.arguments, true), bytes_of, *bytes);
  });
}

flashdma_bwd_code flashdma_bwd_backward(const flashdma_bwd_arguments* arguments, void* workspace,
                                        size_t workspace_bytes, flashdma_bwd_stream stream) {
  return guarded([&]() -> Check {
    PreparedCall call;
    if (Check failure = prepare_call(arguments, call)) return failure;
    if (Check failure = check_memory(call.arguments)) return failure;
    if (call.idle) return cuda_check(launch_without_rows(call.arguments, stream));
    std::size_t needed = call.workspace_bytes();
    if (Check failure = check_block("workspace", workspace, workspace_bytes, needed))
      return told_of_tuning(call, std::move(failure));
    if (call.cache == CacheAnswer::unknown) {
      if (Check failure = measure_first_use(call.tuning, dispatch_table(), environment(), call.request, call.arguments,
                                            workspace, workspace_bytes, stream, call.resolution))
        return failure;
      needed = call.workspace_bytes();
    }
    const KernelEntry& kernel = *call.resolution.kernel;
    log_resolution(environment(), call.request, call.resolution);
    return cuda_check(monitored_launch([&] { return description_of(call, needed, stream); },
                                       [&] {
                                         return launch_backward(call.arguments, kernel, call.request.device,
                                                                call.piece_steps, workspace, stream);
                                       }));
  });
}

flashdma_bwd_code flashdma_bwd_prepare(const flashdma_bwd_arguments* arguments) {
  return guarded([&]() -> Check {
    PreparedCall call;
    if (Check failure = prepare_call(arguments, call)) return failure;
    if (call.idle) return {};
    log_resolution(environment(), call.request, call.resolution);
    return cuda_check(prepare_backward(call.arguments, *call.resolution.kernel));
  });
}

flashdma_bwd_code flashdma_bwd_backward_reference(const flashdma_bwd_arguments* arguments, int32_t threads) {
  return guarded([&]() -> Check {
    flashdma_bwd_arguments a;
    if (Check failure = take_problem(arguments, a)) return failure;
    if (threads < 0)
      return invalid("threads is " + std::to_string(threads) + ": it must be at least 0; 0 uses every hardware thread");
    if (Check failure = check_memory(a)) return failure;
    // Here the mask is read, whether there is a plan of it or not.
    if (a.mask.data != nullptr)
      if (Check failure = check_mask_memory(a)) return failure;
    if (Check failure = check_host_offsets(a)) return failure;
    if (Check failure = check_host_mask(a)) return failure;
    if (has_no_rows(a)) a = without_idle_parts(a);
    std::string message;
    const flashdma_bwd_code code = reference_backward(a, threads, message);
    if (code == FLASHDMA_BWD_OK) return {};
    return Failure{code, std::move(message)};
  });
}

flashdma_bwd_code flashdma_bwd_plan_size(const flashdma_bwd_arguments* arguments, size_t* bytes) {
  return guarded([&]() -> Check {
    if (Check failure = check_pointer(bytes, "bytes")) return failure;
    flashdma_bwd_arguments of_mask;
    if (Check failure = plan_arguments(arguments, of_mask)) return failure;
    *bytes = mask_plan_bytes(of_mask);
    return {};
  });
}

flashdma_bwd_code flashdma_bwd_plan_build(const flashdma_bwd_arguments* arguments, void* memory, size_t bytes,
                                          flashdma_bwd_stream stream, flashdma_bwd_mask_plan* plan) {
  return guarded([&]() -> Check {
    if (Check failure = check_pointer(plan, "plan")) return failure;
    flashdma_bwd_arguments of_mask;
    if (Check failure = plan_arguments(arguments, of_mask)) return failure;
    if (Check failure = check_mask_memory(of_mask)) return failure;
    if (Check failure = check_block("memory", memory, bytes, mask_plan_bytes(of_mask))) return failure;
    DeviceTraits device;
    if (Check failure = current_device_traits(device)) return failure;
    if (Check failure = cuda_check(build_mask_plan(of_mask, device, runs_sm90(device), memory, bytes, stream, plan)))
      return failure;
    plan->rows = of_mask.mask.rows;
    plan->encoding = of_mask.mask.encoding;
    return {};
  });
}

flashdma_bwd_code flashdma_bwd_schedule_size(const flashdma_bwd_arguments* arguments, size_t* bytes) {
  return guarded([&]() -> Check {
    if (Check failure = check_pointer(bytes, "bytes")) return failure;
    PreparedCall call;
    if (Check failure = prepare_schedule(arguments, call)) return failure;
    *bytes = call.schedule().bytes;
    return {};
  });
}

flashdma_bwd_code flashdma_bwd_schedule_build(const flashdma_bwd_arguments* arguments, void* memory, size_t bytes,
                                              flashdma_bwd_stream stream, flashdma_bwd_schedule* schedule) {
  return guarded([&]() -> Check {
    if (Check failure = check_pointer(schedule, "schedule")) return failure;
    PreparedCall call;
    if (Check failure = prepare_schedule(arguments, call)) return failure;
    const ScheduleShape shape = call.schedule();
    if (Check failure = check_block("memory", memory, bytes, shape.bytes))
      return told_of_tuning(call, std::move(failure));
    flashdma_bwd_schedule built{};
    built.struct_size = sizeof built;
    built.building = arguments->plan->building;
    built.memory = memory;
    built.bytes = shape.bytes;
    built.call = shape.hash;
    built.kernel = -1;
    if (!call.idle && call.arguments.plan != nullptr) {
      const Resolution& resolution = call.resolution;
      built.kernel = static_cast<std::int32_t>(resolution.kernel - dispatch_table().kernels.data());
      if (Check failure = cuda_check(
              build_schedule(call.arguments, resolution.config, call.request.device, call.piece_steps, memory, stream)))
        return failure;
    }
    *schedule = built;
    return {};
  });
}

flashdma_bwd_code flashdma_bwd_plan_view(const flashdma_bwd_mask_plan* plan, flashdma_bwd_plan_parts* parts) {
  return guarded([&]() -> Check {
    if (Check failure = check_pointer(parts, "parts")) return failure;
    if (Check failure =
            check_struct_size("parts", "flashdma_bwd_plan_parts", parts->struct_size, sizeof(flashdma_bwd_plan_parts)))
      return failure;
    return view_plan(plan, *parts);
  });
}

flashdma_bwd_code flashdma_bwd_plan_summarize(const flashdma_bwd_mask_plan* plan, const flashdma_bwd_key_order* orders,
                                              flashdma_bwd_plan_summary* summary) {
  return guarded([&]() -> Check {
    if (Check failure = check_pointer(summary, "summary")) return failure;
    if (Check failure = check_struct_size("summary", "flashdma_bwd_plan_summary", summary->struct_size,
                                          sizeof(flashdma_bwd_plan_summary)))
      return failure;
    return summarize_plan(plan, orders, *summary);
  });
}

flashdma_bwd_code flashdma_bwd_select(const flashdma_bwd_arguments* arguments, const flashdma_bwd_device* device,
                                      flashdma_bwd_selection* selection) {
  return guarded([&]() -> Check {
    if (Check failure = check_pointer(selection, "selection")) return failure;
    if (Check failure = check_struct_size("selection", "flashdma_bwd_selection", selection->struct_size,
                                          sizeof(flashdma_bwd_selection)))
      return failure;
    flashdma_bwd_arguments a;
    if (Check failure = take_problem(arguments, a)) return failure;
    if (has_no_rows(a)) return unsupported("there are neither queries nor keys: no kernel is chosen");
    Request request;
    a = without_idle_parts(a);
    if (Check failure = take_request(a, request)) return failure;
    if (Check failure = device_traits(device, request.device)) return failure;
    Resolution resolution;
    if (Check failure = choose_kernel(dispatch_table(), environment(), tuning(), request, resolution)) return failure;
    if (Check failure = check_schedule_fits(a, request, resolution.config)) return failure;
    *selection = {};
    selection->struct_size = sizeof(flashdma_bwd_selection);
    describe(request, resolution, *selection);
    return {};
  });
}

size_t flashdma_bwd_explain(const flashdma_bwd_arguments* arguments, const flashdma_bwd_device* device, char* text,
                            size_t capacity) {
  size_t length = 0;
  guarded([&]() -> Check {
    const std::string explained = explanation(arguments, device);
    length = explained.size();
    if (text != nullptr && capacity > 0) {
      const size_t copied = std::min(length, capacity - 1);
      std::memcpy(text, explained.data(), copied);
      text[copied] = '\0';
    }
    return {};
  });
  return length;
}

size_t flashdma_bwd_kernel_count(void) {
  return dispatch_table().kernels.size();
}

const char* flashdma_bwd_kernel_name(size_t index) {
  const auto kernels = dispatch_table().kernels;
  return index < kernels.size() ? kernels[index].name.data() : nullptr;
}

const char* flashdma_bwd_architecture_name(size_t index) {
  const ArchitectureSet compiled = dispatch_table().compiled;
  for (const Architecture architecture : kArchitectures)
    if (compiled.contains(architecture) && index-- == 0) return word(architecture).data();
  // The Ampere family's libraries carry its PTX, for newer GPUs.
  const bool ampere = compiled.contains(Architecture::sm80) || compiled.contains(Architecture::sm86) ||
                      compiled.contains(Architecture::sm89);
  return ampere && index == 0 ? "compute_80" : nullptr;
}
