// explain: which kernel a problem runs on a GPU, and why, by the same function that the library calls.
#include "selection/explain.hpp"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <ostream>

#include "commands/commands.hpp"
#include "commands/session.hpp"
#include "selection/configuration_name.hpp"
#include "selection/gpu_presets.hpp"
#include "selection/key_layout.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd::generator {
namespace {

struct NamedDevice {
  std::string name;
  DeviceTraits traits;
};

const GpuPreset* find_preset(std::string_view name) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  const auto same = [&](const GpuPreset& preset) {
    return std::equal(preset.name.begin(), preset.name.end(), name.begin(), name.end(),
                      [&](char a, char b) { return lower(a) == lower(b); });
  };
  const auto found = std::find_if(std::begin(kGpuPresets), std::end(kGpuPresets), same);
  return found != std::end(kGpuPresets) ? found : nullptr;
}

/// The shared memory of the newest architecture that is not newer than the GPU: what is known of a GPU without a name.
int usual_shared_memory(const Configuration& configuration, int compute_capability) {
  int bytes = 0;
  for (const ArchitectureSpec& spec : configuration.architectures)
    if (spec.compute_capability <= compute_capability) bytes = spec.shared_memory_per_block;
  return bytes;
}

/// The GPUs that the command line asks about; without any, all that have names.
std::vector<NamedDevice> devices_of(const Options& options, const Configuration& configuration) {
  std::vector<NamedDevice> devices;
  for (const std::string& gpu : options.gpus)
    if (const GpuPreset* preset = find_preset(gpu)) devices.push_back({std::string(preset->name), preset->traits});
  if (options.device.compute_capability != 0) {
    NamedDevice device{"this GPU", options.device};
    if (device.traits.shared_memory_per_block == 0)
      device.traits.shared_memory_per_block = usual_shared_memory(configuration, device.traits.compute_capability);
    devices.push_back(std::move(device));
  }
  if (devices.empty())
    for (const GpuPreset& preset : kGpuPresets) devices.push_back({std::string(preset.name), preset.traits});
  return devices;
}

std::string profiles_with(const Configuration& configuration, const std::string& kernel) {
  std::string names;
  for (const Profile& profile : configuration.profiles) {
    const Plan plan = make_plan(configuration, profile);
    for (const TranslationUnit& unit : plan.units)
      for (const PlannedKernel& planned : unit.kernels)
        if (planned.name == kernel) names += (names.empty() ? "" : ", ") + profile.name;
  }
  return names.empty() ? "none" : names;
}

LayoutChoice layout_choice(const Options& options, const Problem& problem) {
  switch (options.layout.value_or(AskedLayout::automatic)) {
    case AskedLayout::natural:
      return {KeyLayout::natural, LayoutRule::asked_for};
    case AskedLayout::compacted:
      return {KeyLayout::compacted, LayoutRule::asked_for};
    case AskedLayout::reordered:
      return {KeyLayout::reordered, LayoutRule::asked_for};
    case AskedLayout::automatic:
      break;
  }
  return automatic_layout(problem.seqlen_q == 1, problem.bias == BiasKind::tile, problem.seqlen_k);
}

/// The problem that the options describe, as the library sees it.
Problem asked_problem(const Options& options) {
  Problem problem = options.problem;
  if (problem.heads_kv == 0) problem.heads_kv = problem.heads;
  if (problem.seqlen_k == 0) problem.seqlen_k = problem.seqlen_q;
  if (problem.masked) problem.layout = layout_choice(options, problem).layout;
  if (options.mask_density.value_or(0) != 0) problem.mask_density = *options.mask_density;
  return problem;
}

