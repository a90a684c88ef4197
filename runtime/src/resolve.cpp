// Overrides, selection, look-up.
#include "resolve.hpp"

#include <flashdma_bwd/kernel_resources.hpp>
#include <vector>

#include "selection/configuration_name.hpp"
#include "selection/explain.hpp"
#include "selection/suggestion.hpp"
#include "selection/vocabulary.hpp"
#include "tune_cache/choice_table.hpp"

namespace flashdma_bwd {
namespace {

Check override_error(std::string message) {
  return Failure{FLASHDMA_BWD_OVERRIDE_ERROR, std::move(message)};
}

/// Of whatever names a kernel.
const char* name_of(Decision decision) {
  switch (decision) {
    case Decision::argument:
      return "arguments.kernel";
    case Decision::schedule:
      return "arguments.schedule";
    default:
      return "FLASHDMA_BWD_KERNEL";
  }
}

std::string capability_of(const DeviceTraits& device) {
  return "compute capability " + std::to_string(device.compute_capability / 10) + '.' +
         std::to_string(device.compute_capability % 10);
}

/// Whether the GPU runs the architecture's compiled code.
Check check_runs(const DispatchTable& table, Architecture architecture, const DeviceTraits& device,
                 const std::string& who, Resolution& resolution) {
  const std::string name(word(architecture));
  if (!table.compiled.contains(architecture))
    return override_error(who + " asks for " + name + ", which is not compiled into this build (" +
                          architecture_list(table.compiled) + "): build with FLASHDMA_BWD_ARCHITECTURES containing it");
  const auto form = code_form(architecture, device.compute_capability, table.also_native);
  if (!form)
    return override_error(who + " asks for " + name + ", whose machine code a GPU of " + capability_of(device) +
                          " cannot run, and its PTX, if it has any, is for GPUs from 9.0 on: build with "
                          "FLASHDMA_BWD_ALSO_NATIVE_FOR=" +
                          std::to_string(device.compute_capability) + ", or choose an older architecture");
  resolution.form = *form;
  resolution.tier = tier_of(architecture, device.compute_capability);
  return {};
}

Check unknown_kernel(const DispatchTable& table, const std::string& who, std::string_view name) {
  const Parsed<KernelConfig> parsed = parse_configuration_name(name);
  std::string message = who + " names `" + std::string(name) + "`, which is not in this build: ";
  if (parsed)
    message += "the name is canonical, but profile `" + std::string(table.profile) + "` with " +
               architecture_list(table.compiled) + " has no such kernel";
  else
    message += parsed.error;
  std::vector<std::string_view> names;
  for (const KernelEntry& kernel : table.kernels) names.push_back(kernel.name);
  const std::string_view near = nearest_of(name, names);
  message += near.empty() ? ". flashdma_bwd_kernel_name lists the kernels of this build"
                          : ". Did you mean `" + std::string(near) + "`?";
  return override_error(message);
}

Check resolve_named(const DispatchTable& table, const Request& request, std::string_view name, const std::string& who,
                    Resolution& resolution) {
  const KernelEntry* kernel = find_kernel(table.kernels, name);
  if (kernel == nullptr) return unknown_kernel(table, who, name);
  resolution.config = kernel->config;
  if (const std::string why = why_not_served(kernel->config, request.problem, request.device); !why.empty())
    return override_error(who + " names `" + std::string(name) + "`, which cannot run this problem: " + why);
  if (Check failure = check_runs(table, kernel->config.architecture, request.device, who, resolution)) return failure;
  resolution.kernel = kernel;
  return {};
}

/// The rows that decide: the environment's table has the built-in ones behind its own.
std::span<const Row> rows_for(const DispatchTable& table, const Environment& environment, const Request& request) {
  if (environment.has_table && !request.table_only) return environment.rows;
  return table.rows;
}

Check not_compiled(const DispatchTable& table, const Environment& environment, const Resolution& resolution) {
  const Row& row = *resolution.row;
  const std::string place = std::string(row.file) + ':' + std::to_string(row.line);
  const std::string name = configuration_name(resolution.config);
  if (is_environment_row(environment, row))
    return override_error("FLASHDMA_BWD_TABLE: " + place + " chooses `" + name +
                          "`, which is not compiled into this build: put the row into configs/tables/, run "
                          "flashdma-gen generate and rebuild, or unset the variable");
  return Failure{FLASHDMA_BWD_NOT_COMPILED,
                 place + " chooses `" + name + "`, which profile `" + std::string(table.profile) +
                     "` of this build leaves out; profile `full` has it: run flashdma-gen generate --profile full "
                     "and rebuild, or choose another compiled kernel by name"};
}

Check status_failure(const SelectionResult& selection, const Request& request, ArchitectureSet compiled) {
  const flashdma_bwd_code code = selection.status == SelectionStatus::unsupported_architecture
                                     ? FLASHDMA_BWD_UNSUPPORTED_ARCHITECTURE
                                     : FLASHDMA_BWD_UNSUPPORTED;
  return Failure{code, selection_failure(selection.status, request.device, request.problem, compiled)};
}

Check take_selection(const DispatchTable& table, const Environment& environment, const SelectionResult& selection,
                     Resolution& resolution) {
  resolution.row = selection.row;
  resolution.config = selection.config;
  resolution.kernel = find_kernel(table.kernels, selection.config);
  if (resolution.kernel == nullptr) return not_compiled(table, environment, resolution);
  return {};
}

}  // namespace

std::string why_not_served(const KernelConfig& config, const Problem& problem, const DeviceTraits& device) {
  const auto differs = [](std::string_view what, std::string_view kernel, std::string_view call) {
    return std::string(what) + " is " + std::string(call) + " and the kernel's is " + std::string(kernel);
  };
  if (config.data_type != problem.data_type)
    return differs("the call's data type", word(config.data_type), word(problem.data_type));
  if (config.head_dim != head_dim_bucket(problem.head_dim))
    return differs("the call's head dim bucket", std::to_string(config.head_dim),
                   std::to_string(head_dim_bucket(problem.head_dim)));
  if (config.bias != problem.bias) return differs("the call's bias", word(config.bias), word(problem.bias));
  if (config.softcap != problem.softcap)
    return differs("the call's softcap", config.softcap ? "yes" : "no", problem.softcap ? "yes" : "no");
  if (copies_bias(config.tile.family, config.bias) && !problem.bias_copies)
    return "it moves a tile bias by tensor copies, which cannot move this one or its gradient: they need an element "
           "for "
           "each query and key, a plan in the keys' own order, addresses and strides of 16 bytes (of a gradient that "
           "heads or sequences share any), and with a gradient rows of 16 bytes (seqlen_k a multiple of 8)";
  if (const int needed = shared_memory_bytes(config); needed > device.shared_memory_per_block)
    return "it needs " + std::to_string(needed) + " bytes of shared memory and the GPU gives a block " +
           std::to_string(device.shared_memory_per_block);
  return {};
}

bool is_environment_row(const Environment& environment, const Row& row) {
  const std::vector<Row>& own = environment.table.rows();
  return !own.empty() && row.file.data() == own.front().file.data();
}

const char* deciding_place(const Resolution& resolution) {
  if (resolution.row != nullptr) return resolution.row->file.data();
  if (resolution.tuned != nullptr) return deciding_line(resolution) == 0 ? "first use" : resolution.cache_file;
  return name_of(resolution.decision);
}

int deciding_line(const Resolution& resolution) {
  if (resolution.row != nullptr) return resolution.row->line;
  return resolution.tuned != nullptr ? resolution.tuned->line.load(std::memory_order_relaxed) : 0;
}

std::string decider_text(const Resolution& resolution) {
  const int line = deciding_line(resolution);
  return deciding_place(resolution) + (line != 0 ? ':' + std::to_string(line) : std::string());
}

Check resolve(const DispatchTable& table, const Environment& environment, const Request& request,
              Resolution& resolution) {
  if (!request.table_only && !environment.piece_steps_error.empty())
    return override_error(environment.piece_steps_error);
  if (!request.kernel.empty()) {
    resolution.decision = request.scheduled ? Decision::schedule : Decision::argument;
    return resolve_named(table, request, request.kernel, name_of(resolution.decision), resolution);
  }
  const std::span<const Row> rows = rows_for(table, environment, request);
  if (!request.table_only && environment.overrides_selection()) {
    if (!environment.error.empty()) return override_error(environment.error);
    if (!environment.kernel.empty()) {
      resolution.decision = Decision::environment_kernel;
      if (Check failure = resolve_named(table, request, environment.kernel, "FLASHDMA_BWD_KERNEL", resolution))
        return failure;
      if (environment.architecture && *environment.architecture != resolution.config.architecture)
        return override_error("FLASHDMA_BWD_KERNEL names a kernel of " +
                              std::string(word(resolution.config.architecture)) + " and FLASHDMA_BWD_ARCH is " +
                              std::string(word(*environment.architecture)) + ": unset one of them");
      return {};
    }
    if (environment.architecture) {
      resolution.decision = Decision::environment_architecture;
      if (Check failure = check_runs(table, *environment.architecture, request.device, "FLASHDMA_BWD_ARCH", resolution))
        return failure;
      const SelectionResult selection = select_among(*environment.architecture, request.device, request.problem, rows);
      if (selection.status != SelectionStatus::ok)
        return override_error("FLASHDMA_BWD_ARCH is " + std::string(word(*environment.architecture)) +
                              ", and no row of it admits this problem and fits the " +
                              std::to_string(request.device.shared_memory_per_block) +
                              " bytes of shared memory that the GPU gives a block: unset it");
      return take_selection(table, environment, selection, resolution);
    }
  }
  const SelectionResult selection = select_kernel(request.device, request.problem, rows, table.compiled);
  if (selection.status != SelectionStatus::ok) return status_failure(selection, request, table.compiled);
  resolution.tier = selection.tier;
  resolution.form = selection.form;
  return take_selection(table, environment, selection, resolution);
}

std::string explain_resolution(const DispatchTable& table, const Environment& environment, const Request& request) {
  Resolution resolution;
  const Check failure = resolve(table, environment, request, resolution);
  std::string text;
  if (!request.table_only && environment.has_table && environment.error.empty())
    text += "rows of FLASHDMA_BWD_TABLE come before the built-in ones\n";
  switch (resolution.decision) {
    case Decision::argument:
    case Decision::schedule:
    case Decision::environment_kernel:
      text += std::string(name_of(resolution.decision)) + " decides, no table is asked\n";
      if (!failure) text += "kernel: " + std::string(resolution.kernel->name) + '\n';
      break;
    case Decision::environment_architecture:
      text += "FLASHDMA_BWD_ARCH decides which rows are asked\n";
      if (!failure || code_form(*environment.architecture, request.device.compute_capability, table.also_native))
        text += explain_among(*environment.architecture, request.device, request.problem,
                              rows_for(table, environment, request));
      break;
    case Decision::table:
    case Decision::cache:  // which resolve does not ask
      if (failure && failure->code == FLASHDMA_BWD_OVERRIDE_ERROR && resolution.row == nullptr) break;
      if (failure && failure->code == FLASHDMA_BWD_UNSUPPORTED_ARCHITECTURE &&
          request.device.compute_capability >= kOldestComputeCapability)
        // The tables know more GPUs than this build has kernels for.
        return text + "this build: " + failure->message + "\nwith all architectures compiled in:\n" +
               explain_selection(request.device, request.problem, rows_for(table, environment, request));
      text += explain_selection(request.device, request.problem, rows_for(table, environment, request), table.compiled);
      if (failure && failure->code != FLASHDMA_BWD_NOT_COMPILED && failure->code != FLASHDMA_BWD_OVERRIDE_ERROR)
        return text;  // which has the reason
      break;
  }
  if (failure) text += "this build: " + failure->message + '\n';
  return text;
}

}  // namespace flashdma_bwd
