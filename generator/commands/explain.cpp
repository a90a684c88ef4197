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

}  // namespace

int run_explain(const Options& options, const Streams& streams) {
  if (options.device.compute_capability != 0 && options.device.sm_count <= 0)
    return refuse_usage(streams,
                        "--compute-capability needs --sm-count: how well a problem fills the GPU depends on it");
  if (options.device.compute_capability == 0 &&
      (options.device.sm_count != 0 || options.device.shared_memory_per_block != 0))
    return refuse_usage(streams, "--sm-count and --shared-memory describe the GPU of --compute-capability");
  const std::optional<Configuration> configuration = load_valid(options, streams);
  if (!configuration) return kFindings;

  Problem problem = options.problem;
  if (problem.heads_kv == 0) problem.heads_kv = problem.heads;
  if (problem.seqlen_k == 0) problem.seqlen_k = problem.seqlen_q;
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
      entry["explanation"] = explanation;
      array.push_back(std::move(entry));
    } else {
      streams.out << device.name << '\n' << explanation;
      if (ok) streams.out << "profiles with this kernel: " << profiles << '\n';
      streams.out << '\n';
    }
  }
  if (options.format == Format::json) streams.out << array.dump(2) << '\n';
  return found ? kFine : kFindings;
}

}  // namespace flashdma_bwd::generator