/// Why no call is the problem that the options describe, or nothing.
std::string contradiction(const Options& options, const Problem& problem) {
  if (problem.heads % problem.heads_kv != 0)
    return "--heads " + std::to_string(problem.heads) + " is no multiple of --heads-kv " +
           std::to_string(problem.heads_kv) + ": each KV head serves the same number of query heads";
  if (!problem.masked && options.layout)
    return "--layout without --masked: it is the order of the keys in a mask's plan; give both or neither";
  if (!problem.masked && options.mask_density)
    return "--mask-density without --masked: it counts the active pairs of a mask; give both or neither";
  if (problem.window != 0 && !problem.causal)
    return "--window without --causal: it is a limit on both sides; give both or neither";
  if (problem.window != 0 && problem.masked)
    return "--window with --masked, whose --mask-density says how many pairs there are: leave it out";
  if (problem.window >= problem.seqlen_q)
    return "--window " + std::to_string(problem.window) + " leaves all of --seqlen-q " +
           std::to_string(problem.seqlen_q) + " queries: leave it out";
  if (problem.bias_copies && problem.bias != BiasKind::tile)
    return "--bias-copies without --bias tile: no other bias is moved by tensor copies; give both or neither";
  if (problem.bias_copies && problem.layout != KeyLayout::natural)
    return "--bias-copies with keys that are " + std::string(word(problem.layout)) +
           ": tensor copies move a tile bias only where the keys stand in their own order; ask for --layout natural, "
           "or "
           "leave --bias-copies out";
  return {};
}

}  // namespace

int run_explain(const Options& options, const Streams& streams) {
  if (options.device.compute_capability != 0 && options.device.sm_count <= 0)
    return refuse_usage(streams,
                        "--compute-capability needs --sm-count: how well a problem fills the GPU depends on it");
  if (options.device.compute_capability == 0 &&
      (options.device.sm_count != 0 || options.device.shared_memory_per_block != 0))
    return refuse_usage(streams, "--sm-count and --shared-memory describe the GPU of --compute-capability");
  const Problem problem = asked_problem(options);
  if (const std::string error = contradiction(options, problem); !error.empty()) return refuse_usage(streams, error);
  const std::optional<Configuration> configuration = load_valid(options, streams);
  if (!configuration) return kFindings;

  const std::string layout_rule =
      problem.masked ? layout_rule_text(layout_choice(options, problem).rule) : std::string();
  std::vector<Row> rows;
  for (const Table& table : configuration->tables)
    for (const TableRow& row : table.rows) rows.push_back(as_row(table, row));

  bool found = true;
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const NamedDevice& device : devices_of(options, *configuration)) {
    const SelectionResult result = select_kernel(device.traits, problem, rows);
    const std::string explanation = explain_selection(device.traits, problem, rows);
    const bool ok = result.status == SelectionStatus::ok;
    const std::string kernel = ok ? configuration_name(result.config) : std::string();
    const std::string profiles = ok ? profiles_with(*configuration, kernel) : std::string();
    found = found && ok;
    if (options.format == Format::json) {
      nlohmann::ordered_json entry{{"gpu", device.name},
                                   {"compute_capability", device.traits.compute_capability},
                                   {"sm_count", device.traits.sm_count},
                                   {"shared_memory_per_block", device.traits.shared_memory_per_block},
                                   {"selected", ok}};
      if (ok) {
        entry["kernel"] = kernel;
        entry["row"] = std::string(result.row->file) + ':' + std::to_string(result.row->line);
        entry["tier"] = result.tier;
        entry["profiles"] = profiles;
      }
      if (problem.masked) {
        entry["layout"] = std::string(word(problem.layout));
        entry["layout_rule"] = layout_rule;
      }
      entry["explanation"] = explanation;
      array.push_back(std::move(entry));
    } else {
      streams.out << device.name << '\n';
      if (problem.masked) streams.out << "layout: " << word(problem.layout) << " (" << layout_rule << ")\n";
      streams.out << explanation;
      if (ok) streams.out << "profiles with this kernel: " << profiles << '\n';
      streams.out << '\n';
    }
  }
  if (options.format == Format::json) streams.out << array.dump(2) << '\n';
  return found ? kFine : kFindings;
}

}  // namespace flashdma_bwd::generator
